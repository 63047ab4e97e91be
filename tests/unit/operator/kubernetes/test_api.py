from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tidemark_operator import errors, names, settings
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import kinds

Made = Callable[..., dict[str, Any]]
KEY = interface.Key("Deployment", "team", "chat")


class FakeConnection:
    def __init__(self, *answers: tuple[int, Mapping[str, Any] | bytes]) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def request(self, method: str, path: str, **more: Any) -> tuple[int, bytes]:
        self.asked.append({"method": method, "path": path, **more})
        status, body = self.answers.pop(0)
        return status, body if isinstance(body, bytes) else json.dumps(body).encode()


def asking(*answers: tuple[int, Mapping[str, Any] | bytes]) -> tuple[api_.Api, FakeConnection]:
    connection = FakeConnection(*answers)
    return api_.Api(connection, settings.KubernetesSettings()), connection  # type: ignore[arg-type]


def refusal(message: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message, **more}


async def test_apply_is_server_side_with_our_manager_and_the_whole_intent(made: Made) -> None:
    api, connection = asking((200, made("Deployment", "chat", 5)))
    manifest = made("Deployment", "chat", 4)
    await api.apply(manifest)
    (request,) = connection.asked
    assert request["method"] == "PATCH"
    assert request["path"] == "/apis/apps/v1/namespaces/team/deployments/chat"
    assert request["content_type"] == "application/apply-patch+yaml"
    assert request["query"] == {"fieldManager": names.FIELD_MANAGER, "force": "true"}
    assert request["body"] == manifest


async def test_status_is_applied_whole_and_nothing_else(made: Made) -> None:
    api, connection = asking((200, made(names.KIND, "chat", 5)))
    await api.patch_status(interface.Key(names.KIND, "team", "chat"), {"conditions": []})
    (request,) = connection.asked
    assert request["path"].endswith("/namespaces/team/inferenceservices/chat/status")
    assert request["content_type"] == "application/apply-patch+yaml"
    assert request["body"] == {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "chat", "namespace": "team"},
        "status": {"conditions": []},
    }


async def test_what_is_gone_is_none_and_its_deletion_no_error() -> None:
    api, _ = asking(*[(404, refusal('deployments.apps "chat" not found'))] * 3)
    assert await api.get(KEY) is None
    assert await api.patch_status(KEY, {}) is None
    await api.delete(KEY)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, errors.NotFound),
        (409, errors.Conflict),
        (410, errors.Conflict),
        (400, errors.Refused),
        (401, errors.Refused),
        (403, errors.Refused),
        (422, errors.Refused),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
    ],
)
async def test_each_answer_is_one_of_our_errors_in_the_servers_words(
    status: int, error: type[errors.ClusterError], made: Made
) -> None:
    api, _ = asking((status, refusal("the words of the server")))
    with pytest.raises(error, match="the words of the server"):
        await api.apply(made("Deployment", "chat", 4))


async def test_a_missing_permission_is_named_with_verb_and_resource(made: Made) -> None:
    said = 'deployments.apps "chat" is forbidden: User "x" cannot patch resource "deployments"'
    api, _ = asking((403, refusal(said)))
    with pytest.raises(errors.Refused, match=r"not permitted: patch deployments\.apps .*User \"x\" cannot patch"):
        await api.apply(made("Deployment", "chat", 4))


async def test_a_busy_api_server_is_asked_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(api_.asyncio, "sleep", wait)
    busy = (429, refusal("too many requests", details={"retryAfterSeconds": 2}))
    api, _ = asking(busy, busy, (200, made("Deployment", "chat", 5)))
    await api.apply(made("Deployment", "chat", 4))
    assert waited == [2, 2]
    api, _ = asking(busy, busy, busy)
    with pytest.raises(errors.Unavailable, match="too many requests"):
        await api.apply(made("Deployment", "chat", 4))


async def test_an_answer_that_is_no_json_is_told_as_it_is(made: Made) -> None:
    api, _ = asking((502, b"<html>bad gateway</html>"))
    with pytest.raises(errors.Unavailable, match="bad gateway"):
        await api.apply(made("Deployment", "chat", 4))


async def test_lists_come_in_pages_of_our_objects_only(made: Made) -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [made("Pod", "a", 1)]}
    last = {"metadata": {"resourceVersion": "9"}, "items": None}
    api, connection = asking((200, first), (200, last))
    kind = kinds.TABLE["Pod"]
    page = await api.page(kind, "", selector=kind.selector)
    assert (page.resource_version, page.next, len(page.items)) == ("9", "more", 1)
    page = await api.page(kind, "team", after=page.next, selector=kind.selector)
    assert (page.next, page.items) == ("", [])
    assert [request["path"] for request in connection.asked] == ["/api/v1/pods", "/api/v1/namespaces/team/pods"]
    assert connection.asked[0]["query"] == {
        "limit": "200",
        "labelSelector": names.SERVICE_LABEL,
        "resourceVersion": "0",
    }
    assert connection.asked[1]["query"] == {"limit": "200", "labelSelector": names.SERVICE_LABEL, "continue": "more"}
