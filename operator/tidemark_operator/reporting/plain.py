"""The report as text for a terminal: every figure with its formula and inputs below it, the queries at the end."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from tidemark_operator.reporting import figures, sentences, shown, words

_NAME_WIDTH = 44
_VALUE_WIDTH = 18


def text(report: figures.Report, language: words.Language) -> str:
    """Ends with a line break."""
    return "\n".join(_lines(report, language)) + "\n"


def _lines(report: figures.Report, language: words.Language) -> Iterator[str]:
    period = report.period
    yield f"{sentences.heading('title', language)}: {period.moment(period.start)} – {period.moment(period.end)}"
    yield f"{sentences.heading('source', language)}: {report.prometheus}"
    yield f"{sentences.heading('coverage', language)}: {report.coverage * 100:.1f} %"
    yield f"{sentences.heading('gaps', language)}: {gaps(report, language)}"
    source = report.baseline_source or sentences.heading("no_baseline", language)
    yield f"{sentences.heading('baseline', language)}: {source}"
    for remark in report.warnings:
        yield f"! {sentences.sentence(remark, language)}"
    for group in figures.Group:
        rows = [figure for figure in report.figures if figure.group is group]
        if rows:
            yield ""
            yield words.GROUPS[group.value].of(language)
            named = ""
            for figure in rows:
                if figure.of_kind and figure.key != named:  # rows without a total: their name stands above them
                    yield f"  {shown.name(figure, language)}"
                    yield f"        = {figure.formula}"
                named = figure.key
                yield from _figure(report, figure, language)
    yield ""
    yield sentences.heading("notes", language)
    for remark in report.notes:
        yield f"  {sentences.sentence(remark, language)}"
    yield from _queries(report)


def gaps(report: figures.Report, language: words.Language) -> str:
    """Spans without samples, in one line."""
    period = report.period
    found = [
        f"{period.moment(gap.start)} – {period.moment(gap.end)} ({shown.duration(gap.end - gap.start)})"
        for gap in report.gaps
    ]
    return "; ".join(found) or sentences.heading("no_gaps", language)


def _figure(report: figures.Report, figure: figures.Figure, language: words.Language) -> Iterator[str]:
    name = f"    {figure.of}" if figure.of_kind else f"  {shown.name(figure, language)}"
    unit = shown.unit(figure, report, language) if figure.value is not None else ""
    yield f"{_padded(name, _NAME_WIDTH)} {shown.value(figure):>{_VALUE_WIDTH}} {unit}".rstrip()
    why = shown.reason(figure, language)
    if why:
        yield f"        {why}"
    inputs = ", ".join(f"{item.name} = {shown.number(item.value)}" for item in figure.inputs)
    if not figure.of_kind:
        yield f"        = {figure.formula}" + (f"   ({inputs})" if inputs else "")
    elif inputs and not why:
        yield f"        ({inputs})"


def _queries(report: figures.Report) -> Iterator[str]:
    """Each once, under the name that formulas have for it."""
    found: dict[str, str] = {}
    for figure in report.figures:
        for item in figure.inputs:
            if item.origin is figures.From.PROMETHEUS:
                found.setdefault(item.source, item.name)
    for query, name in found.items():
        yield f"  {name}: {query}"


def _padded(words_: str, width: int) -> str:
    """Chinese signs are two columns wide."""
    columns = sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in words_)
    return words_ + " " * max(0, width - columns)
