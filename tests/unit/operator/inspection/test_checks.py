"""Every check finds what it is for, is silent when all is well, and says when it could not look."""

from __future__ import annotations

import dataclasses
import datetime
import inspect as python_inspect
import re

import chart
import inspection_cases
import inspection_facts as made
import pytest

from tidemark_operator.commands import reference
from tidemark_operator.inspection import facts, registry, run
from tidemark_operator.inspection.check import Severity
from tidemark_operator.monitoring import runbooks
from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import Language
from tidemark_runtime.contract import settings

CHECKS = {check.name: check for check in registry.CHECKS}
CASES = inspection_cases.CASES
FIRES = [(name, case) for name, cases in CASES.items() for case in cases.fires]
SILENT = [(name, case) for name, cases in CASES.items() for case in cases.silent]
NOT_CHECKED = [(name, words, case) for name, cases in CASES.items() for words, case in cases.not_checked]


def result(name: str, found: facts.Facts) -> run.Result:
    (made_,) = run.inspect(found, [CHECKS[name]]).results
    return made_


def test_every_check_is_tested_in_all_three_ways() -> None:
    assert list(CASES) == [check.name for check in registry.CHECKS]
    assert [name for name, cases in CASES.items() if not (cases.fires and cases.silent and cases.not_checked)] == []


@pytest.mark.parametrize(("name", "case"), FIRES, ids=[f"{name}: {case.words}" for name, case in FIRES])
def test_it_fires(name: str, case: inspection_cases.Fires) -> None:
    found = result(name, case.facts).findings
    assert [(item.severity, item.what.en) for item in found if case.words in item.what.en] == [
        (case.severity, next(item.what.en for item in found if case.words in item.what.en))
    ], [item.what.en for item in found]


@pytest.mark.parametrize(("name", "case"), SILENT, ids=[name for name, _ in SILENT])
def test_it_is_silent(name: str, case: facts.Facts) -> None:
    found = result(name, case)
    assert [item.what.en for item in found.findings] == []
    if not found.gaps:
        assert found.fine


@pytest.mark.parametrize(
    ("name", "words", "case"), NOT_CHECKED, ids=[f"{name}: {words}" for name, words, _ in NOT_CHECKED]
)
def test_it_says_why_it_could_not_look(name: str, words: str, case: facts.Facts) -> None:
    found = result(name, case)
    assert [gap.why.en for gap in found.gaps if words in gap.why.en], found
    assert not found.fine


def test_a_healthy_site_with_history_is_wholly_fine() -> None:
    report = run.inspect(made.site(history=made.history()))
    assert [finding.what.en for finding in report.findings] == []
    assert [gap.why.en for item in report.results for gap in item.gaps] == []


def test_without_history_nothing_is_omitted() -> None:
    """Each check is there: fine, found, or not checked with the reason."""
    report = run.inspect(made.site())
    assert len(report.results) == len(registry.CHECKS)
    for item in report.results:
        assert item.findings or item.gaps or item.fine
    left_out = {item.check.name for item in report.results if item.gaps}
    assert left_out == {"alerts", "batch-fill", "queue-wait", "scrape-targets"}
    told = {item.check.name: item.fine_means.en for item in report.results if item.fine}
    assert told["memory-lines"] == "crossed for at most 0.1 % of the time since the engines started"
    assert "7 days" not in told["out-of-memory"] + told["kernel-paths"] + told["devices"]


def test_the_worst_comes_first() -> None:
    one = made.service(made.engine(lines={"queue": {"level": 0.7, "secondsAboveTotal": 5000.0}}))
    other = made.service(conditions=[made.condition("Ready", "False")], name="other")
    report = run.inspect(made.site(one, other))
    assert [item.severity.rank for item in report.findings] == sorted(item.severity.rank for item in report.findings)
    assert report.findings[0].service == "team/other"
    assert [item.severity for item in report.findings].count(Severity.CRITICAL) == 1


def test_one_service_that_cannot_be_looked_at_leaves_the_others_checked() -> None:
    found = result("kernel-paths", made.site(made.service(name="a"), made.service(made.silent(), name="b")))
    assert found.fine == ["team/a"]
    assert [gap.service for gap in found.gaps] == ["team/b"]


