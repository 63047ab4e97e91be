"""All rules over a whole site: one where all is well, one where nobody asks, and what is said when series vanish."""

from __future__ import annotations

from pathlib import Path

import promtool
import pytest
from alert_cases import made, worlds

from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules.thresholds import Thresholds

THRESHOLDS = Thresholds()
GROUPS = catalog.groups(THRESHOLDS)
ALERTS = {alert.name: alert for alert in catalog.alerts_of(GROUPS)}
STEPS = 30
"""Of two minutes."""
GONE, LOOKED_AT = 8, 28
DOWN = made.Firing(made.SERVICE, "3")


def said(series: made.Series, at: int, folder: Path, **firing: made.Firing) -> str:
    """What promtool says if anything but `firing` fires."""
    checks = [
        {
            "eval_time": f"{2 * at}m",
            "alertname": name,
            "exp_alerts": [promtool.expected(alert, firing[name], THRESHOLDS)] if name in firing else [],
        }
        for name, alert in ALERTS.items()
    ]
    return promtool.run(folder, GROUPS, [promtool.test_entry(series, "2m", checks)], "2m")


@pytest.mark.parametrize("requests", [0, 0.01, 40], ids=["nobody asks", "hardly anybody asks", "busy"])
def test_nothing_fires_where_all_is_well(requests: float, tmp_path: Path) -> None:
    assert said(worlds.site(requests, STEPS), LOOKED_AT, tmp_path) == ""


def test_an_engine_that_answers_no_scrape_is_told_once(tmp_path: Path) -> None:
    """B087: absent series are no error, but somebody says that they are absent."""
    site = worlds.site(40, STEPS)
    engines = {name: values for name, values in site.items() if 'job="tidemark-engine"' in name}
    up = {name: [*made.flat(1, GONE), *made.flat(0, STEPS - GONE)] for name in engines if name.startswith("up{")}
    found = said(
        {**site, **made.vanished(engines, GONE), **up},
        LOOKED_AT,
        tmp_path,
        TidemarkEngineDown=DOWN,
        TidemarkEngineMetricsAbsent=made.Firing(made.SERVICE),
    )
    assert found == ""


def test_engines_that_are_no_targets_any_more_are_told(tmp_path: Path) -> None:
    site = worlds.site(40, STEPS)
    engines = {name: values for name, values in site.items() if 'job="tidemark-engine"' in name}
    absent = made.Firing(made.SERVICE)
    assert said({**site, **made.vanished(engines, GONE)}, LOOKED_AT, tmp_path, TidemarkEngineMetricsAbsent=absent) == ""


def test_a_service_that_is_deleted_is_no_alert(tmp_path: Path) -> None:
    """B091: neither of its engines nor of its conditions."""
    site = worlds.site(40, STEPS)
    gone = {name: values for name, values in site.items() if 'service="chat"' in name}
    assert said({**site, **made.vanished(gone, GONE)}, LOOKED_AT, tmp_path) == ""


def test_when_everything_vanishes_two_alerts_say_so(tmp_path: Path) -> None:
    nothing = made.Firing({})
    found = said(
        made.vanished(worlds.site(40, STEPS), GONE),
        LOOKED_AT,
        tmp_path,
        TidemarkOperatorDown=nothing,
        TidemarkNothingScraped=nothing,
    )
    assert found == ""
