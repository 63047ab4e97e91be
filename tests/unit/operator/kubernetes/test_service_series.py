"""What is exported of each service: read from the cache, counted from what is heard, gone with the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemark_operator import names
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import cache as cache_
from tidemark_operator.cluster.kubernetes import service_counts, service_series
from tidemark_operator.monitoring import operator_metrics
from tidemark_runtime.contract import metrics as contract

Made = Callable[..., dict[str, Any]]
CHAT = interface.Key(names.KIND, "team", "chat")
READY = [{"type": "Ready", "status": "True"}]


class Bed:
    """A cache, what is exported of it, and short ways to change it."""

    def __init__(self, made: Made) -> None:
        self.cache = cache_.Cache()
        self.counts = service_counts.ServiceCounts(self.cache)
        self.series = service_series.ServiceSeries(self.cache, self.counts)
        self.version = 0
        self._made = made

    def put(self, kind: str, name: str, **more: Any) -> None:
        self.version += 1
        self.cache.put(self._made(kind, name, self.version, **more))

    def remove(self, kind: str, name: str) -> None:
        self.version += 1
        self.cache.remove(interface.Key(kind, "team", name), self.version)

    def service(self, *, spec: Any = None, status: Any = None) -> None:
        self.put(names.KIND, "chat", spec=spec or {}, status=status or {"conditions": READY})

    def deployment(self, replicas: int, *, generation: int = 1, **status: int) -> None:
        self.version += 1
        document = self._made("Deployment", names.deployment("chat"), self.version, spec={"replicas": replicas})
        document["metadata"]["generation"] = generation
        document["status"] = {"observedGeneration": 1, **status}
        self.cache.put(document)

    def pod(self, name: str, restarts: int, *, uid: str = "u1", container: str = names.CONTAINER) -> None:
        statuses = [{"name": container, "restartCount": restarts}, {"name": "sidecar", "restartCount": 9}]
        self.put("Pod", name, uid=uid, status={"containerStatuses": statuses})

    def of(self, metric: contract.Metric) -> dict[tuple[str, ...], float]:
        """Further labels -> value."""
        return {item.labels[2:]: float(item.value) for item in self.series.samples() if item.name == metric.name}


@pytest.fixture
def bed(made: Made) -> Bed:
    return Bed(made)


def states(bed: Bed) -> dict[str, float]:
    return {labels[0]: value for labels, value in bed.of(operator_metrics.REPLICAS).items()}


def test_replicas_by_state(bed: Bed) -> None:
    bed.service(spec={"replicas": 3})
    bed.deployment(3, readyReplicas=2, updatedReplicas=1)
    assert states(bed) == {"wanted": 3, "ready": 2, "updated": 1}


def test_scaled_down_counts_fewer(bed: Bed) -> None:
    """B091."""
    bed.service(spec={"replicas": 3})
    bed.deployment(3, readyReplicas=3, updatedReplicas=3)
    bed.service(spec={"replicas": 1})
    bed.deployment(1, readyReplicas=1, updatedReplicas=1)
    assert states(bed) == {"wanted": 1, "ready": 1, "updated": 1}


def test_what_the_cluster_has_not_seen_is_not_told(bed: Bed) -> None:
    """B091: unknown is absent, never healthy."""
    bed.service(spec={"replicas": 1})
    bed.deployment(1, generation=2, readyReplicas=1, updatedReplicas=1)
    assert states(bed) == {"wanted": 1, "ready": 1}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, 1),
        ({"replicas": 0}, 0),
        ({"replicas": 4, "suspend": True}, 0),
        ({"autoscaling": {"min": 2, "max": 8}}, 2),
        ({"replicas": "many"}, None),
        ({"autoscaling": {"min": "few"}}, None),
    ],
)
def test_wanted_without_a_deployment(bed: Bed, spec: Any, wanted: int | None) -> None:
    bed.service(spec=spec)
    assert states(bed) == {"ready": 0, "updated": 0, **({} if wanted is None else {"wanted": wanted})}


def test_with_a_scaler_its_number_is_wanted(bed: Bed) -> None:
    """B071."""
    bed.service(spec={"autoscaling": {"min": 1, "max": 8}})
    bed.deployment(5, readyReplicas=1, updatedReplicas=5)
    assert states(bed)["wanted"] == 5


def test_counters_are_there_from_the_start_and_rise(bed: Bed) -> None:
    """B087."""
    bed.service()
    bed.pod("chat-1", 0)
    assert bed.of(operator_metrics.ENGINE_RESTARTS) == {(): 0}
    assert bed.of(operator_metrics.ROLLBACKS) == {(): 0}
    bed.pod("chat-1", 1)
    bed.pod("chat-1", 3)
    bed.counts.rolled_back(CHAT)
    assert bed.of(operator_metrics.ENGINE_RESTARTS) == {(): 3}
    assert bed.of(operator_metrics.ROLLBACKS) == {(): 1}


def test_restarts_of_pods_that_are_gone_stay_counted(bed: Bed) -> None:
    bed.service()
    bed.pod("chat-1", 0)
    bed.pod("chat-1", 2)
    bed.remove("Pod", "chat-1")
    bed.pod("chat-2", 0, uid="u2")
    bed.pod("chat-2", 1, uid="u2")
    assert bed.of(operator_metrics.ENGINE_RESTARTS) == {(): 3}


def test_restarts_before_the_operator_and_of_other_containers_do_not_count(bed: Bed) -> None:
    bed.service()
    bed.pod("chat-1", 7)
    bed.pod("chat-1", 7)
    bed.pod("chat-2", 0, container="other")
    bed.pod("chat-2", 5, container="other")
    bed.pod("chat-1", 9, uid="another pod of this name")
    assert bed.of(operator_metrics.ENGINE_RESTARTS) == {(): 0}


def test_a_service_that_is_deleted_has_no_series_and_begins_anew(bed: Bed) -> None:
    """B091."""
    bed.service()
    bed.pod("chat-1", 0)
    bed.pod("chat-1", 1)
    bed.counts.rolled_back(CHAT)
    bed.remove(names.KIND, "chat")
    assert list(bed.series.samples()) == []
    bed.service()
    assert bed.of(operator_metrics.ROLLBACKS) == {(): 0}
    assert bed.of(operator_metrics.ENGINE_RESTARTS) == {(): 0}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"conditions": READY}, {(): 0.0}),
        ({"conditions": READY, "tightened": {"maxConcurrencySoft": 4}}, {(): 1.0}),
        ({"phase": "nothing is known yet"}, {}),
    ],
)
def test_whether_the_soft_limit_is_held_down(bed: Bed, status: Any, told: Any) -> None:
    bed.service(status=status)
    assert bed.of(operator_metrics.TIGHTENED) == told


def test_conditions_are_told_once_for_each_status(bed: Bed) -> None:
    bed.service(status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
    assert bed.of(operator_metrics.SERVICE_CONDITION) == {
        ("Ready", "True"): 0,
        ("Ready", "False"): 0,
        ("Ready", "Unknown"): 1,
    }


def test_only_what_is_not_as_it_should_be_has_a_reason(bed: Bed) -> None:
    told = (
        ("Ready", "False", "OutOfMemory"),
        ("Available", "True", "Serving"),
        ("Progressing", "False", "Complete"),
        ("Degraded", "False", "AllWell"),
        ("CapacityFit", "Unknown", "NotPlanned"),
        ("MemoryPressure", "True", "AboveQueueLine"),
        ("LossyKV", "True", "Int4"),
    )
    bed.service(status={"conditions": [{"type": t, "status": s, "reason": r} for t, s, r in told]})
    assert bed.of(operator_metrics.SERVICE_REASON) == {
        ("Ready", "OutOfMemory"): 1,
        ("CapacityFit", "NotPlanned"): 1,
        ("MemoryPressure", "AboveQueueLine"): 1,
    }


def evaluation(bed: Bed) -> list[dict[tuple[str, ...], float]]:
    every = (
        operator_metrics.EVALUATION_TIME,
        operator_metrics.EVALUATION_PASSED,
        operator_metrics.EVALUATION_INTERVAL,
    )
    return [bed.of(metric) for metric in every]


def test_evaluation_as_far_as_it_is_known(bed: Bed) -> None:
    scheduled = {"evaluation": {"schedule": "@weekly"}}
    last = {"time": "2026-01-01T00:00:00Z", "passed": False, "intervalSeconds": 604_800}
    bed.service(spec=scheduled, status={"evaluation": last})
    assert evaluation(bed) == [{(): 1_767_225_600.0}, {(): 0.0}, {(): 604_800.0}]
    bed.service(spec=scheduled, status={"evaluation": {"intervalSeconds": 604_800}})
    assert evaluation(bed) == [{}, {}, {(): 604_800.0}]
    bed.service(spec=scheduled, status={"evaluation": None})
    assert evaluation(bed) == [{}, {}, {}]
    bed.service(spec={"evaluation": {"maxKl": 0.1}}, status={"evaluation": last})
    assert evaluation(bed) == [{}, {}, {}]
