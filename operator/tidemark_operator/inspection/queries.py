"""Pieces of the queries that several checks need. Every selector is made by a `Scope`, as those of the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark_operator.inspection.check import DAY, MONTH, WEEK, Query
from tidemark_operator.monitoring.rules import promql
from tidemark_runtime.contract import metrics

BY = promql.by(promql.SERVICE)
STEP = "5m"
"""Between the moments of a long window that are looked at."""
_WEEK, _MONTH = promql.duration(WEEK), promql.duration(MONTH)


def share_of_time(name: str, seconds: int, labels: Sequence[str]) -> Callable[[promql.Scope], str]:
    """Of a counter of seconds: its rise over a time, as a share of that time, of the worst engine."""
    window = promql.duration(seconds)
    by = promql.by((*promql.SERVICE, *labels))
    return lambda scope: f"max by {by} (rate({scope.select(name)}[{window}]))"


def rise(name: str, seconds: int, *matchers: str, labels: Sequence[str] = promql.SERVICE) -> Callable[..., str]:
    """By how much a counter rose."""
    return lambda scope: scope.total_rise(name, seconds, *matchers, labels=labels)


def worst(name: str, seconds: int, over: str = "max_over_time") -> Callable[[promql.Scope], str]:
    """Of a gauge: `over` a time, of the worst engine."""
    return lambda scope: f"max by {BY} ({over}({scope.select(name)}[{promql.duration(seconds)}]))"


def average(recorded: str) -> Callable[[promql.Scope], str]:
    """Of a recorded series over a week, without the moments at which it is not a number."""
    return lambda scope: f"avg_over_time(({scope.select(recorded)} >= 0)[{_WEEK}:{STEP}])"


def total(scope: promql.Scope, name: str, seconds: int, offset: int = 0) -> str:
    """The rise of a counter over a time that ended `offset` seconds ago."""
    back = f" offset {promql.duration(offset)}" if offset else ""
    return f"sum by {BY} (increase({scope.select(name)}[{promql.duration(seconds)}]{back}))"


def last_week_and_month_before(
    name: str, recorded: str, busy: str, raw: Callable[[promql.Scope, str, str], str]
) -> tuple[Query, Query]:
    """The same figure of the last week and of the four weeks before it, over the moments at which `recorded` is `busy`
    (a comparison, which also drops what is not a number). From `recorded` where that covers both, else
    `raw(scope, window, offset)`: two figures of two kinds cannot be compared."""

    def now(scope: promql.Scope) -> str:
        series = scope.select(recorded)
        covered = f"last_over_time({series}[{_MONTH}] offset {_WEEK})"
        return f"avg_over_time(({series} {busy})[{_WEEK}:{STEP}]) and on {BY} {covered}"

    def before(scope: promql.Scope) -> str:
        return f"avg_over_time(({scope.select(recorded)} {busy})[{_MONTH}:{STEP}] offset {_WEEK})"

    return (
        Query(f"{name}_last_week", now, lambda scope: raw(scope, _WEEK, "")),
        Query(f"{name}_month_before", before, lambda scope: raw(scope, _MONTH, f" offset {_WEEK}")),
    )


A_MONTH_AGO = Query(
    "a_month_ago",
    lambda scope: (
        f"count by {BY} (present_over_time({scope.select(metrics.RUNNING.name)}"
        f"[{promql.duration(2 * DAY)}] offset {promql.duration(MONTH + WEEK - 2 * DAY)}))"
    ),
)
"""Whether Prometheus reaches back as far as the month before the last week: it keeps 15 days by default."""
