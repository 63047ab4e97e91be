"""What the operator exports. Dashboards and alerts read the table; the families are made from it and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType
from typing import NamedTuple

import prometheus_client
from prometheus_client import core, registry

from tidemark_runtime.contract import metrics as contract

_Kind = contract.Kind
_PREFIX = f"{contract.PREFIX}operator_"

RECONCILES = f"{_PREFIX}reconciles_total"
RECONCILE_DURATION = f"{_PREFIX}reconcile_duration_seconds"
QUEUE_DEPTH = f"{_PREFIX}queue_depth"
WATCH_AGE = f"{_PREFIX}watch_age_seconds"
API_REQUESTS = f"{_PREFIX}api_requests_total"
EVENTS_DROPPED = f"{_PREFIX}events_dropped_total"
LEADER = f"{_PREFIX}leader"
CACHED_OBJECTS = f"{_PREFIX}cached_objects"
SERVICE_CONDITION = f"{_PREFIX}service_condition"

_DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

TABLE: tuple[contract.Metric, ...] = (
    contract.Metric(API_REQUESTS, _Kind.COUNTER, "Requests to the API server; code 0: no answer.", "requests",
                    ("verb", "kind", "code")),
    contract.Metric(CACHED_OBJECTS, _Kind.GAUGE, "Objects held in memory.", "objects", ("kind",)),
    contract.Metric(EVENTS_DROPPED, _Kind.COUNTER, "Events that were not recorded, by reason.", "events", ("reason",)),
    contract.Metric(LEADER, _Kind.GAUGE, "1 in the process that holds the lease and works, 0 in one that waits.", ""),
    contract.Metric(QUEUE_DEPTH, _Kind.GAUGE, "Services that wait for a pass, those of a later time included.",
                    "services"),
    contract.Metric(RECONCILE_DURATION, _Kind.HISTOGRAM, "One pass over one service.", "seconds",
                    buckets=_DURATION_BUCKETS),
    contract.Metric(RECONCILES, _Kind.COUNTER, "Passes, by result: done, gone, failed.", "passes", ("result",)),
    contract.Metric(SERVICE_CONDITION, _Kind.GAUGE,
                    "1 for the value that a condition of a service has, 0 for the two it has not.", "",
                    ("namespace", "service", "condition", "status")),
    contract.Metric(WATCH_AGE, _Kind.GAUGE, "Since a watch of this kind was last known to work.", "seconds",
                    ("kind",)),
)  # fmt: skip
"""Sorted by name."""

STATUSES = ("True", "False", "Unknown")


class ServiceCondition(NamedTuple):
    """One condition of one service."""

    namespace: str
    service: str
    condition: str
    status: str


class Metrics:
    """One operator's families in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry.CollectorRegistry()
        rows = {row.name: row for row in TABLE}
        self._counters = MappingProxyType(
            {name: _counter(rows[name], self.registry) for name in (RECONCILES, API_REQUESTS, EVENTS_DROPPED)}
        )
        duration = rows[RECONCILE_DURATION]
        self._duration = prometheus_client.Histogram(
            duration.name, duration.help, buckets=duration.buckets, registry=self.registry
        )
        self.leader = prometheus_client.Gauge(LEADER, rows[LEADER].help, registry=self.registry)
        self._conditions: Callable[[], Iterable[ServiceCondition]] | None = None

    def requested(self, verb: str, kind: str, code: int) -> None:
        """`code` 0: no answer."""
        self._counters[API_REQUESTS].labels(verb, kind, str(code)).inc()

    def reconciled(self, result: str, seconds: float) -> None:
        """One pass is over."""
        self._counters[RECONCILES].labels(result).inc()
        self._duration.observe(seconds)

    def event_dropped(self, reason: str) -> None:
        self._counters[EVENTS_DROPPED].labels(reason).inc()

    def exposition(self) -> bytes:
        """What `/metrics` answers."""
        return bytes(prometheus_client.generate_latest(self.registry)) + self._condition_lines()

    def read_at_scrape(self, name: str, read: Callable[[], Iterable[tuple[tuple[str, ...], float]]]) -> None:
        """Export the gauge `name` with the label values and numbers that `read` gives at the moment of a scrape."""
        row = next(row for row in TABLE if row.name == name)
        self.registry.register(_AtScrape(row, read))

    def conditions_at_scrape(self, read: Callable[[], Iterable[ServiceCondition]]) -> None:
        """Export the conditions that `read` gives; a service that is gone has no series any more (B091)."""
        self._conditions = read

    def _condition_lines(self) -> bytes:
        """Written by hand: a thousand services have twenty thousand series. The library takes ten times as long, about
        half a second, and for so long no lease is renewed and no change is seen."""
        if self._conditions is None:
            return b""
        help_ = next(row.help for row in TABLE if row.name == SERVICE_CONDITION)
        lines = [f"# HELP {SERVICE_CONDITION} {help_}\n# TYPE {SERVICE_CONDITION} gauge\n"]
        for namespace, service, condition, found in self._conditions():
            labels = (
                f'namespace="{_escaped(namespace)}",service="{_escaped(service)}",condition="{_escaped(condition)}"'
            )
            lines += [
                f'{SERVICE_CONDITION}{{{labels},status="{status}"}} {float(found == status)}\n' for status in STATUSES
            ]
        return "".join(lines).encode()


def _escaped(value: str) -> str:
    """A label's value in the text format."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class _AtScrape(registry.Collector):
    """A gauge without memory."""

    def __init__(self, row: contract.Metric, read: Callable[[], Iterable[tuple[tuple[str, ...], float]]]) -> None:
        self._row = row
        self._read = read

    def collect(self) -> Iterator[core.Metric]:
        family = core.GaugeMetricFamily(self._row.name, self._row.help, labels=self._row.labels)
        for labels, value in self._read():
            family.add_metric(labels, value)
        yield family


def _counter(row: contract.Metric, into: registry.CollectorRegistry) -> prometheus_client.Counter:
    return prometheus_client.Counter(row.name.removesuffix("_total"), row.help, row.labels, registry=into)
