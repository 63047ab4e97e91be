from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tidemark_operator import errors, names, settings
from tidemark_operator.cluster import engines, interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import backend, metrics

Made = Callable[..., dict[str, Any]]
KEY = interface.Key("Deployment", "team", "chat")


def refuse(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"{request.url} was asked")


@pytest.fixture
def counted() -> metrics.Metrics:
    return metrics.Metrics()


@pytest.fixture
def cluster(api: Any, clock: Any, counted: metrics.Metrics) -> backend.KubernetesCluster:
    return backend.KubernetesCluster(
        api,
        httpx.AsyncClient(transport=httpx.MockTransport(refuse)),
        "me",
        ("",),
        settings=settings.KubernetesSettings(),
        engine_settings=settings.EngineSettings(),
        recorder_settings=settings.RecorderSettings(),
        clock=clock,
        metrics_=counted,
    )


async def test_reads_do_not_ask_the_api_server(cluster: backend.KubernetesCluster, api: Any, made: Made) -> None:
    cluster.feed("ADDED", made("Deployment", "chat", 5))
    assert await cluster.get(KEY) == made("Deployment", "chat", 5)
    assert len(await cluster.list("Deployment", "team", names.selector("chat"))) == 1
    assert await cluster.get(interface.Key(names.KIND, "team", "unknown")) is None
    assert api.calls == []


async def test_what_was_written_is_read_at_once_and_a_late_event_does_not_undo_it(
    cluster: backend.KubernetesCluster, made: Made
) -> None:
    applied = await cluster.apply(made("Deployment", "chat", 0, spec={"replicas": 2}))
    assert "managedFields" not in applied["metadata"]
    cluster.feed("MODIFIED", made("Deployment", "chat", 50, spec={"replicas": 1}))
    found = await cluster.get(KEY)
    assert found == applied
    assert found is not applied


async def test_a_status_that_was_written_is_read_at_once(
    cluster: backend.KubernetesCluster, api: Any, made: Made
) -> None:
    key = interface.Key(names.KIND, "team", "chat")
    cluster.feed(None, api.put(made(names.KIND, "chat", 0)))
    await cluster.patch_status(key, {"replicas": 3})
    found = await cluster.get(key)
    assert found is not None
    assert found["status"] == {"replicas": 3}
    assert await cluster.patch_status(interface.Key(names.KIND, "team", "gone"), {}) is None


async def test_somebody_elses_object_of_our_name_is_seen_and_not_kept(
    cluster: backend.KubernetesCluster, api: Any, made: Made
) -> None:
    api.put(made("Deployment", "chat", 0, service=None))
    found = await cluster.get(KEY)
    assert found is not None
    assert found["metadata"]["labels"] == {}
    assert len(cluster.cache) == 0


async def test_secrets_are_applied_and_kept_nowhere(cluster: backend.KubernetesCluster, api: Any, made: Made) -> None:
    await cluster.apply(made("Secret", "chat-admin", 0, stringData={"token": "x"}))
    assert len(cluster.cache) == 0
    assert api.calls == [("apply", "Secret team/chat-admin")]


async def test_what_others_put_into_a_list_gives_way_when_it_contradicts_ours(
    cluster: backend.KubernetesCluster, api: Any, made: Made
) -> None:
    ours = made("Service", "chat", 0, spec={"ports": [{"name": "http", "port": 80}]})
    theirs = made("Service", "chat", 0, spec={"ports": [{"name": "http", "port": 81}]})
    cluster.feed("MODIFIED", api.put(theirs))
    api.fails = [api_.Invalid("spec.ports[1].name: Duplicate value")]
    applied = await cluster.apply(ours)
    assert [verb for verb, _ in api.calls] == ["apply", "patch", "apply"]
    assert applied["spec"] == ours["spec"]


async def test_what_is_wrong_by_itself_is_refused_without_a_second_try(
    cluster: backend.KubernetesCluster, api: Any, made: Made
) -> None:
    api.fails = [api_.Invalid("spec.ports: Required value")]
    with pytest.raises(errors.Refused, match="Required value"):
        await cluster.apply(made("Service", "chat", 0))
    assert len(api.calls) == 1


async def test_deletions_are_told(cluster: backend.KubernetesCluster, api: Any, made: Made) -> None:
    cluster.feed("ADDED", made("Deployment", "chat", 5))
    cluster.feed("DELETED", made("Deployment", "chat", 6))
    assert await cluster.get(KEY) is None


async def test_every_event_proves_its_watch(cluster: backend.KubernetesCluster, clock: Any, made: Made) -> None:
    await clock.advance(10)
    cluster.feed("ADDED", made("Deployment", "chat", 5))
    assert cluster.activity.ages()["Deployment"] == 0
    assert cluster.activity.ages()["Pod"] == 10


@pytest.mark.parametrize(
    ("port", "url"),
    [
        ({"port": 80}, "http://chat.team.svc"),
        ({"port": 8000}, "http://chat.team.svc:8000"),
        ({"port": 443, "appProtocol": "https"}, "https://chat.team.svc"),
        ({"port": 80, "appProtocol": "https"}, "https://chat.team.svc:80"),
    ],
)
async def test_the_endpoint_is_the_service(
    cluster: backend.KubernetesCluster, made: Made, port: dict[str, Any], url: str
) -> None:
    cluster.feed("ADDED", made("Service", "chat", 5, spec={"ports": [port]}))
    assert await cluster.endpoint("team", "chat") == url
    assert await cluster.endpoint("team", "other") is None


def running_pod(made: Made, **status: Any) -> dict[str, Any]:
    container = {
        "name": names.CONTAINER,
        "ports": [{"name": "other", "containerPort": 1}, {"name": names.PORT_NAME, "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"scheme": "HTTPS"}},
    }
    status = {"phase": "Running", "podIP": "10.0.0.7", **status}
    return made("Pod", "chat-1", 5, spec={"containers": [{"name": "sidecar"}, container]}, status=status)


def test_an_engine_is_asked_where_its_container_says(made: Made) -> None:
    assert backend.address(running_pod(made)) == engines.Address("10.0.0.7", 8000, "https")


@pytest.mark.parametrize("status", [{"podIP": ""}, {"phase": "Pending"}, {"phase": "Failed"}])
async def test_a_pod_without_an_engine_to_ask_is_not_asked(
    cluster: backend.KubernetesCluster, made: Made, status: dict[str, Any]
) -> None:
    pod = running_pod(made, **status)
    assert await cluster.engine_status(pod) is None
    assert await cluster.configure_engine(pod, {}, "token") is None


async def test_conditions_are_exported_until_the_service_is_gone(
    cluster: backend.KubernetesCluster, counted: metrics.Metrics, made: Made
) -> None:
    """B091."""
    conditions = [{"type": "Ready", "status": "False", "reason": "Loading"}]
    cluster.feed("ADDED", made(names.KIND, "chat", 5, status={"conditions": conditions}))
    cluster.feed("ADDED", made(names.KIND, "new", 5))
    text = counted.exposition().decode()
    assert 'condition="Ready"' in text
    assert 'service="new",condition=' not in text
    cluster.feed("DELETED", made(names.KIND, "chat", 6))
    assert 'condition="Ready"' not in counted.exposition().decode()
