"""The report as JSON: everything, for scripts."""

from __future__ import annotations

import datetime
from typing import Any

from tidemark_operator.reporting import figures, sentences, shown, words


def of(report: figures.Report, language: words.Language) -> dict[str, Any]:
    """Plain values; a figure without a value has null and a reason."""
    period = report.period
    return {
        "period": {
            "from": _moment(report, period.start),
            "to": _moment(report, period.end),
            "seconds": period.seconds,
            "askedTo": None if period.asked_end is None else _moment(report, period.asked_end),
        },
        "madeAt": _moment(report, report.made_at),
        "prometheus": report.prometheus,
        "currency": report.currency,
        "baselineSource": report.baseline_source or None,
        "coverage": report.coverage,
        "gaps": [{"from": _moment(report, gap.start), "to": _moment(report, gap.end)} for gap in report.gaps],
        "warnings": [sentences.sentence(remark, language) for remark in report.warnings],
        "notes": [sentences.sentence(remark, language) for remark in report.notes],
        "figures": [_figure(report, figure, language) for figure in report.figures],
        "curves": {
            name: {curve.name: [[at, value] for at, value in curve.points] for curve in found}
            for name, found in report.curves.items()
        },
    }


def _figure(report: figures.Report, figure: figures.Figure, language: words.Language) -> dict[str, Any]:
    return {
        "group": figure.group.value,
        "key": figure.key,
        "name": shown.name(figure, language),
        "about": words.FIGURES[figure.key].about.of(language),
        "ofKind": figure.of_kind or None,
        "of": figure.of or None,
        "value": figure.value,
        "unit": words.UNITS[figure.unit].of(language).format(currency=report.currency),
        "formula": figure.formula,
        "inputs": [
            {"name": item.name, "value": item.value, "from": item.origin.value, "source": item.source}
            for item in figure.inputs
        ],
        "reason": shown.reason(figure, language) or None,
    }


def _moment(report: figures.Report, at: float) -> str:
    return datetime.datetime.fromtimestamp(at, report.period.zone).isoformat(timespec="seconds")
