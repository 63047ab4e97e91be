"""How much of the period Prometheus knows, and what to say where it knows nothing of it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from tidemark_operator import errors, prometheus
from tidemark_operator.reporting import figures, queries
from tidemark_operator.reporting import period as period_

GAP_SECONDS = 3 * queries.LOOK_BACK_SECONDS
"""Shorter spans without samples are counted and not listed."""
_SEARCHED_SECONDS = 3 * 366 * period_.DAY_SECONDS
"""How far back, and ahead, samples are looked for where the period has none."""
_SEARCHED_STEP = 2 * period_.DAY_SECONDS
_HOUR = 3600
_UNITS = (("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800), ("y", 31_536_000))


class NoSamples(errors.OperatorError):
    """Prometheus has nothing of the period, or no longer: the message says since when it has."""


def find(
    source: prometheus.Prometheus, period: period_.Period, matchers: Sequence[str]
) -> tuple[float, tuple[figures.Gap, ...], float]:
    """Share of the period's moments, five minutes apart, at which an engine was scraped; spans without; the first."""
    step = queries.LOOK_BACK_SECONDS
    start = period.start + step  # a sample is found for five minutes after it: so each moment speaks of those before it
    found = source.range(queries.present(matchers), start, period.end, step)
    moments = sorted(at for series in found for at, value in series.points if value > 0)
    if not moments:
        raise NoSamples(_none(source, period, matchers))
    expected = max(1, math.floor((period.end - start) / step + 1e-9) + 1)
    edges = [period.start, *moments, period.end + step]
    gaps = [
        figures.Gap(before, min(after - step, period.end))
        for before, after in itertools.pairwise(edges)
        if after - before - step >= GAP_SECONDS
    ]
    return min(1.0, len(moments) / expected), tuple(gaps), moments[0] - step


def _none(source: prometheus.Prometheus, period: period_.Period, matchers: Sequence[str]) -> str:
    """Why there is nothing, with what there is."""
    there = f"{source.url}: no sample of {queries.select(queries.PRESENCE, matchers)} from "
    there += f"{period.moment(period.start)} to {period.moment(period.end)}"
    start, end = period.start - _SEARCHED_SECONDS, period.end + _SEARCHED_SECONDS
    moments = _moments(source, start, end, _SEARCHED_STEP)
    if not moments:
        return (
            f"{there}, nor at any other time. Does this Prometheus scrape engines, and is it the right one? "
            "docs/operations/alerts.md says how they are scraped"
        )
    kept = source.retention()
    keeps = f", and it keeps {kept}" if kept else ""
    filtered = " of any engine" if matchers else ""
    first = (_moments(source, moments[0] - _SEARCHED_STEP, moments[0], _HOUR) or moments)[0] - _HOUR
    last = (_moments(source, moments[-1] - _SEARCHED_STEP, moments[-1], _HOUR) or moments)[-1]
    return (
        f"{there}. The first sample{filtered} is of {period.moment(first)}, the last of {period.moment(last)}, to the "
        f"hour{keeps}. Ask for a period between them"
    )


def _moments(source: prometheus.Prometheus, start: float, end: float, step: float) -> list[float]:
    """Ends of the windows in which there is a sample; windows lie side by side."""
    series = source.range(queries.any_within(step), start, end, step)
    return sorted(at for each in series for at, _ in each.points)


def refuse_forgotten(source: prometheus.Prometheus, period: period_.Period, first: float, now: float) -> None:
    """Refuses a period that begins before what is kept: its figures would be too small, and look right."""
    if first - period.start < period_.DAY_SECONDS:
        return
    kept = source.retention()
    seconds = _seconds(kept)
    if kept is None or seconds is None or now - seconds <= period.start:
        return
    raise NoSamples(
        f"{source.url}: it keeps {kept}, and the period begins before that, on {period.day(period.start)}. The first "
        f"sample is of {period.moment(first)}. Ask for a period that begins then (--from "
        f"{_first_day(period, first, now)}), and keep more from now on: "
        "--storage.tsdb.retention.time=400d of Prometheus"
    )


def _first_day(period: period_.Period, first: float, now: float) -> str:
    """The first whole day that Prometheus has; where there is none before `now` yet, the moment of the first sample."""
    day = period.day(first + period_.DAY_SECONDS)
    return day if day <= period.day(now - period_.DAY_SECONDS) else period.moment(first).replace(" ", "T")


def _seconds(kept: str | None) -> float | None:
    """Of `15d`, `1w2d`, `90d or 50GiB`."""
    parts = re.findall(r"(\d+)([smhdwy])", (kept or "").partition(" or ")[0])
    return sum(int(count) * dict(_UNITS)[unit] for count, unit in parts) or None
