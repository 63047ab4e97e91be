"""B085: what is exported, what rules, dashboards and pages ask for, and what is used are compared as sets."""

from __future__ import annotations

import re

import metric_sets
import promql_names
import pytest

from tidemark_operator.monitoring.rules.model import Alert
from tidemark_runtime.contract import metrics

FOR_PEOPLE: dict[str, str] = {}
"""Exported and asked for nowhere, with the reason."""


def test_every_series_and_label_that_rules_ask_for_exists() -> None:
    asked = metric_sets.asked_by_rules()
    assert len(asked) > 80
    assert [problem for each in asked for problem in metric_sets.wrong(each)] == []


def test_every_series_and_label_that_dashboards_ask_for_exists() -> None:
    asked = metric_sets.asked_by_dashboards()
    assert len(asked) > 50
    assert [problem for each in asked for problem in metric_sets.wrong(each)] == []


def test_every_series_and_label_that_pages_name_exists() -> None:
    families = {metric.name for metric in metric_sets.TABLE}
    seen, missing = set(), []
    for path, text in metric_sets.pages():
        for selector in metric_sets.mentions(text):
            labels = metric_sets.labels_of(selector.name)
            seen.add(selector.name)
            if labels is None and selector.name not in families:
                missing.append(f"{path}: nobody exports {selector.name}")
            missing += [
                f"{path}: {selector.name} has no label {matcher.label}"
                for matcher in selector.matchers
                if labels is not None and matcher.label not in labels
            ]
    assert missing == []
    assert len(seen) > 30


def test_everything_exported_is_asked_for_or_told() -> None:
    used = {
        selector.name
        for asked in (*metric_sets.asked_by_rules(), *metric_sets.asked_by_dashboards())
        for selector in promql_names.named(asked.expr).selectors
    }
    told = {selector.name for _, text in metric_sets.pages() for selector in metric_sets.mentions(text)}
    idle = {
        metric.name for metric in metric_sets.TABLE if not ({metric.name, *metric_sets.family(metric)} & (used | told))
    }
    assert idle == set(FOR_PEOPLE)


def test_everything_exported_has_a_meaning_a_unit_and_a_place() -> None:
    names = [metric.name for metric in metric_sets.TABLE]
    assert len(names) == len(set(names))
    for metric in metric_sets.TABLE:
        assert metric.help.endswith((".", ")")), metric.name
        assert metric.unit, metric.name
        assert metric.where, metric.name
        assert metric.name.endswith("_total") == (metric.kind is metrics.Kind.COUNTER), metric.name


def test_labels_in_the_texts_of_alerts_are_those_that_the_alert_has() -> None:
    """B089: a text with an empty name helps nobody."""
    for rule in metric_sets.rules():
        if isinstance(rule, Alert):
            named = promql_names.named(rule.expr)
            recorded = [metric_sets.recorded().get(each.name, frozenset()) for each in named.selectors]
            carried = named.grouped.union(*recorded)
            for text in (rule.summary, rule.summary_zh, rule.description):
                assert set(re.findall(r"\$labels\.(\w+)", text)) <= carried, rule.name


def test_places_exist() -> None:
    roots = {
        True: metric_sets.ROOT / "operator/tidemark_operator",
        False: metric_sets.ROOT / "runtime/tidemark_runtime",
    }
    for metric in metric_sets.TABLE:
        for path in re.findall(r"[\w/]+\.py", metric.where):
            root = metric_sets.ROOT if path.startswith("kernels/") else roots["_operator_" in metric.name]
            assert (root / path).is_file(), f"{metric.name}: {path}"


@pytest.mark.parametrize(
    ("expr", "names", "labels"),
    [
        ("up == 0", {"up"}, set()),
        ('sum by (a, b) (rate(x_total{c=~"d|e"}[5m:1m] offset 1h))', {"x_total"}, {"a", "b", "c"}),
        ("sum(x) by (a) / on (b) group_left (c) y", {"x", "y"}, {"a", "b", "c"}),
        ("x and ignoring(a) y unless z > bool 2e3", {"x", "y", "z"}, {"a"}),
        ('{__name__=~"x|y", a!="b"}', {"x", "y"}, {"a"}),
        ("rate(x{a='$b'}[$__rate_interval]) * ${c:regex}", {"x"}, {"a"}),
        ("# by (q) of no_metric\nabs(x) # other", {"x"}, set()),
        ('x{a="not_a_metric{b=1}"}', {"x"}, {"a"}),
        ("service:x:rate5m > 0.5", {"service:x:rate5m"}, set()),
        ("quantile_over_time(0.9, x[1h])", {"x"}, set()),
    ],
)
def test_expressions_are_read(expr: str, names: set[str], labels: set[str]) -> None:
    named = promql_names.named(expr)
    assert {selector.name for selector in named.selectors} == names
    matched = {matcher.label for selector in named.selectors for matcher in selector.matchers}
    assert matched | named.grouped == labels


def test_labels_that_are_made_are_read() -> None:
    named = promql_names.named('label_replace(label_replace(x, "a", "$1", "b", "(.+)"), "c", "d", "e", "f")')
    assert (named.made, named.read) == ({"a", "c"}, {"b", "e"})


@pytest.mark.parametrize("expr", ["x{a}", "x{a=b}", "sum by (a (x)", "x)", "(x", "x[5m", "x ~ y", "sum by (a) x"])
def test_what_is_no_promql_is_refused(expr: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        promql_names.named(expr)


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("sum by (service) (tidemark_no_such_total)", "nobody exports tidemark_no_such_total"),
        ("tidemark_requests", "nobody exports tidemark_requests"),
        ('tidemark_requests_total{reason="x"}', "tidemark_requests_total has no label reason"),
        ("sum by (mode) (tidemark_requests_total)", "no series in it has a label mode"),
        ('service:tidemark_kv_usage:ratio_max{pod="x"}', "service:tidemark_kv_usage:ratio_max has no label pod"),
    ],
)
def test_what_is_wrong_is_found(expr: str, said: str) -> None:
    assert metric_sets.wrong(metric_sets.Asked("somebody", expr)) == [f"somebody: {said}"]
