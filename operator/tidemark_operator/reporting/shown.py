"""Numbers as people read them. The CSV and the JSON have them as they are."""

from __future__ import annotations

from tidemark_operator.reporting import figures, sentences, words

NONE = "–"
_WHOLE = frozenset({"tokens", "requests", "tokens_per_hour"})
_LARGE = 1e12
_MONEY = frozenset({"currency", "currency_per_hour", "currency_per_million"})


def value(figure: figures.Figure) -> str:
    """`1,234,567`, `93.1 %`, `–`."""
    if figure.value is None:
        return NONE
    if figure.unit == "ratio":
        return f"{figure.value * 100:.1f} %"
    if figure.unit == "flops" or abs(figure.value) >= _LARGE:
        return f"{figure.value:.3e}"
    if figure.unit in _MONEY:
        return money(figure.value)
    if figure.key == "concurrency_per_device":
        return f"{figure.value:,.1f}"
    if figure.unit in _WHOLE or (figure.unit == "devices" and figure.value.is_integer()):
        return f"{figure.value:,.0f}"
    return money(figure.value)


def money(amount: float) -> str:
    """An amount with two places, more where they would all be zeros."""
    return f"{amount:,.2f}" if abs(amount) >= 0.1 or amount == 0 else f"{amount:.4g}"


def unit(figure: figures.Figure, report: figures.Report, language: words.Language) -> str:
    """Empty for a share: its value has a percent sign."""
    if figure.unit == "ratio" and figure.value is not None:
        return ""
    return words.UNITS[figure.unit].of(language).format(currency=report.currency)


def name(figure: figures.Figure, language: words.Language) -> str:
    return words.FIGURES[figure.key].name.of(language)


def reason(figure: figures.Figure, language: words.Language) -> str:
    """Why there is no value; empty where there is one."""
    return "" if figure.reason is None else sentences.sentence(figure.reason, language)


def number(amount: float) -> str:
    """All digits that a number has, without an exponent where it is short: for inputs."""
    return f"{amount:.0f}" if amount == int(amount) and abs(amount) < 1e15 else repr(amount)


def origin(item: figures.Input, language: words.Language) -> str:
    """`Prometheus: sum by (...) ...`."""
    keys = {
        figures.From.PROMETHEUS: "prometheus",
        figures.From.COST_FILE: "cost_file",
        figures.From.BASELINE: "baseline_origin",
        figures.From.FIGURE: "figure_origin",
        figures.From.PERIOD: "period_origin",
    }
    return f"{sentences.heading(keys[item.origin], language)}: {item.source}"


def duration(seconds: float) -> str:
    """`36 h`, `45 min`."""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
