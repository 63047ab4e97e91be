"""The three sets: what is exported, what is asked for, and what the pages name; each with its labels."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dashboard_queries
import promql_names

from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules.model import Alert, RecordingRule
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics

ROOT = Path(__file__).resolve().parents[2]
TABLE = (*metrics.ENGINE_METRICS, *operator_metrics.TABLE)
TARGET = frozenset({"cluster", "namespace", "service", "pod", "instance", "job"})
"""Labels that a site gives to its targets; which ones, the page of alerts says."""
RENAMED = frozenset({"exported_namespace", "exported_service"})
"""What Prometheus makes of a series' own labels where the scrape does not honor them."""
FOREIGN: Mapping[str, frozenset[str]] = {
    "up": TARGET,
    "ALERTS": TARGET | {"alertname", "alertstate", "severity", "device", "xid", "key", "kind"},
    "ALERTS_FOR_STATE": TARGET | {"alertname", "severity", "device", "xid", "key", "kind"},
}
"""Series that Prometheus makes itself."""
_PACKAGES = {"tidemark_operator", "tidemark_runtime", "tidemark_kernels", "tidemark_inference"}
_WORD = re.compile(
    r"(?<![\w:/.\-])((?:(?:service|engine|operator):)?tidemark_[\w:]+)(?![\w*]|/|\.\w|-\w)(\{[^}`\n]*\})?"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One expression, and who asks."""

    who: str
    expr: str


def family(metric: metrics.Metric) -> dict[str, frozenset[str]]:
    """Names as they are scraped, each with its own labels."""
    own = frozenset(metric.labels)
    if metric.kind is not metrics.Kind.HISTOGRAM:
        return {metric.name: own}
    return {f"{metric.name}_bucket": own | {"le"}, f"{metric.name}_sum": own, f"{metric.name}_count": own}


@functools.cache
def exported() -> Mapping[str, frozenset[str]]:
    """Every name that a scrape may have, with its own labels: the tables' word."""
    return {name: labels for metric in TABLE for name, labels in family(metric).items()}


@functools.cache
def rules() -> tuple[RecordingRule | Alert, ...]:
    groups = catalog.groups(Thresholds())
    return tuple(rule for group in groups for rule in (*group.recording, *group.alerts))


@functools.cache
def recorded() -> Mapping[str, frozenset[str]]:
    """Recorded series, with the labels that their expressions leave and those that the rule puts on."""
    found: dict[str, frozenset[str]] = {}
    for rule in rules():
        if isinstance(rule, RecordingRule):
            kept = promql_names.named(rule.expr).grouped - {"le"}
            found[rule.record] = found.get(rule.record, frozenset()) | kept | {label for label, _ in rule.labels}
    return found


def labels_of(name: str) -> frozenset[str] | None:
    """All labels that series of this name may carry; None: nobody exports it."""
    if name in exported():
        return exported()[name] | TARGET
    return recorded().get(name) or FOREIGN.get(name)


def asked_by_rules() -> list[Asked]:
    return [Asked(rule.record if isinstance(rule, RecordingRule) else rule.name, rule.expr) for rule in rules()]


def asked_by_dashboards() -> list[Asked]:
    found = [
        Asked(str(query), query.expr) for language in ("en", "zh") for query in dashboard_queries.queries(language)
    ]
    for dashboard, series, label in dashboard_queries.variable_series():
        found.append(Asked(f"{dashboard}, a variable", f"count by ({label}) ({series})"))
    return found


def pages() -> Iterator[tuple[str, str]]:
    """Texts for people, path and content: runbooks, pages, the chart; not those that are made from the tables."""
    rendered = {"docs/reference/metrics.md", "docs/reference/operator-metrics.md", "docs/operations/alerts.md"}
    folders = (
        ("docs", "*.md"),
        ("operator/tidemark_operator/monitoring/runbooks", "*.md"),
        ("charts", "*.yaml"),
        ("examples", "*.yaml"),
    )
    paths = [path for folder, pattern in folders for path in sorted((ROOT / folder).rglob(pattern))]
    for path in [*paths, *sorted(ROOT.glob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        if name not in rendered:
            yield name, path.read_text(encoding="utf-8")


def mentions(text: str) -> Iterator[promql_names.Selector]:
    """Series that a text for people names, with the labels in braces behind them."""
    for name, braces in _WORD.findall(text):
        if name in _PACKAGES:
            continue
        try:
            yield from promql_names.named(name + braces).selectors
        except ValueError:  # `{...}` or `{state}`: words for people
            yield promql_names.Selector(name)


def wrong(asked: Asked) -> list[str]:
    """What the expression names and nobody has."""
    named = promql_names.named(asked.expr)
    found, there = [], set(TARGET | RENAMED | named.made)
    for selector in named.selectors:
        labels = labels_of(selector.name)
        if labels is None:
            found.append(f"{asked.who}: nobody exports {selector.name}")
            continue
        there |= labels
        found += [
            f"{asked.who}: {selector.name} has no label {matcher.label}"
            for matcher in selector.matchers
            if matcher.label not in labels | named.made
        ]
    found += [f"{asked.who}: no series in it has a label {label}" for label in sorted(named.grouped - there)]
    found += [f"{asked.who}: no series in it has a label {label}" for label in sorted(named.read - there)]
    return found
