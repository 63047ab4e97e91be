"""B085: a real engine under a little load and a real operator are scraped over HTTP, in both of Prometheus' formats.

Every name and label that rules and dashboards ask for is there, and nothing else than the tables say.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import live
import metric_sets
import promql_names
import pytest
import uvicorn
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from tidemark_operator import names, settings
from tidemark_operator.cluster import clock, interface
from tidemark_operator.cluster.kubernetes import backend, metrics
from tidemark_operator.commands import operator_http
from tidemark_operator.monitoring import operator_metrics
from tidemark_runtime.contract import metrics as contract

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ACCEPT = {
    "text": "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "openmetrics": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75",
}
"""What Prometheus sends when it likes the one or the other best."""
WITHOUT_A_CARD = {
    contract.DEVICE_UTILIZATION.name,
    contract.DEVICE_MEMORY_USED.name,
    contract.DEVICE_MEMORY_TOTAL.name,
    contract.DEVICE_TEMPERATURE.name,
    contract.DEVICE_POWER.name,
    contract.DEVICE_XID_ERRORS.name,
    contract.CERTIFICATE_EXPIRY.name,
}
"""Absent here, and never 0: there is neither a card nor TLS."""
KEYS = "sk-batch name=batch until=2099-12-31\nsk-other name=other\n"

Samples = list[Any]


@pytest.fixture(scope="module")
def engine_url(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("scraped")
    keys = folder / "keys"
    keys.write_text(KEYS, encoding="utf-8")
    flags = ["--threads", "1", "--num-pages", "64", "--max-context-tokens", "512", "--log-level", "error"]
    with live.serving(folder, str(smollm2_path), *flags, "--api-keys-file", str(keys)) as server:
        asyncio.run(some_load(server.url))
        yield server.url


async def some_load(url: str) -> None:
    """Answers, a refusal and a stranger."""
    async with httpx.AsyncClient(base_url=url, timeout=120, verify=live.CERTIFICATES) as client:
        bodies = [{"prompt": "The sea", "max_tokens": 24, "ignore_eos": True}] * 3 + [{"prompt": "x", "max_tokens": -1}]
        answers = await asyncio.gather(
            *(
                client.post("/v1/completions", json=body, headers={"authorization": f"Bearer {key}"})
                for body, key in zip(bodies, ("sk-batch", "sk-other", "sk-nobody", "sk-batch"), strict=True)
            )
        )
    assert [answer.status_code for answer in answers] == [200, 200, 401, 400]


def feed_a_service(cluster: backend.KubernetesCluster) -> None:
    """As the API server would tell of it."""
    metadata = {"namespace": "team", "name": "chat", "uid": "1", "resourceVersion": "5", "generation": 1}
    labels = {names.SERVICE_LABEL: "chat"}
    status = {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Ready"},
            {"type": "CapacityFit", "status": "False", "reason": "DoesNotFit"},
        ],
        "evaluation": {"time": "2026-01-01T00:00:00Z", "passed": True, "intervalSeconds": 86_400},
    }
    spec = {"replicas": 1, "evaluation": {"schedule": "@daily"}}
    cluster.feed(None, {"kind": names.KIND, "metadata": metadata, "spec": spec, "status": status})
    state = {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 1}
    deployment = {"kind": "Deployment", "metadata": {**metadata, "labels": labels}, "spec": {"replicas": 1}}
    cluster.feed(None, {**deployment, "status": state})


class NoApi:
    """Nothing here asks the API server."""


@pytest.fixture(scope="module")
def operator_parts() -> tuple[metrics.Metrics, backend.KubernetesCluster]:
    counted = metrics.Metrics()
    cluster = backend.KubernetesCluster(
        NoApi(),  # type: ignore[arg-type]
        httpx.AsyncClient(),
        "me",
        ("",),
        settings=settings.KubernetesSettings(),
        engine_settings=settings.EngineSettings(),
        recorder_settings=settings.RecorderSettings(),
        clock=clock.SystemClock(),
        metrics_=counted,
    )
    counted.read_at_scrape(operator_metrics.QUEUE_DEPTH, lambda: [((), 0.0)])
    counted.requested("get", "Pod", 200)
    feed_a_service(cluster)
    return counted, cluster


@pytest.fixture(scope="module")
def operator_url(operator_parts: tuple[metrics.Metrics, backend.KubernetesCluster]) -> Iterator[str]:
    good = operator_http.Verdict(True, "fine")
    probes = operator_http.Probes(lambda: good, lambda: good, operator_parts[0].exposition)
    listener = operator_http.listen("127.0.0.1:0")
    server = uvicorn.Server(uvicorn.Config(operator_http.application(probes), log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def scraped(url: str, accept: str) -> Samples:
    """Families, read as Prometheus reads what the answer says that it is."""
    answer = httpx.get(f"{url}/metrics", headers={"accept": ACCEPT[accept]}, timeout=30, verify=live.CERTIFICATES)
    read = openmetrics_parser if "openmetrics" in answer.headers["content-type"] else parser
    assert answer.headers["content-type"].startswith(("text/plain; version=", "application/openmetrics-text"))
    return list(read.text_string_to_metric_families(answer.text))


@pytest.fixture(params=list(ACCEPT))
def families(request: pytest.FixtureRequest, engine_url: str, operator_url: str) -> Samples:
    return [*scraped(engine_url, request.param), *scraped(operator_url, request.param)]


def names_of(families: Samples) -> set[str]:
    return {sample.name for family in families for sample in family.samples}


def test_all_that_the_tables_say_is_scraped_and_nothing_else(families: Samples) -> None:
    there = names_of(families)
    assert there - set(metric_sets.exported()) == set()
    assert set(metric_sets.exported()) - there == WITHOUT_A_CARD


def test_kinds_units_and_labels_are_those_of_the_tables(families: Samples) -> None:
    found = {family.name: family for family in families}
    for metric in metric_sets.TABLE:
        family = found.get(metric.name.removesuffix("_total"))
        if metric.name in WITHOUT_A_CARD:
            assert family is None or not family.samples, metric.name
            continue
        assert family is not None, metric.name
        assert family.type == metric.kind.value, metric.name
        assert family.documentation == metric.help, metric.name
        own = metric_sets.family(metric)
        for sample in family.samples:
            assert set(sample.labels) == set(own[sample.name]), sample


def test_all_that_rules_and_dashboards_ask_for_is_scraped(families: Samples) -> None:
    there = names_of(families) | set(metric_sets.recorded()) | set(metric_sets.FOREIGN) | WITHOUT_A_CARD
    asked = [*metric_sets.asked_by_rules(), *metric_sets.asked_by_dashboards()]
    missing = {
        (each.who, series.name)
        for each in asked
        for series in promql_names.named(each.expr).selectors
        if series.name not in there
    }
    assert missing == set()


def test_the_load_is_in_the_numbers(families: Samples) -> None:
    values = {(item.name, *item.labels.values()): item.value for family in families for item in family.samples}
    assert values["tidemark_requests_total", "length"] == 2
    assert values["tidemark_generated_tokens_total",] == 48
    assert values["tidemark_requests_rejected_total", "unauthorized"] == 1
    assert values["tidemark_key_expiry_timestamp_seconds", "batch"] > 4e9
    assert values["tidemark_operator_replicas", "team", "chat", "ready"] == 1


def test_a_service_that_is_deleted_is_scraped_no_more(
    operator_parts: tuple[metrics.Metrics, backend.KubernetesCluster], operator_url: str
) -> None:
    """B091: at the very next scrape."""
    cluster = operator_parts[1]
    service = {"namespace": "team", "name": "chat", "uid": "1", "resourceVersion": "9"}
    cluster.feed(interface.Change.DELETED, {"kind": names.KIND, "metadata": service})
    gone = httpx.get(f"{operator_url}/metrics", timeout=10, verify=live.CERTIFICATES).text
    assert 'service="chat"' not in gone
    feed_a_service_again = {**service, "resourceVersion": "10"}
    cluster.feed(interface.Change.ADDED, {"kind": names.KIND, "metadata": feed_a_service_again, "spec": {}})
    again = httpx.get(f"{operator_url}/metrics", timeout=10, verify=live.CERTIFICATES).text
    assert 'tidemark_operator_rollbacks_total{namespace="team",service="chat"} 0.0' in again
