"""Every number of the rules, with its default and the reason for it. The operator may make one for each service."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator import errors
from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import Language
from tidemark_runtime.contract import metrics

MINUTE, HOUR, DAY = 60, 3_600, 86_400

RUNBOOK_BASE_URL = "http://tidemark.tidemark-system:8080/runbooks"
"""The operator's own, as the chart installs it: there without the internet."""

FASTEST_BURN = 14.4
"""Error budgets for each budget that a month allows. With an objective so low that this share is above 1, the alert
could never fire (B089)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Times are seconds, ratios 0 to 1. Raises `errors.OperatorError` for values with which an alert could not fire."""

    scope: promql.Scope = promql.EVERYTHING
    """Whose series. Every service, and each is told apart by its labels."""
    runbook_base_url: str = RUNBOOK_BASE_URL
    """`runbook_url` is this, `/`, the language, `/`, the name and `.md`."""
    runbook_language: Language = Language.EN
    engine_jobs: str = "tidemark-engine"
    """A regular expression of the `job` of engines."""
    operator_jobs: str = "tidemark-operator"
    """A regular expression of the `job` of operators."""
    with_operator: bool = True
    """False on a site without one (`tidemark serve` alone): `TidemarkOperatorDown` would never end there."""

    availability: float = 0.999
    """Share of accepted requests that do not fail: one of a thousand may."""
    first_token_ratio: float = 0.95
    """Share of first tokens that come within `first_token_seconds`."""
    first_token_seconds: float = 2.5
    """About what a person waits before they doubt that anything happens. An edge of the histogram."""
    inter_token_ratio: float = 0.95
    """Share of further tokens that come within `inter_token_seconds`."""
    inter_token_seconds: float = 0.2
    """Five tokens a second: as fast as people read. An edge of the histogram."""
    traffic_floor_per_second: float = 1 / 60
    """Requests; below one a minute shares are noise, and no share is judged."""
    token_floor_per_second: float = 1.0
    """The same for tokens: about as many requests, of about a hundred tokens."""
    least_bad_events: int = 5
    """So many bad ones within the long window make a burn: a single failure of a quiet night does not."""

    crossed_ratio: float = 0.5
    """A line was crossed for this share of five minutes: what flickers is not pressure."""
    queue_line_for: int = 10 * MINUTE
    preempt_line_for: int = 5 * MINUTE
    pressure_keep: int = 5 * MINUTE
    """Hysteresis of alerts about lines, beside the engine's own `watermarks.hysteresis`."""
    drowning_ratio: float = 1.0
    """Share of the pages that use is predicted to reach,"""
    drowning_seconds: int = 15 * MINUTE
    """... within this time, from its slope over the same time before."""
    storm_ratio: float = 0.05
    """Preemptions for each request,"""
    storm_least: int = 10
    """... and so many within 15 minutes."""
    tightened_for: int = HOUR
    """The limit of running requests is held down for so long: it was meant for peaks."""
    prefix_fall_ratio: float = 0.5
    """Share of the hit rate's own average of a week, below which it has fallen,"""
    prefix_least_ratio: float = 0.1
    """... where that average was so high that its loss is felt."""
    plan_excess_ratio: float = 0.1
    """Measured memory over the plan: the plan is right within a few percent."""

    queue_wait_seconds: float = 5.0
    """Most wait for a first turn, of 95 of 100. An edge of the histogram."""
    oldest_wait_seconds: float = 60.0
    """Nobody should wait longer for a turn."""
    refused_ratio: float = 0.05
    """Requests refused because there is too much to do."""
    retried_ratio: float = 0.2
    """Requests that were tried before: a fifth is how a storm begins."""

    stalled_seconds: int = 5 * MINUTE
    """Work, and not one token."""
    restarts_per_hour: int = 3

    device_celsius: float = 85.0
    """Cards for data centres slow themselves down from about 90 °C on (each has its own limit, which `nvidia-smi -q -d
    TEMPERATURE` shows); five below, while there is time."""
    device_growth_bytes_per_hour: float = 64 * 1024 * 1024
    """Of a card's memory in use, over six hours. All that an engine takes, it takes at its start."""

    certificate_warning_seconds: int = 21 * DAY
    """Three weeks: longer than most take to get a new one from their own authority."""
    certificate_critical_seconds: int = 3 * DAY
    key_warning_seconds: int = 7 * DAY
    """Before an API key ends that has an end."""
    overdue_ratio: float = 1.5
    """Age of the last evaluation over the longest time between two by its schedule: one was missed."""

    reconcile_failed_ratio: float = 0.1
    reconcile_seconds: float = 10.0
    """Most time of a pass, of 99 of 100. An edge of the histogram."""
    watch_seconds: float = 300.0
    """Every kind is heard of, or listed, far more often."""

    def __post_init__(self) -> None:
        for key, edges in (
            ("first_token_seconds", metrics.FIRST_TOKEN.buckets),
            ("inter_token_seconds", metrics.INTER_TOKEN.buckets),
            ("queue_wait_seconds", metrics.QUEUE_WAIT.buckets),
        ):
            _check_edge(key, getattr(self, key), edges)
        for key in ("availability", "first_token_ratio", "inter_token_ratio"):
            _check_objective(key, getattr(self, key))
        for key in ("crossed_ratio", "refused_ratio", "retried_ratio", "reconcile_failed_ratio", "prefix_least_ratio"):
            _check_share(key, getattr(self, key))
        if not 0 < self.certificate_critical_seconds < self.certificate_warning_seconds:
            raise errors.OperatorError(
                f"certificate_critical_seconds: got {self.certificate_critical_seconds!r}, expected more than 0 and "
                f"less than certificate_warning_seconds ({self.certificate_warning_seconds!r})"
            )


def _check_edge(key: str, value: float, edges: tuple[float, ...]) -> None:
    """A quantile or a share is exact at an edge of the histogram only (B083)."""
    if value not in edges:
        listed = ", ".join(promql.number(edge) for edge in edges)
        raise errors.OperatorError(f"{key}: got {value!r}, expected an edge of the histogram: one of {listed}")


def _check_share(key: str, value: float) -> None:
    if not 0 <= value < 1:
        raise errors.OperatorError(
            f"{key}: got {value!r}, expected 0 or more and less than 1: a share is never above 1, so the alert could "
            "never fire"
        )


def _check_objective(key: str, value: float) -> None:
    least = 1 - 1 / FASTEST_BURN
    if not least < value < 1:
        raise errors.OperatorError(
            f"{key}: got {value!r}, expected more than {least:.3f} and less than 1: "
            f"{FASTEST_BURN:g} times the share that may be bad must be below 1, or the alert could never fire"
        )
