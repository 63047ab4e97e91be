"""Counters and histograms for one thread: what the event loop counts for every token must cost next to nothing.

The client library's own take a lock, and look through the bounds one by one, for each number; here a number is added to
a list. They are turned into the library's families at the scrape (`benchmarks/instrumentation.py` has what that saves).
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator

from prometheus_client import core, registry, utils

from tidemark_runtime.contract import metrics as names


class Count:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class Counter(registry.Collector):
    """A family. A series begins with the first `labels` of its values; where there are no labels, at once."""

    def __init__(self, metric: names.Metric) -> None:
        self._metric = metric
        self._series: dict[tuple[str, ...], Count] = {}
        if not metric.labels:
            self.labels()

    def labels(self, *values: str) -> Count:
        """The series of these values, to keep where it is needed often."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Count()
        return found

    def total(self, value: str) -> float:
        """Of all series whose last label has this value."""
        return sum(series.value for values, series in self._series.items() if values[-1] == value)

    def collect(self) -> Iterator[core.Metric]:
        metric = self._metric
        family = core.CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
        for values, series in self._series.items():
            family.add_metric(values, series.value)
        yield family


class Total(registry.Collector):
    """A family without labels: the sum of those series of another whose last label has a value."""

    def __init__(self, metric: names.Metric, parts: Counter, value: str) -> None:
        self._metric = metric
        self._parts = parts
        self._value = value

    def collect(self) -> Iterator[core.Metric]:
        total = self._parts.total(self._value)
        yield core.CounterMetricFamily(self._metric.name.removesuffix("_total"), self._metric.help, value=total)


class Spread:
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of each bucket alone; the last one has no bound."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """A value that equals a bound is within it, as Prometheus wants it (`le`)."""
        self.counts[bisect.bisect_left(self._bounds, value)] += 1
        self.total += value


class Histogram(registry.Collector):
    """A family, as `Counter` is one."""

    def __init__(self, metric: names.Metric) -> None:
        self._metric = metric
        self._edges = [_edge(bound) for bound in (*metric.buckets, math.inf)]
        self._series: dict[tuple[str, ...], Spread] = {}
        if not metric.labels:
            self.labels()

    def labels(self, *values: str) -> Spread:
        """As `Counter.labels`."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Spread(self._metric.buckets)
        return found

    def collect(self) -> Iterator[core.Metric]:
        family = core.HistogramMetricFamily(self._metric.name, self._metric.help, labels=self._metric.labels)
        for values, series in self._series.items():
            buckets = list(zip(self._edges, itertools.accumulate(series.counts), strict=True))
            family.add_metric(values, buckets, series.total)
        yield family


def _edge(bound: float) -> str:
    """As the library writes it: `1.0`, `+Inf`."""
    return str(utils.floatToGoString(bound))  # type: ignore[no-untyped-call]
