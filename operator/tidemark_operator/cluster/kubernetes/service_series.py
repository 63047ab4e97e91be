"""The series of each service, read from the cache at the moment of a scrape: nothing is kept, so nothing outlives its
service (B091). What is not known has no series: it is never told as healthy."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import msgspec

from tidemark_operator import names
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import cache as cache_
from tidemark_operator.cluster.kubernetes import metrics, service_counts
from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.status import conditions

_STATUSES = ("True", "False", "Unknown")


class ServiceSeries:
    """All services of a cache."""

    def __init__(self, cache: cache_.Cache, counts: service_counts.ServiceCounts) -> None:
        self._cache = cache
        self._counts = counts

    def samples(self) -> Iterator[metrics.Sample]:
        """Of every service that there is now."""
        for key, entry in self._cache.entries(names.KIND):
            service = msgspec.json.decode(entry.body, type=_Service)
            deployment = self._deployment(key)
            labels = (key.namespace, key.name)
            yield from _conditions(labels, service.status)
            yield from _replicas(labels, service.spec, deployment)
            yield from _evaluation(labels, service)
            counted = self._counts.of(*labels)
            yield metrics.Sample(operator_metrics.ROLLBACKS.name, labels, counted.rollbacks)
            yield metrics.Sample(operator_metrics.ENGINE_RESTARTS.name, labels, counted.restarts)
            if service.status.conditions:  # before the first pass nothing is known
                tightened = service.status.tightened is not None
                yield metrics.Sample(operator_metrics.TIGHTENED.name, labels, tightened)

    def _deployment(self, service: interface.Key) -> _Deployment | None:
        entry = self._cache.entry(interface.Key("Deployment", service.namespace, names.deployment(service.name)))
        return msgspec.json.decode(entry.body, type=_Deployment) if entry is not None else None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = "Unknown"
    reason: str = ""


class _Evaluation(msgspec.Struct, rename="camel"):
    """`status.evaluation`: the last one."""

    time: str | None = None
    """When it ended, as Kubernetes writes times."""
    passed: bool | None = None
    interval_seconds: float | None = None
    """Longest time between two, by the schedule."""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []
    tightened: Any = None
    evaluation: _Evaluation | None = None


class _Spec(msgspec.Struct):
    """As it was written: it may be one that the operator refuses, so nothing is expected of it."""

    replicas: Any = None
    suspend: Any = False
    autoscaling: Any = None
    evaluation: Any = None


class _Service(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _DeploymentMetadata(msgspec.Struct):
    generation: int = 0


class _DeploymentSpec(msgspec.Struct):
    replicas: int | None = None


class _DeploymentStatus(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0


class _Deployment(msgspec.Struct):
    metadata: _DeploymentMetadata = msgspec.field(default_factory=_DeploymentMetadata)
    spec: _DeploymentSpec = msgspec.field(default_factory=_DeploymentSpec)
    status: _DeploymentStatus = msgspec.field(default_factory=_DeploymentStatus)


def _conditions(labels: tuple[str, str], status: _Status) -> Iterator[metrics.Sample]:
    name = operator_metrics.SERVICE_CONDITION.name
    for condition in status.conditions:
        for value in _STATUSES:
            yield metrics.Sample(name, (*labels, condition.type, value), condition.status == value)
        if condition.reason and conditions.is_bad(condition.type, condition.status):
            yield metrics.Sample(operator_metrics.SERVICE_REASON.name, (*labels, condition.type, condition.reason), 1)


def _replicas(labels: tuple[str, str], spec: _Spec, deployment: _Deployment | None) -> Iterator[metrics.Sample]:
    """Without a Deployment there is no pod, which is known. How many pods have the current spec is not, until the
    cluster's own controller has seen it."""
    found = {"wanted": _wanted(spec, deployment), "ready": 0, "updated": 0}
    if deployment is not None:
        seen = deployment.status.observed_generation >= deployment.metadata.generation
        found |= {
            "ready": deployment.status.ready_replicas,
            "updated": deployment.status.updated_replicas if seen else None,
        }
    for state, count in found.items():
        if count is not None:
            yield metrics.Sample(operator_metrics.REPLICAS.name, (*labels, state), count)


def _wanted(spec: _Spec, deployment: _Deployment | None) -> int | None:
    """As `status.compute` has it: with autoscaling on, the scaler's number, which stands on the Deployment (B071)."""
    if spec.suspend is True:
        return 0
    if isinstance(spec.autoscaling, dict):
        least = spec.autoscaling.get("min", 1)
        on_deployment = deployment.spec.replicas if deployment is not None else None
        return on_deployment if on_deployment is not None else least if isinstance(least, int) else None
    if spec.replicas is None:
        return 1
    return spec.replicas if isinstance(spec.replicas, int) else None


def _evaluation(labels: tuple[str, str], service: _Service) -> Iterator[metrics.Sample]:
    """Only where a schedule asks for them: nobody promised an evaluation elsewhere."""
    if not (isinstance(service.spec.evaluation, dict) and service.spec.evaluation.get("schedule")):
        return
    last = service.status.evaluation or _Evaluation()
    values = {
        operator_metrics.EVALUATION_TIME: _seconds(last.time),
        operator_metrics.EVALUATION_PASSED: last.passed,
        operator_metrics.EVALUATION_INTERVAL: last.interval_seconds,
    }
    for metric, value in values.items():
        if value is not None:
            yield metrics.Sample(metric.name, labels, value)


def _seconds(time: str | None) -> float | None:
    """Since 1970."""
    return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() if time is not None else None
