"""Sentences in English and Chinese, written side by side where they are made, as the alerts' summaries are."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.monitoring.rules.model import Language


@dataclass(frozen=True, slots=True)
class Text:
    """One sentence, twice."""

    en: str
    zh: str

    def of(self, language: Language) -> str:
        return self.zh if language is Language.ZH else self.en


def same(words: str) -> Text:
    """What somebody else said, or a number: not translated."""
    return Text(words, words)


NOTHING = Text("", "")


def percent(ratio: float) -> str:
    """`5 %`, `0.4 %`; what is above 0 is never shown as 0."""
    value = ratio * 100
    if 0 < value < 0.1:
        return "< 0.1 %"
    return f"{value:.1f} %" if 0 < value < 10 and not value.is_integer() else f"{value:.0f} %"


def seconds(value: float) -> str:
    """In the unit that a person would say: `0.4 s`, `3 min`, `2.5 h`, `12 d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= 2 * size:
            return f"{_short(value / size)} {unit}"
    return f"{_short(value)} s"


def num_bytes(size: float) -> str:
    """`90.0 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}".removesuffix(".0") if value < 10 else f"{value:.0f}"
