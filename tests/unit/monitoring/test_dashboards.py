"""Dashboards are what Grafana's schema allows, complete in both languages, and hang together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import dashboard_queries
import pytest
from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models import dashboard as schema

from tidemark_operator import cli, errors
from tidemark_operator.monitoring import dashboard_files, operator_metrics
from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_operator.status import conditions
from tidemark_runtime import config
from tidemark_runtime.contract import metrics

GROUPS = catalog.groups(Thresholds())
CHINESE = re.compile(r"[\u4e00-\u9fff]")
SAME_IN_BOTH = {"Operator", "Pod"}
"""Names that Chinese readers know as they are."""
NOT_OURS = {"up", "ALERTS", "ALERTS_FOR_STATE"}
"""Series that Prometheus makes itself."""
every_file = pytest.mark.parametrize(("name", "language"), dashboard_queries.EVERY)


def words_of(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every leaf with the way to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from words_of(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from words_of(item, (*path, str(index)))
    else:
        yield path, value


@every_file
def test_grafanas_own_types_read_it_and_write_the_same(name: str, language: str) -> None:
    """A key that they do not know would be lost on the way, one that they need would come to it."""
    plugins.register_default_plugins()
    content = dashboard_queries.load(name, language)
    again = schema.Dashboard.from_json(json.loads(json.dumps(content)))
    assert json.loads(json.dumps(again, cls=encoder.JSONEncoder)) == content


@every_file
def test_it_can_be_imported_again_and_again(name: str, language: str) -> None:
    content = dashboard_queries.load(name, language)
    assert content["uid"] == f"tidemark-{name}-{language}"
    assert len(content["uid"]) <= 40
    assert content.get("id") is None
    assert content["tags"] == ["tidemark", f"tidemark-{language}"]
    assert content["schemaVersion"] >= 36
    kinds = {panel["type"] for panel in content["panels"]}
    assert kinds <= {"row", "timeseries", "stat", "table", "heatmap", "bargauge"}, "a panel that Grafana 12 lacks"


@every_file
def test_every_panel_says_what_it_shows(name: str, language: str) -> None:
    for panel in dashboard_queries.panels(dashboard_queries.load(name, language)):
        title = panel["title"]
        assert title
        assert len(panel["description"]) >= (9 if language == "zh" else 20), title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, title
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", title
            assert target["legendFormat"], title


@every_file
def test_panels_stand_beside_each_other(name: str, language: str) -> None:
    content = dashboard_queries.load(name, language)
    numbers = [panel["id"] for panel in content["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: dict[tuple[int, int], str] = {}
    for panel in content["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    bottom = max(y for _, y in taken) + 1
    assert len(taken) == 24 * bottom, "there are gaps"


@pytest.mark.parametrize("name", dashboard_files.names())
def test_the_two_languages_differ_in_words_only(name: str) -> None:
    english = dict(words_of(dashboard_queries.load(name, "en")))
    chinese = dict(words_of(dashboard_queries.load(name, "zh")))
    assert english.keys() == chinese.keys()
    differing = {path for path, value in english.items() if chinese[path] != value}
    for path in differing:
        here = ".".join(path)
        said = (english[path], chinese[path])
        if path[-1] in ("uid", "url") or path[0] == "tags" or "tags" in path:
            assert str(said[0]).replace("-en", "-zh").replace("/en/", "/zh/") == said[1], here
        else:
            assert isinstance(said[0], str), here
            assert CHINESE.search(said[1]), f"{here}: {said}"
            assert not CHINESE.search(said[0]), f"{here}: {said}"


@pytest.mark.parametrize("name", dashboard_files.names())
def test_every_text_is_translated(name: str) -> None:
    content = dashboard_queries.load(name, "zh")
    for path, value in words_of(content):
        is_text = path[-1] in ("title", "description", "label", "noValue", "tooltip")
        if is_text and value.removeprefix("Tidemark / ") not in SAME_IN_BOTH:
            assert CHINESE.search(value), f"{'.'.join(path)}: {value}"


def test_queries_ask_for_what_is_exported_or_recorded() -> None:
    exported = {*metrics.ENGINE_METRICS, *operator_metrics.TABLE}
    known = {rule.record for group in GROUPS for rule in group.recording} | NOT_OURS
    for metric in exported:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind is metrics.Kind.HISTOGRAM else ("",)
        known |= {metric.name + suffix for suffix in suffixes}
    asked = set()
    exprs = [query.expr for query in dashboard_queries.queries()]
    exprs += [series for _, series, _ in dashboard_queries.variable_series()]
    for expr in exprs:
        without_strings = re.sub(r'"[^"]*"', '""', expr)
        asked |= set(re.findall(r"\b(?:\w+:)?(?:tidemark_|up\b|ALERTS)[\w:]*", without_strings))
    assert asked - known == set()
    assert {"up", "ALERTS"} < asked


def test_every_metric_of_the_engine_is_looked_at() -> None:
    """Directly, or by a recorded series."""
    recorded = {rule.record: rule.expr for group in GROUPS for rule in group.recording}
    asked = " ".join(query.expr for query in dashboard_queries.queries())
    asked += " ".join(expr for record, expr in recorded.items() if record in asked)
    asked += " ".join(series for _, series, _ in dashboard_queries.variable_series())
    for metric in (*metrics.ENGINE_METRICS, *operator_metrics.TABLE):
        if metric not in NOT_SHOWN:
            assert re.search(rf"\b{metric.name}(?:_bucket|_sum|_count)?\b", asked), metric.name


NOT_SHOWN = (metrics.WATERMARK_STATE, metrics.CONFIG_RELOADS)
"""The time above a line says more than its state at scrapes; refused configurations are alerts."""


def test_lines_are_drawn_from_the_engines_and_colours_change_at_the_defaults() -> None:
    drawn = [query for query in dashboard_queries.queries() if metrics.WATERMARK_LEVEL.name in query.expr]
    assert {query.dashboard for query in drawn} == {"overview", "memory"}
    for name in ("overview", "memory"):
        for panel in dashboard_queries.panels(dashboard_queries.load(name, "en")):
            letters = {target["refId"] for target in panel["targets"] if metrics.WATERMARK_LEVEL.name in target["expr"]}
            dashed = {
                override["matcher"]["options"]
                for override in panel["fieldConfig"]["overrides"]
                for prop in override["properties"]
                if prop["id"] == "custom.lineStyle" and prop["value"]["fill"] == "dash"
            }
            assert letters == dashed, panel["title"]
    scheduler = config.SchedulerConfig()
    limits = json.dumps([scheduler.queue_watermark, scheduler.preempt_watermark])
    steps = [value["steps"] for value in _thresholds(dashboard_queries.load("overview", "en"))]
    assert limits in [json.dumps([step["value"] for step in each][1:]) for each in steps]


def _thresholds(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("mode") == "absolute":
            yield value
        for item in value.values():
            yield from _thresholds(item)
    elif isinstance(value, list):
        for item in value:
            yield from _thresholds(item)


@every_file
def test_thresholds_rise(name: str, language: str) -> None:
    for each in _thresholds(dashboard_queries.load(name, language)):
        values = [step["value"] for step in each["steps"]]
        assert values[0] is None
        assert all(lower < upper for lower, upper in pairwise(values[1:])), values


@every_file
def test_links_lead_to_dashboards_and_runbooks_that_there_are(name: str, language: str) -> None:
    content = dashboard_queries.load(name, language)
    uids = {dashboard_files.uid(each, language) for each in dashboard_files.names()}
    urls = [value for path, value in words_of(content) if path[-1] == "url" and value]
    for url in urls:
        inside = re.match(r"/d/([\w-]+)\?", url)
        assert (inside and inside[1] in uids) or url.startswith(f"${{runbooks:raw}}/{language}/"), url
    assert content["links"][0]["tags"] == [f"tidemark-{language}"]


def test_the_overview_explains_every_alert_in_both_languages() -> None:
    alerts = {alert.name for alert in catalog.alerts_of(GROUPS)}
    for language in dashboard_files.LANGUAGES:
        content = json.dumps(dashboard_queries.load("overview", language))
        assert {alert for alert in alerts if f'"{alert}": {{"text": ' not in content} == set()
        assert "$labels" not in content


def test_the_overview_explains_every_condition_in_both_languages() -> None:
    judged = set(conditions.TYPES) - conditions.NOT_JUDGED
    for language in dashboard_files.LANGUAGES:
        content = json.dumps(dashboard_queries.load("overview", language))
        assert {condition for condition in judged if f'"{condition}": {{"text": ' not in content} == set()


def test_variables_that_are_used_are_there_and_the_others_are_not() -> None:
    for name, language in dashboard_queries.EVERY:
        content = dashboard_queries.load(name, language)
        text = json.dumps(content["panels"]) + json.dumps([v.get("query") for v in content["templating"]["list"]])
        used = {a or b for a, b in re.findall(r"\$(?:\{([a-z]\w*)(?::\w+)?\}|([a-z]\w*))", text)}
        names = {variable["name"] for variable in content["templating"]["list"]}
        assert used <= names, name
        assert names - used <= {"runbooks"}, name


def test_runbooks_may_lie_elsewhere() -> None:
    moved = json.loads(dashboard_files.read("overview", "zh", "https://wiki.example.com/tidemark/"))
    (variable,) = (each for each in moved["templating"]["list"] if each["name"] == "runbooks")
    assert variable["query"] == variable["current"]["value"] == "https://wiki.example.com/tidemark"
    original = dict(words_of(dashboard_queries.load("overview", "zh")))
    changed = {path for path, value in words_of(moved) if original[path] != value}
    assert changed == {path for path, value in original.items() if value == Thresholds().runbook_base_url}


@pytest.mark.parametrize(("name", "language"), [("overvue", "en"), ("overview", "de"), ("../overview", "en")])
def test_a_dashboard_that_there_is_not_is_named(name: str, language: str) -> None:
    with pytest.raises(errors.ManifestFileError, match=r"expected one of overview, .* in en or zh"):
        dashboard_files.read(name, language)


def test_no_file_lies_beside_them() -> None:
    wanted = {dashboard_files.file_name(name, language) for name, language in dashboard_queries.EVERY}
    assert {path.name for path in dashboard_files.folder().glob("*.json")} == wanted


@pytest.mark.parametrize("with_operator", [True, False])
def test_a_site_gets_them_with_its_rules(tmp_path: Path, with_operator: bool) -> None:
    """Those of an operator only beside one; links lead to the site's own runbooks."""
    flags = ["--runbook-base-url", "http://wiki/t", *([] if with_operator else ["--no-operator"])]
    assert cli.run(["render", "--monitoring", "--out", str(tmp_path), *flags]) == 0
    written = {path.name: json.loads(path.read_text()) for path in (tmp_path / "dashboards").iterdir()}
    wanted = [name for name in dashboard_files.names() if with_operator or name != "operator"]
    assert written.keys() == {f"{name}.{language}.json" for name in wanted for language in ("en", "zh")}
    runbooks = {v["query"] for d in written.values() for v in d["templating"]["list"] if v["name"] == "runbooks"}
    assert runbooks == {"http://wiki/t"}


def test_installed_from_a_wheel_they_lie_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages/tidemark_operator"
    monkeypatch.setattr(dashboard_files, "__file__", str(package / "monitoring/dashboard_files.py"))
    with pytest.raises(errors.ManifestFileError, match="neither in a checkout around it nor in its folder _data"):
        dashboard_files.read("overview", "en")
    (package / "_data" / dashboard_files.FOLDER).mkdir(parents=True)
    (package / "_data" / dashboard_files.FOLDER / "overview.en.json").write_text("{}")
    assert dashboard_files.read("overview", "en") == "{}"