def test_one_certificate_of_several_engines_is_one_finding() -> None:
    """Shown by a handshake and told by both; another one, not yet taken over everywhere, is another finding."""
    ends = made.NOW + datetime.timedelta(days=9)
    shown = facts.Certificate(where="10.0.0.1:8000", not_after=ends)
    both = [made.engine(name, certificateExpires=ends.timestamp() + 0.5) for name in ("a", "b")]
    (finding,) = result("certificates", made.site(made.service(*both, certificate=shown))).findings
    assert finding.evidence == (f"TLS handshake, certificateExpires: {ends:%Y-%m-%d %H:%M} UTC",)
    old = made.engine("c", certificateExpires=ends.timestamp() - 86_400)
    found = result("certificates", made.site(made.service(*both, old, certificate=shown))).findings
    assert [item.pod for item in found] == ["", "c"]


def test_an_alert_of_info_is_good_to_know_and_one_without_labels_shows_none() -> None:
    """`--fail-on warning` must not fail for what nobody has to do anything about."""

    def fires(severity: str) -> facts.Alert:
        return facts.Alert(
            name="TidemarkX",
            severity=severity,
            state="firing",
            labels={},
            description="It is.",
            runbook="",
            since="now",
        )

    alerts = [fires(severity) for severity in ("critical", "warning", "info", "page")]
    site = dataclasses.replace(made.site(made.service()), history=facts.History(url="http://p", alerts=alerts))
    found = result("alerts", site).findings
    assert [item.severity.value for item in found] == ["critical", "warning", "info", "warning"]
    assert {item.evidence for item in found} == {("since now",)}


def test_checks_yield_so_that_what_came_before_a_gap_counts() -> None:
    for check in registry.CHECKS:
        assert python_inspect.isgeneratorfunction(check.of_service or check.of_site), check.name
        assert (check.of_service is None) != (check.of_site is None)


FINDINGS = [finding for _, case in FIRES for finding in run.inspect(case.facts).findings]


def test_every_finding_has_numbers_advice_and_both_languages() -> None:
    for finding in FINDINGS:
        assert finding.evidence
        for text in (finding.what, finding.advice):
            assert text.en
            assert text.zh
    told = [finding for finding in FINDINGS if finding.what.en != finding.what.zh]
    assert not [finding.what.zh for finding in told if finding.what.zh.isascii()]


def test_every_runbook_exists() -> None:
    named = {finding.runbook for finding in FINDINGS if finding.runbook}
    assert named <= set(runbooks.names(Language.EN))
    assert len(named) > 10


def test_every_field_named_exists_and_is_as_hot_as_it_says() -> None:
    page = reference.page()
    named = {
        (path, how)
        for finding in FINDINGS
        for path, how in re.findall(r"spec\.([\w.]+\w)(?: (?:[\w.]+ )*\((hot|restart)\))?", finding.advice.en)
    }
    assert len({path for path, _ in named}) > 10
    for path, how in named:
        section, _, last = path.rpartition(".")
        assert f"`{last}`" in page, path
        if how and section in ("scheduler", "kvCache", "watermarks", "overload") and last != "response":
            assert (path in settings.HOT_KEYS) == (how == "hot"), path


def test_queries_are_told_apart_by_their_names_and_keep_to_the_scope() -> None:
    scope = promql.Scope((("cluster", "paris"),))
    for query in registry.queries():
        for made_ in (query.expr, query.otherwise):
            if made_ is not None:
                text = made_(scope)
                assert 'cluster="paris"' in text
                names = re.findall(r"\b(?:tidemark_\w+|(?:service|engine):tidemark_[\w:]+)(\{)?", text)
                assert all(names), text
    by_name: dict[str, set[str]] = {}
    for check in registry.CHECKS:
        for query in check.queries:
            by_name.setdefault(query.name, set()).add(query.expr(scope))
    assert {name for name, found in by_name.items() if len(found) > 1} == set()


def test_the_page_lists_every_check_and_every_value_of_the_chart() -> None:
    page = (chart.ROOT / "docs/operations/inspect.md").read_text(encoding="utf-8")
    table = page.partition("## What is checked")[2].partition("## With a Prometheus")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == [check.name for check in registry.CHECKS]
    values = set(re.findall(r"`inspection\.(\w+)`", page)) | {"enabled", "resources"}
    assert values == set(chart.defaults()["inspection"])
