"""Rules and the page of alerts, from `tidemark_operator.monitoring`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark_operator.monitoring import alerts_page, site
from tidemark_operator.monitoring.rules.thresholds import Thresholds

FOLDER = "dashboards/rules"


def _rules(name: str) -> Callable[[], str]:
    return lambda: site.rules(Thresholds())[name]


def _example(name: str) -> Callable[[], str]:
    return lambda: site.examples()[name]


PAGES: Mapping[str, Callable[[], str]] = {
    alerts_page.PATH: alerts_page.render,
    **{f"{FOLDER}/{name}": _rules(name) for name in (site.RULES, site.PROMETHEUS_RULE)},
    **{
        f"{FOLDER}/{name}": _example(name)
        for name in (site.PROMETHEUS, site.PROMETHEUS_ON_KUBERNETES, site.ALERTMANAGER)
    },
}
