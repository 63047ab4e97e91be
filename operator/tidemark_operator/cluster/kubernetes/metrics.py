"""What the operator exports: the families of `monitoring.operator_metrics` and nothing else, as Prometheus' text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType
from typing import NamedTuple

import prometheus_client
from prometheus_client import core, registry

from tidemark_operator.monitoring import operator_metrics as table
from tidemark_runtime.contract import metrics as contract

RESULTS = ("done", "gone", "failed")
"""Of a pass."""
DROPPED_REASONS = ("rate", "queue", "refused", "failed")
"""Why an event was not recorded."""

_LINES = MappingProxyType(
    {
        row.name: row.name + "{" + ",".join([f'{label}="%s"' for label in row.labels]) + "} %s\n"
        for row in table.OF_SERVICE
    }
)
"""Templates of one sample."""


class Sample(NamedTuple):
    """One value of a series about a service."""

    name: str
    labels: tuple[str, ...]
    """Values, in the order of the table's labels."""
    value: float


class Metrics:
    """One operator's families in a registry of their own."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry.CollectorRegistry()
        self._api_requests = _counter(table.API_REQUESTS, self.registry)
        self._events_dropped = _counter(table.EVENTS_DROPPED, self.registry)
        self._reconciles = _counter(table.RECONCILES, self.registry)
        for result in RESULTS:  # the first failure is a rise only where there was a 0 before (B087)
            self._reconciles.labels(result)
        for reason in DROPPED_REASONS:
            self._events_dropped.labels(reason)
        self._duration = prometheus_client.Histogram(
            table.RECONCILE_DURATION.name,
            table.RECONCILE_DURATION.help,
            buckets=table.RECONCILE_DURATION.buckets,
            registry=self.registry,
        )
        self.leader = prometheus_client.Gauge(table.LEADER.name, table.LEADER.help, registry=self.registry)
        self._services: Callable[[], Iterable[Sample]] | None = None

    def requested(self, verb: str, kind: str, code: int) -> None:
        """`code` 0: no answer."""
        self._api_requests.labels(verb, kind, str(code)).inc()

    def reconciled(self, result: str, seconds: float) -> None:
        """One pass is over."""
        self._reconciles.labels(result).inc()
        self._duration.observe(seconds)

    def event_dropped(self, reason: str) -> None:
        self._events_dropped.labels(reason).inc()

    def exposition(self) -> bytes:
        """What `/metrics` answers."""
        return bytes(prometheus_client.generate_latest(self.registry)) + self._service_lines()

    def read_at_scrape(self, row: contract.Metric, read: Callable[[], Iterable[tuple[tuple[str, ...], float]]]) -> None:
        """Export a gauge with the label values and numbers that `read` gives at the moment of a scrape."""
        self.registry.register(_AtScrape(row, read))

    def services_at_scrape(self, read: Callable[[], Iterable[Sample]]) -> None:
        """Export the series of services that `read` gives; a service that is gone has none any more (B091)."""
        self._services = read

    def _service_lines(self) -> bytes:
        """Written by hand: a thousand services have thirty thousand series, which take a tenth of a second so. The
        library takes several times as long, and meanwhile no lease is renewed and no change is seen."""
        if self._services is None:
            return b""
        lines: dict[str, list[str]] = {
            row.name: [f"# HELP {row.name} {row.help}\n# TYPE {row.name} {row.kind.value}\n"]
            for row in table.OF_SERVICE
        }
        escaped = _Escaped()
        for name, values, value in self._services():
            lines[name].append(_LINES[name] % (*[escaped[text] for text in values], float(value)))
        return "".join(["".join(family) for family in lines.values()]).encode()


class _Escaped(dict[str, str]):
    """Values of labels as the text format has them. The same few names come back thousands of times in one scrape."""

    def __missing__(self, value: str) -> str:
        found = self[value] = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        return found


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
