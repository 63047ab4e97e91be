"""Asks Prometheus for everything a report needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_operator import errors, prometheus
from tidemark_operator.reporting import coverage as coverage_
from tidemark_operator.reporting import figures, pictures, queries
from tidemark_operator.reporting import period as period_

LEAST_PART_SECONDS = period_.DAY_SECONDS
"""A shorter part of the period is not asked for by itself: then Prometheus is too small for its own data."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Total:
    """One quantity over the whole period."""

    values: Mapping[Labels, float]
    """Empty where there was no sample."""
    query: str
    """As it was sent, and when; of several parts the first, and how many there were."""

    def total(self) -> float | None:
        """None where there is nothing."""
        return math.fsum(self.values.values()) if self.values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All answers."""

    totals: Mapping[str, Total]
    """By the name of the quantity."""
    peak_devices: Total
    peak_running_per_device: Total
    curves: Mapping[str, tuple[figures.Curve, ...]]
    coverage: float
    gaps: tuple[figures.Gap, ...]
    first_sample: float
    scrape_seconds: float
    """Mean interval between samples of one engine."""
    num_parts: int
    """Into how many parts the largest question had to be cut."""


def read(source: prometheus.Prometheus, period: period_.Period, now: float, matchers: Sequence[str] = ()) -> Reading:
    """`matchers`: PromQL that every series must match. Raises `coverage.NoSamples` and `errors.PrometheusError`."""
    coverage, gaps, first = coverage_.find(source, period, matchers)
    coverage_.refuse_forgotten(source, period, first, now)
    answers = {each.name: _total(source, each, period, matchers) for each in queries.QUANTITIES}
    totals = {name: total for name, (total, _) in answers.items()}
    scrape = _interval(totals)
    window = max(queries.LOOK_BACK_SECONDS, math.ceil(4 * scrape / 60) * 60)
    curves = pictures.curves(source, period, matchers, window)
    return Reading(
        totals=totals,
        peak_devices=_peak(curves["devices"]),
        peak_running_per_device=_peak(curves.pop("running")),
        curves={name: tuple(each for each, _ in found) for name, found in curves.items()},
        coverage=coverage,
        gaps=gaps,
        first_sample=first,
        scrape_seconds=scrape,
        num_parts=max(count for _, count in answers.values()),
    )


def _total(
    source: prometheus.Prometheus, quantity: queries.Quantity, period: period_.Period, matchers: Sequence[str]
) -> tuple[Total, int]:
    """In one question, or in as many parts as it takes."""
    parts: list[str] = []
    values: dict[Labels, float] = {}

    def ask(start: float, end: float) -> None:
        query = quantity.query(end - start, matchers)
        try:
            samples = source.instant(query, end)
        except errors.PrometheusRefused as error:
            if error.kind != error.TOO_MUCH or end - start < 2 * LEAST_PART_SECONDS:
                raise
            middle = start + (end - start) // (2 * period_.DAY_SECONDS) * period_.DAY_SECONDS
            ask(start, middle)
            ask(middle, end)
            return
        parts.append(f"{query} (time={end:.0f})")
        for sample in samples:
            if math.isfinite(sample.value):
                key = tuple(sorted(sample.labels.items()))
                values[key] = values.get(key, 0.0) + sample.value

    ask(period.start, period.end)
    more = f" (the last of {len(parts)} parts)" if len(parts) > 1 else ""
    return Total(values, parts[-1] + more), len(parts)


def _interval(totals: Mapping[str, Total]) -> float:
    """Between two samples of one engine, from how many there are in the time it was there."""
    samples, seconds = totals["engine_samples"].total(), totals["engine_seconds"].total()
    return seconds / samples if samples and seconds else float(queries.LOOK_BACK_SECONDS)


def _peak(found: Sequence[pictures.Asked]) -> Total:
    curve, query = found[0]
    known = [value for _, value in curve.points if value is not None]
    return Total({(): max(known)} if known else {}, query)
