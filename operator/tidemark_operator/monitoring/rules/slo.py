"""Burn rates: how many times faster than allowed the error budget is used, over several windows at once.

The windows and factors are those of Google's SRE workbook, chapter 5. A floor of traffic and of bad events is added,
since a share of three requests says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import About, Group, RecordingRule
from tidemark_operator.monitoring.rules.thresholds import DAY, FASTEST_BURN, HOUR, MINUTE, Thresholds
from tidemark_runtime.contract import metrics

BAD_OUTCOMES = ("failed", "timeout")
"""It was accepted, and the service broke its word. Refusals have an alert of their own, the rest is the client's."""
JUDGED_OUTCOMES = ("stop", "length", *BAD_OUTCOMES)

SHORT_WINDOWS = (5 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR)
LONG_WINDOWS = (6 * HOUR, DAY, 3 * DAY)
LONG_INTERVAL = 2 * MINUTE
"""Between evaluations of the long windows, which read much: still within the five minutes of Prometheus' look-back."""


AVAILABILITY, FIRST_TOKEN, INTER_TOKEN = "availability", "first_token", "inter_token"
"""Values of the label `slo`."""


@dataclass(frozen=True, slots=True)
class Slo:
    """What is promised of which events."""

    name: str
    objective: float
    """Share of events that must be good."""

    @property
    def budget(self) -> float:
        """Share of events that may be bad."""
        return 1 - self.objective


@dataclass(frozen=True, slots=True)
class Burn:
    """The budget burns `factor` times too fast over both windows."""

    factor: float
    long_seconds: int
    short_seconds: int


FAST = (Burn(FASTEST_BURN, HOUR, 5 * MINUTE), Burn(6, 6 * HOUR, 30 * MINUTE))
"""2 % of a month's budget in an hour, or 5 % in six: somebody gets up."""
SLOW = (Burn(3, DAY, 2 * HOUR), Burn(1, 3 * DAY, 6 * HOUR))
"""10 % in a day, or in three: somebody looks at it today."""


def slos(thresholds: Thresholds) -> tuple[Slo, ...]:
    """All that is promised."""
    return (
        Slo(AVAILABILITY, thresholds.availability),
        Slo(FIRST_TOKEN, thresholds.first_token_ratio),
        Slo(INTER_TOKEN, thresholds.inter_token_ratio),
    )


def bad_share(seconds: int) -> str:
    """Name of the series with the share of bad events over a window."""
    return f"service:tidemark_slo_bad:ratio_rate{promql.duration(seconds)}"


def event_rate(seconds: int) -> str:
    """Name of the series with all events a second over a window."""
    return f"service:tidemark_slo_events:rate{promql.duration(seconds)}"


def burning(thresholds: Thresholds, slo: Slo, burns: tuple[Burn, ...]) -> str:
    """The expression of an alert; its value is the share of bad events over the long window."""
    return "\nor\n".join(_burn(thresholds, slo, burn) for burn in burns)


def _burn(thresholds: Thresholds, slo: Slo, burn: Burn) -> str:
    def of(name: str) -> str:
        return thresholds.scope.select(name, f'slo="{slo.name}"')

    limit = promql.number(burn.factor * slo.budget)
    floor = thresholds.token_floor_per_second if slo.name == INTER_TOKEN else thresholds.traffic_floor_per_second
    share, events = of(bad_share(burn.long_seconds)), of(event_rate(burn.long_seconds))
    return "\n".join(
        [
            f"({share} > {limit}",
            f"  and {of(bad_share(burn.short_seconds))} > {limit}",
            f"  and {events} > {promql.number(floor)}",
            f"  and {share} * {events} * {burn.long_seconds} >= {thresholds.least_bad_events})",
        ]
    )


def groups(thresholds: Thresholds) -> tuple[Group, ...]:
    """What the alerts compare: bad share and rate of every promise over every window."""
    return (
        Group(name="tidemark-slo", about=About.SERVICE, recording=_windows(thresholds, SHORT_WINDOWS)),
        Group(
            name="tidemark-slo-long",
            about=About.SERVICE,
            recording=_windows(thresholds, LONG_WINDOWS),
            interval_seconds=LONG_INTERVAL,
        ),
    )


def _windows(thresholds: Thresholds, windows: tuple[int, ...]) -> tuple[RecordingRule, ...]:
    return tuple(
        rule for slo in slos(thresholds) for seconds in windows for rule in _recorded(thresholds, slo.name, seconds)
    )


def _recorded(thresholds: Thresholds, slo: str, seconds: int) -> tuple[RecordingRule, RecordingRule]:
    bad, events = _rates(thresholds, slo, seconds)
    labels = (("slo", slo),)
    return (
        RecordingRule(record=event_rate(seconds), expr=events, labels=labels, help="Events that are judged, a second."),
        RecordingRule(
            record=bad_share(seconds),
            expr=f"({bad}) / ({events} > 0)",
            labels=labels,
            help="Share of them that is bad",
        ),
    )


def _rates(thresholds: Thresholds, slo: str, seconds: int) -> tuple[str, str]:
    """Bad events and all events, a second."""
    scope = thresholds.scope
    if slo == AVAILABILITY:
        return (
            scope.total_rate(metrics.REQUESTS.name, seconds, promql.one_of("outcome", BAD_OUTCOMES)),
            scope.total_rate(metrics.REQUESTS.name, seconds, promql.one_of("outcome", JUDGED_OUTCOMES)),
        )
    histogram, edge = {
        FIRST_TOKEN: (metrics.FIRST_TOKEN.name, thresholds.first_token_seconds),
        INTER_TOKEN: (metrics.INTER_TOKEN.name, thresholds.inter_token_seconds),
    }[slo]
    every = scope.total_rate(f"{histogram}_count", seconds)
    good = scope.total_rate(f"{histogram}_bucket", seconds, promql.bucket_edge(edge))
    return f"{every} - {good}", every
