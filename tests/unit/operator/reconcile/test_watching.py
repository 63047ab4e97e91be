"""What Prometheus and Grafana watch a service with: made, repaired, followed and taken away, whatever kinds exist."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from reconcile_bench import KEY, Bench

from tidemark_operator import errors, names, settings
from tidemark_operator.cluster import interface
from tidemark_operator.plan import watching
from tidemark_operator.reconcile import queue

ABSENT = interface.Lack("NotInstalled", "this cluster has no such kind")
OBJECTS = (*watching.KINDS, "ConfigMap")


@pytest.fixture
async def bench(clock: Any) -> Bench:
    """On a cluster that has every kind."""
    made = Bench(clock)
    made.cluster.lacking.clear()
    for _ in range(3):
        await made.run()
    return made


def found(bench: Bench, kind: str) -> dict[str, Any] | None:
    name = "base-dashboard" if kind in ("ConfigMap", "GrafanaDashboard") else "base"
    return bench.cluster.objects.get(interface.Key(kind, "default", name))


def there(bench: Bench) -> set[str]:
    return {kind for kind in OBJECTS if found(bench, kind)}


async def test_every_object_is_made_and_told(bench: Bench) -> None:
    assert there(bench) == set(OBJECTS)
    assert bench.condition("MonitoringReady")["status"] == "True"
    for kind in OBJECTS:
        controller = interface.controller_of(found(bench, kind) or {}) or {}
        assert controller["uid"] == bench.uid, "it goes with its service"


async def test_a_pass_that_finds_all_as_it_was_neither_makes_nor_writes_anything(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_operator.plan.monitoring", None)  # whoever makes an object calls it
    bench.cluster.applied.clear()
    await bench.run()
    assert bench.cluster.applied == []


@pytest.mark.parametrize("kind", OBJECTS)
async def test_one_that_was_deleted_comes_back(bench: Bench, kind: str) -> None:
    bench.cluster.objects.remove(interface.key_of(found(bench, kind) or {}))
    await bench.run()
    assert there(bench) == set(OBJECTS)


async def test_one_that_was_edited_is_repaired(bench: Bench) -> None:
    before = found(bench, "PrometheusRule") or {}
    edited = copy.deepcopy(before)
    edited["spec"]["groups"] = edited["spec"]["groups"][:1]
    bench.cluster.objects.apply(edited, "somebody")
    await bench.run()
    assert (found(bench, "PrometheusRule") or {})["spec"] == before["spec"]


async def test_labels_are_followed(bench: Bench) -> None:
    bench.put({"monitoring": {"labels": {"release": "mon"}}})
    await bench.run()
    for kind in OBJECTS:
        assert (found(bench, kind) or {})["metadata"]["labels"]["release"] == "mon"
    bench.put({"monitoring": {"labels": {"release": "other"}}})
    await bench.run()
    assert {(found(bench, kind) or {})["metadata"]["labels"]["release"] for kind in OBJECTS} == {"other"}


async def test_switched_off_nothing_is_left_and_nothing_is_said(bench: Bench) -> None:
    bench.put({"monitoring": {"enabled": False}})
    await bench.run()
    assert there(bench) == set()
    assert "MonitoringReady" not in {item["type"] for item in bench.status["conditions"]}
    assert bench.condition("Ready")["status"] == "True"


async def test_without_a_prometheus_operator_the_service_is_ready_and_says_what_is_missing(bench: Bench) -> None:
    bench.cluster.lacking = dict.fromkeys(watching.KINDS, ABSENT)
    bench.put({"monitoring": {"enabled": False}})
    await bench.run()  # objects of a kind that is gone are gone
    bench.put({"monitoring": {"enabled": True}})
    bench.cluster.applied.clear()
    await bench.run()
    assert not set(bench.cluster.applied) & set(watching.KINDS)
    condition = bench.condition("MonitoringReady")
    assert (condition["status"], condition["reason"]) == ("False", "NoPrometheusOperator")
    assert "tidemark render --monitoring" in condition["message"]
    assert bench.condition("Ready")["status"] == "True"
    assert bench.condition("Degraded")["status"] == "False"
    assert bench.status["warnings"] == []
    bench.cluster.applied.clear()
    for _ in range(3):
        assert await bench.run() == settings.ReconcileSettings().ready_seconds, "no failure, and no retry"
    assert bench.cluster.applied == []
    bench.cluster.lacking = {}
    await bench.run()
    assert there(bench) == set(OBJECTS)
    assert bench.condition("MonitoringReady")["status"] == "True"


@pytest.mark.parametrize("kind", watching.SCRAPE_KINDS)
async def test_one_kind_of_two_is_used_and_the_other_told(clock: Any, kind: str) -> None:
    bench = Bench(clock)
    bench.cluster.lacking = {kind: interface.Lack("NotInstalled", f"this cluster has no kind {kind}")}
    await bench.run()
    assert there(bench) == set(OBJECTS) - {kind}
    condition = bench.condition("MonitoringReady")
    assert (condition["status"], condition["reason"]) == ("False", f"No{kind}")
    assert condition["message"].startswith(f"This cluster has no kind {kind}")


async def test_without_grafanas_operator_the_config_map_is_for_the_sidecar(clock: Any) -> None:
    bench = Bench(clock)
    bench.cluster.lacking = {watching.DASHBOARD_KIND: ABSENT}
    await bench.run()
    assert bench.condition("MonitoringReady")["status"] == "True"
    assert (found(bench, "ConfigMap") or {})["metadata"]["labels"][names.DASHBOARD_LABEL] == "1"
    bench.cluster.lacking = {}
    await bench.run()
    assert names.DASHBOARD_LABEL not in (found(bench, "ConfigMap") or {})["metadata"]["labels"]


async def test_what_is_not_permitted_is_told(clock: Any) -> None:
    bench = Bench(clock)
    bench.cluster.lacking = {"PodMonitor": interface.Lack("NotPermitted", "not permitted: list podmonitors")}
    await bench.run()
    condition = bench.condition("MonitoringReady")
    assert (condition["status"], condition["reason"]) == ("False", "NotPermitted")
    assert "not permitted: list podmonitors" in condition["message"]


async def test_a_refused_object_is_told_tried_again_and_keeps_nothing_back(bench: Bench) -> None:
    bench.cluster.failing["PrometheusRule"] = errors.Refused("admission webhook denied the request: no such label")
    bench.put({"monitoring": {"labels": {"release": "mon"}}, "replicas": 2})
    for _ in range(3):
        with pytest.raises(errors.Refused):
            await bench.run()
        bench.cluster.let_pods_be_ready()
    condition = bench.condition("MonitoringReady")
    assert (condition["status"], condition["reason"]) == ("False", "ApplyFailed")
    assert "no such label" in condition["message"]
    assert bench.child("Deployment")["spec"]["replicas"] == 2
    assert (found(bench, "PodMonitor") or {})["metadata"]["labels"]["release"] == "mon"
    assert there(bench) == set(OBJECTS), "what could not be changed is not deleted either"
    assert bench.condition("Ready")["status"] == "True"
    bench.cluster.failing.clear()
    await bench.run()
    assert bench.condition("MonitoringReady")["status"] == "True"


async def test_what_somebody_else_made_is_never_taken_over(clock: Any) -> None:
    bench = Bench(clock)
    bench.cluster.lacking.clear()
    theirs = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "spec": {"selector": {}}}
    bench.cluster.objects.apply({**theirs, "metadata": {"name": "base", "namespace": "default"}}, "somebody")
    with pytest.raises(errors.Conflict, match="was not made by this service"):
        await bench.run()
    assert (found(bench, "PodMonitor") or {})["spec"] == {"selector": {}}
    assert "was not made by this service" in bench.condition("MonitoringReady")["message"]


async def test_paused_means_hands_off_and_the_condition_stays(bench: Bench) -> None:
    before = bench.condition("MonitoringReady")
    bench.cluster.objects.remove(interface.key_of(found(bench, "PodMonitor") or {}))
    document = bench.cluster.objects.get(KEY) or {}
    document["metadata"]["annotations"] = {names.PAUSED_ANNOTATION: "true"}
    bench.cluster.objects.apply(document, "user")
    await bench.run()
    assert found(bench, "PodMonitor") is None
    assert bench.condition("MonitoringReady") == before


async def test_a_service_without_pods_looks_again_for_a_kind_that_is_missing(clock: Any) -> None:
    bench, limits = Bench(clock), settings.ReconcileSettings()
    bench.put({"suspend": True})
    await bench.run()
    assert await bench.run() == limits.max_unready_seconds
    bench.cluster.lacking.clear()
    assert await bench.run() == limits.rewrite_secrets_seconds


async def test_a_service_that_is_gone_is_forgotten(bench: Bench) -> None:
    bench.cluster.objects.remove(KEY)
    assert await bench.run() == queue.GONE
    assert bench.work._watching._settled == {}
