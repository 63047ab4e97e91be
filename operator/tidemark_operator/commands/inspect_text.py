"""The report of `tidemark inspect` as text, from its document. Pure. The worst comes first, what was fine last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import rich.cells
import rich.text

from tidemark_operator.commands import inspect_words as words
from tidemark_operator.commands import status_text
from tidemark_operator.monitoring.rules.model import Language

_STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold"}
_MOST_NAMES = 6
"""Services named in one line; of more the number is said."""


class _Line(NamedTuple):
    text: str
    style: str = ""
    indent: int = 0
    hang: int = 0
    """Further columns from the second piece of a broken line on."""


def render(document: Mapping[str, Any], columns: int | None = None) -> rich.text.Text:
    """The whole report. Without `columns` no line is broken."""
    made = rich.text.Text()
    for line in _lines(document):
        for piece in _pieces(line, columns):
            made.append(f"{piece}\n", line.style)
    made.rstrip()
    return made


def _lines(document: Mapping[str, Any]) -> Iterator[_Line]:
    language = Language(document["language"])
    yield from _head(document, language)
    for severity, title in words.SEVERITIES.items():
        found = [item for item in document["findings"] if item["severity"] == severity]
        if found:
            yield _Line("")
            yield _Line(title.of(language), _STYLES[severity])
        for item in found:
            yield from _finding(item, language)
    if not document["findings"] and document["services"]:
        yield _Line("")
        yield _Line(words.NO_FINDING.of(language), "green")
    yield from _fine(document["checks"], language)
    yield from _not_checked(document["checks"], language)
    bases = {item["runbookUrl"].rpartition("/")[0] for item in document["findings"] if item["runbookUrl"]}
    for base in sorted(bases):
        yield _Line("")
        yield _Line(f"{words.RUNBOOKS_AT.of(language)}: {base}/NAME.md", "dim")


def _head(document: Mapping[str, Any], language: Language) -> Iterator[_Line]:
    at = document["at"].replace("T", " ").replace(":00Z", "Z").replace("Z", " UTC")
    yield _Line(f"{words.TITLE.of(language)} {at}", "bold")
    for asked in document["source"]["asked"]:
        yield _Line(status_text.source(asked) if isinstance(asked, Mapping) else asked, "dim")
    services, summary = document["services"], document["summary"]
    answered = sum(service["answered"] for service in services)
    engines = sum(len(service["engines"]) for service in services)
    history = words.history(document, language)
    noun = words.SERVICE_ONE if len(services) == 1 else words.SERVICES
    yield _Line(
        f"{len(services)} {noun.of(language)}, {answered}/{engines} {words.ENGINES.of(language)}, {history}", "dim"
    )
    counts = ", ".join(f"{summary[key]} {word.of(language)}" for key, word in words.COUNTED.items())
    states = (
        f"{summary['found']} {words.FOUND.of(language)}, {summary['fine']} {words.FINE.of(language).lower()}, "
        f"{summary['notChecked']} {words.NOT_CHECKED.of(language).lower()}"
    )
    style = next((_STYLES[key] for key in ("critical", "warning") if summary[key]), "bold green")
    yield _Line(counts, style)
    yield _Line(f"{summary['checks']} {words.CHECKS.of(language)}: {states}", "dim")
    if not services:
        yield _Line(words.NO_SERVICE.of(language))


def _finding(item: Mapping[str, Any], language: Language) -> Iterator[_Line]:
    where = item["service"] or words.SITE.of(language)
    pod = f"  {item['pod']}" if item["pod"] and item["pod"] not in where else ""
    yield _Line(f"{where}{pod}  [{item['check']}]", "cyan", 2, 2)
    yield _Line(item["what"], "", 4)
    yield _Line(f"{words.DO.of(language)}: {item['advice']}", "", 4, 2)
    yield _Line(f"{words.SEEN.of(language)}: {'; '.join(item['evidence'])}", "dim", 4, 2)
    if item["runbook"]:
        yield _Line(f"{words.RUNBOOK.of(language)}: {item['runbook']}", "dim", 4, 2)


def _fine(checks: Sequence[Mapping[str, Any]], language: Language) -> Iterator[_Line]:
    fine = [check for check in checks if check["state"] == "fine" or check["fine"]]
    if fine:
        yield _Line("")
        yield _Line(words.FINE.of(language), "bold green")
    for check in fine:
        # Where it holds for some services only, those are named.
        partly = check["state"] == "found" or check["notChecked"]
        where = f" ({_names(check['fine'], language)})" if partly and check["fine"] else ""
        yield _Line(f"✓ {check['title']}: {check['fineMeans']}{where}", "green", 2, 2)


def _not_checked(checks: Sequence[Mapping[str, Any]], language: Language) -> Iterator[_Line]:
    """By reason: one that is missing leaves several checks out, or one check at several services."""
    by_why: dict[str, dict[str, list[str]]] = {}
    for check in checks:
        for gap in check["notChecked"]:
            by_why.setdefault(gap["why"], {}).setdefault(check["title"], []).append(gap["service"] or "")
    if by_why:
        yield _Line("")
        yield _Line(words.NOT_CHECKED.of(language), "bold yellow")
    for why, titles in by_why.items():
        services = list(dict.fromkeys(name for names in titles.values() for name in names if name))
        where = f" ({_names(services, language)})" if services else ""
        yield _Line(f"? {', '.join(titles)}{where}: {why}", "yellow", 2, 2)


def _names(services: Sequence[str], language: Language) -> str:
    if len(services) > _MOST_NAMES:
        return f"{len(services)} {words.SERVICES.of(language)}"
    return ", ".join(services)


_WORD = re.compile(r"\s+|[\u2e80-\uffef]|[^\s\u2e80-\uffef]+")
"""Spaces, one Chinese sign, or a word without either: no field name and no command is torn apart."""
_NEVER_FIRST = frozenset("，。；：）、！？")


def _pieces(line: _Line, columns: int | None) -> list[str]:
    """Broken so that it fits, by the width that a terminal shows: Chinese has no spaces and is twice as wide."""
    if columns is None:
        return [" " * line.indent + line.text]
    made, current, used = [], " " * line.indent, line.indent
    for word in _words(line.text):
        width = rich.cells.cell_len(word)
        if used + width > columns and current.strip():
            made.append(current.rstrip())
            current, used = " " * (line.indent + line.hang), line.indent + line.hang
            word, width = word.lstrip(), rich.cells.cell_len(word.lstrip())
        current, used = current + word, used + width
    return [*made, current.rstrip()]


def _words(text: str) -> list[str]:
    """A sign that must not begin a line belongs to the word before it."""
    words: list[str] = []
    for word in _WORD.findall(text):
        if words and word in _NEVER_FIRST:
            words[-1] += word
        else:
            words.append(word)
    return words
