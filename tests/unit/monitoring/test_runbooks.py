"""Alerts, runbooks in both languages and cases are the same set, and what a runbook names exists."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from alert_cases import all_cases

from tidemark_operator import cli, effects
from tidemark_operator.commands import kubectl, reference
from tidemark_operator.monitoring import alerts_page, operator_metrics, runbooks
from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules.model import Language
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics, status

GROUPS = catalog.groups(Thresholds())
ALERTS = [alert.name for alert in catalog.alerts_of(GROUPS)]
RECORDED = {rule.record for group in GROUPS for rule in group.recording}
HEADINGS = {
    Language.EN: ["Meaning", "Impact", "Diagnose", "Mitigate", "Verify"],
    Language.ZH: ["含义", "影响", "诊断", "处理", "验证"],
}
MARKS = {"(hot)": "hot", "(restart)": "restart", "（热生效）": "hot", "（需重启）": "restart"}
PROGRAMS = {"kubectl", "curl", "tidemark", "promtool"}
KUBECTL = {
    *("get", "describe", "logs", "delete", "edit", "annotate", "cordon", "rollout", "port-forward", "top", "auth"),
    "tidemark",
}
"""Verbs of kubectl itself that runbooks use; `kubectl tidemark` is ours."""
EVERY = [(name, language) for name in ALERTS for language in Language]


def text_of(name: str, language: Language) -> str:
    text = runbooks.text(name, language)
    assert text is not None, f"no runbook {language.value}/{name}.md"
    return text


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def commands(text: str) -> list[str]:
    """The lines of code blocks, and code words that begin with a program's name."""
    lines = [line for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    words = re.findall(r"`([^`\n]+)`", re.sub(r"```\w*\n.*?```", "", text, flags=re.DOTALL))
    return [*lines, *(word for word in words if word.split()[0] in PROGRAMS and " " in word)]


def fields() -> dict[str, str]:
    """Every field of the resource -> `hot`, `restart`, or nothing where it is no setting of the engine."""
    found, section = {}, ""
    for line in reference.page().splitlines():
        if line.startswith("## `"):
            section = line.split("`")[1]
        row = re.match(r"\| `(\w+)`.*\|(.*)\|$", line)
        if row and section:
            hot = "takes effect without a restart" in row[2]
            found[f"{section}.{row[1]}"] = "hot" if hot else "restart" if "restarts the engine" in row[2] else ""
    return found


FIELDS = fields()


def test_alerts_runbooks_and_cases_are_the_same_set() -> None:
    assert set(runbooks.names(Language.EN)) == set(runbooks.names(Language.ZH)) == set(ALERTS) == set(all_cases.CASES)
    assert len(ALERTS) == len(set(ALERTS))
    page = re.findall(r"^\| `(Tidemark\w+)` \| (?:critical|warning|info) \|", alerts_page.render(), re.MULTILINE)
    assert page == ALERTS


@pytest.mark.parametrize(("path", "words"), [("README.md", "{} alerts"), ("README.zh-CN.md", "{} 条告警")])
def test_the_readmes_count_them(path: str, words: str) -> None:
    root = Path(__file__).resolve().parents[3]
    assert words.format(len(ALERTS)) in (root / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "language"), EVERY)
def test_every_section_is_there_and_says_something(name: str, language: Language) -> None:
    text = text_of(name, language)
    assert text.startswith(f"# {name}\n")
    found = sections(text)
    assert list(found) == HEADINGS[language]
    assert [heading for heading, body in found.items() if len(body) < 8] == []


@pytest.mark.parametrize(("name", "language"), EVERY)
def test_every_command_exists(name: str, language: Language) -> None:
    text = text_of(name, language)
    found = commands(text)
    assert found
    for command in found:
        program, verb = command.split()[:2]
        assert program in PROGRAMS, command
        if program == "tidemark":
            assert verb in cli.VERBS, command
        if program == "kubectl":
            assert verb in KUBECTL, command
        if command.startswith("kubectl tidemark"):
            assert command.split()[2] in kubectl._WORDS, command


@pytest.mark.parametrize(("name", "language"), EVERY)
def test_what_asks_an_engine_works_with_a_certificate_and_is_never_silent(name: str, language: Language) -> None:
    """`curl -s` of http:// prints nothing at all where the engine speaks HTTPS: at night that reads as no answer."""
    text = text_of(name, language)
    assert "curl -s " not in text
    if "http://127.0.0.1:8000/" in text:
        assert "`curl -sSk https://127.0.0.1:8000/" in text


@pytest.mark.parametrize(("name", "language"), EVERY)
def test_every_field_exists_has_an_effect_and_is_marked_hot_or_restart(name: str, language: Language) -> None:
    text = text_of(name, language)
    named = re.findall(r"`(spec\.[\w.]+)`", text)
    assert [field for field in named if field not in FIELDS] == []
    idle = [
        field for field in named if any(f"{field}.".startswith(f"spec.{path}.") for path in effects.no_effect_yet())
    ]
    assert idle == []
    mitigation = sections(text)[HEADINGS[language][3]]
    for bullet in mitigation.splitlines():
        pieces = re.split(r"`(spec\.[\w.]+)`", bullet)
        for field, after in zip(pieces[1::2], pieces[2::2], strict=True):
            marks = [MARKS[mark] for mark in re.findall("|".join(map(re.escape, MARKS)), after)]
            assert marks == ([FIELDS[field]] if FIELDS[field] else []), f"{field} in: {bullet}"


@pytest.mark.parametrize(("name", "language"), EVERY)
def test_every_metric_and_other_runbook_exists(name: str, language: Language) -> None:
    text = text_of(name, language)
    known = {metric.name for metric in (*metrics.ENGINE_METRICS, *operator_metrics.TABLE)} | RECORDED
    found = re.findall(r"\b(?:service|engine|operator):tidemark_[\w:]+|(?<![:\w])tidemark_\w+", text)
    assert [metric for metric in found if metric not in known] == []
    assert [other for other in re.findall(r"\bTidemark[A-Z]\w+", text) if other not in ALERTS] == []


@pytest.mark.parametrize(("name", "language"), EVERY)
def test_every_entry_of_the_engines_status_exists(name: str, language: Language) -> None:
    structs = (status.EngineStatus, status.QueueStatus, status.MemoryStatus, status.ConfigStatus, status.KernelPath)
    known = {field.encode_name for each in structs for field in msgspec.structs.fields(each)}
    found = re.findall(r"`(?:(?:queue|memory|config)\.)?([a-z]+[A-Z]\w+|state|lines)`", text_of(name, language))
    of_a_manifest = {"maxTokens", "apiKey"}
    assert [entry for entry in found if entry not in known | of_a_manifest] == []


def test_the_table_of_fields_is_read() -> None:
    kinds = {FIELDS["spec.watermarks.queue"], FIELDS["spec.kvCache.dtype"], FIELDS["spec.replicas"]}
    assert kinds == {"hot", "restart", ""}


@pytest.mark.parametrize("name", ALERTS)
def test_both_languages_name_the_same_things(name: str) -> None:
    english, chinese = (set(re.findall(r"`([^`\n]+)`", text_of(name, language))) for language in Language)
    assert english == chinese


@pytest.mark.parametrize("name", ["../en/TidemarkEngineDown", "", "TidemarkEngineDown.md", "/etc/passwd"])
def test_other_names_are_no_runbooks(name: str) -> None:
    assert runbooks.text(name, Language.EN) is None
