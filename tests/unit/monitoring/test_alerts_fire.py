"""Every alert fires when it should, is silent when it should, and ends when its series vanish: promtool's word."""

from __future__ import annotations

from pathlib import Path

import promtool
import pytest
from alert_cases import all_cases, made

from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules.model import Alert
from tidemark_operator.monitoring.rules.thresholds import Thresholds

GROUPS = catalog.groups(Thresholds())
ALERTS = {alert.name: alert for alert in catalog.alerts_of(GROUPS)}
ABOUT_ABSENCE = {"TidemarkEngineMetricsAbsent", "TidemarkOperatorDown", "TidemarkNothingScraped"}
"""These fire when series vanish; `test_sites.py` has them."""
STEPS_AFTER = 45
"""Longer than any alert is kept firing, than the window of a rise, and than the short window of a burn."""


def check(alert: Alert, case: made.Case, at: int, firing: tuple[made.Firing, ...]) -> dict[str, object]:
    minutes = at * int(case.step.removesuffix("m"))
    return {
        "eval_time": f"{minutes}m",
        "alertname": alert.name,
        "exp_alerts": [promtool.expected(alert, each, Thresholds()) for each in firing],
    }


def entries(alert: Alert, case: made.Case) -> list[dict[str, object]]:
    """The case; and where it fires, the same with series that end: then so does the alert."""
    found = [promtool.test_entry(case.series, case.step, [check(alert, case, case.at, case.firing)])]
    if case.firing and case.series and alert.name not in ABOUT_ABSENCE:
        series = made.vanished(case.series, case.at + 1)
        found.append(promtool.test_entry(series, case.step, [check(alert, case, case.at + STEPS_AFTER, ())]))
    return found


@pytest.mark.parametrize("name", ALERTS)
def test_every_case(name: str, tmp_path: Path) -> None:
    alert = ALERTS[name]
    groups = promtool.of_alert(alert, GROUPS)
    for step in sorted({case.step for case in all_cases.CASES[name]}):
        cases = [case for case in all_cases.CASES[name] if case.step == step]
        tests = [entry for case in cases for entry in entries(alert, case)]
        assert promtool.run(tmp_path, groups, tests, step) == ""


def test_every_alert_has_cases_that_fire_and_cases_that_do_not() -> None:
    assert set(all_cases.CASES) == set(ALERTS)
    for name, cases in all_cases.CASES.items():
        assert {bool(case.firing) for case in cases} == {True, False}, name


def test_a_wrong_expectation_is_noticed(tmp_path: Path) -> None:
    """The harness itself can fail."""
    alert = ALERTS["TidemarkRequestStarves"]
    good = all_cases.CASES[alert.name][0]
    silent = promtool.test_entry(good.series, good.step, [check(alert, good, good.at, ())])
    assert "TidemarkRequestStarves" in promtool.run(tmp_path, promtool.of_alert(alert, GROUPS), [silent], good.step)
