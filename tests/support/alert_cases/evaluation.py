"""Evaluations. In a unit test of rules the clock starts at 0."""

from __future__ import annotations

from alert_cases import made
from alert_cases.made import Case, fires, flat, merged, told


def _last(ended: made.Values, interval: float = 1200) -> made.Series:
    return merged(
        told("evaluation_timestamp_seconds", ended), told("evaluation_interval_seconds", flat(interval, len(ended)))
    )


CASES = {
    "TidemarkEvaluationOverdue": (
        fires("every 20 minutes, and none for 45", _last(flat(0)), 45, made.SERVICE, "45m 0s"),
        Case("the last one in time", _last([*flat(0, 20), *flat(1200, 20), *flat(2400, 21)]), 45),
        Case("without a schedule", told("evaluation_timestamp_seconds", flat(0)), 45),
        Case("there was none yet", told("evaluation_interval_seconds", flat(1200)), 45),
    ),
    "TidemarkEvaluationFailed": (
        fires("failed", told("evaluation_passed", flat(0)), 5, made.SERVICE),
        fires(
            "the scrape does not honor labels", told("evaluation_passed", flat(0), prefix="exported_"), 5, made.SERVICE
        ),
        Case("passed", told("evaluation_passed", flat(1)), 5),
    ),
}
