"""The report as CSV: every figure a row, with formula, inputs and queries.

It begins with a byte order mark: without one, Excel takes UTF-8 for the encoding of the office.
"""

from __future__ import annotations

import csv
import io

from tidemark_operator.reporting import figures, shown, words

BYTE_ORDER_MARK = "\ufeff"
HEAD = ("group", "figure", "name", "of_kind", "of", "value", "unit", "formula", "inputs", "sources", "reason")
_STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def text(report: figures.Report, language: words.Language) -> str:
    """With a byte order mark; lines end as CSV has it (RFC 4180)."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(HEAD)
    writer.writerows(_row(report, figure, language) for figure in report.figures)
    return BYTE_ORDER_MARK + out.getvalue()


def _row(report: figures.Report, figure: figures.Figure, language: words.Language) -> list[str]:
    unit = words.UNITS[figure.unit].of(language).format(currency=report.currency)
    texts = [
        figure.group.value,
        figure.key,
        shown.name(figure, language),
        figure.of_kind,
        figure.of,
        "" if figure.value is None else repr(figure.value),
        unit,
        figure.formula,
        "; ".join(f"{item.name} = {shown.number(item.value)}" for item in figure.inputs),
        "; ".join(f"{item.name}: {shown.origin(item, language)}" for item in figure.inputs),
        shown.reason(figure, language),
    ]
    return [each if index == _VALUE else _plain(each) for index, each in enumerate(texts)]


_VALUE = HEAD.index("value")


def _plain(cell: str) -> str:
    """A spreadsheet must not compute what somebody called a key."""
    return f"'{cell}" if cell.startswith(_STARTS_A_FORMULA) else cell
