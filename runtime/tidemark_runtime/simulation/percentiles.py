"""Percentiles of many values: exact where a request gives one value, within 1 % where a token does."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

SHARES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """In the unit of the values; of nothing all are 0."""

    num: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class Values:
    """Keeps every value. The percentile p is the smallest value that at least that share of all does not exceed."""

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, value: float) -> None:
        self._values.append(value)

    def extend(self, others: Values) -> None:
        self._values.extend(others._values)

    def percentiles(self) -> Percentiles:
        values = sorted(self._values)
        if not values:
            return Percentiles()
        found = [values[max(0, math.ceil(share * len(values)) - 1)] for share in SHARES]
        return _named(len(values), math.fsum(values) / len(values), found, values[-1])

    def curve(self, num_points: int) -> list[tuple[float, float]]:
        """(value, share of all values that do not exceed it), rising, about so many points of them."""
        values = sorted(self._values)
        step = max(1, len(values) // num_points)
        picked = [*range(0, len(values) - 1, step), len(values) - 1] if values else []
        return [(values[index], (index + 1) / len(values)) for index in picked]


class Histogram:
    """Counts values in buckets that grow by 2 %, so that a percentile is within 1 %; a value under a microsecond is
    counted as one. Memory does not grow with the number of values."""

    _GROWTH = math.log(1.02)
    _LEAST = 1e-6

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._sum = 0.0
        self._max = 0.0
        self._last = -1.0
        self._last_bucket = 0

    def add(self, value: float) -> None:
        if value != self._last:  # in a step, most sequences have waited equally long for their token
            self._last = value
            self._last_bucket = math.floor(math.log(max(value, self._LEAST)) / self._GROWTH)
            if value > self._max:
                self._max = value
        self._sum += value
        self._counts[self._last_bucket] = self._counts.get(self._last_bucket, 0) + 1

    def extend(self, others: Histogram) -> None:
        for bucket, count in others._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self._sum += others._sum
        self._max = max(self._max, others._max)
        self._last = -1.0

    def percentiles(self) -> Percentiles:
        num = sum(self._counts.values())
        if not num:
            return Percentiles()
        found = [min(self._max, self._value_at(math.ceil(share * num))) for share in SHARES]
        return _named(num, self._sum / num, found, self._max)

    def _value_at(self, rank: int) -> float:
        """The middle of the bucket in which the value of this rank is."""
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return math.exp((bucket + 0.5) * self._GROWTH)
        return self._max


class TimeAverage:
    """Of something that keeps a value for a while."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._seconds = 0.0
        self.peak = 0.0

    def add(self, value: float, seconds: float) -> None:
        self._sum += value * seconds
        self._seconds += seconds
        if value > self.peak:
            self.peak = value

    @property
    def mean(self) -> float:
        """0 before any time has passed."""
        return self._sum / self._seconds if self._seconds else 0.0


def _named(num: int, mean: float, found: list[float], largest: float) -> Percentiles:
    p50, p90, p95, p99 = found
    return Percentiles(num=num, mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=largest)
