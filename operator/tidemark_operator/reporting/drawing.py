"""Pictures over time and a split of a sum, as SVG text. Colours are the page's: they follow dark mode and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax import saxutils

from tidemark_operator.reporting import figures
from tidemark_operator.reporting import period as period_

_WIDTH, _HEIGHT = 860, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 10, 34, 26
_TICKS = 4
_MOST_LABELS = 9
_NUM_COLOURS = 5


def bars(title: str, names: Sequence[str], curves: Sequence[figures.Curve], period: period_.Period, step: float) -> str:
    """Stacked: the first curve at the bottom."""
    count = max((len(curve.points) for curve in curves), default=0)
    tops = [math.fsum(_at(curve, index) for curve in curves) for index in range(count)]
    most = nice(max(tops, default=1.0))
    parts = _frame(title, names, most, period)
    floors = [0.0] * count
    for colour, curve in enumerate(curves):
        for index, (at, value) in enumerate(curve.points):
            low, high = floors[index], floors[index] + (value or 0.0)
            top, bottom = _y(high, most), _y(low, most)
            thick = max(0.5, _x(at + step, period) - _x(at, period) - 1)  # the last one may be cut short
            parts.append(
                f'<rect class="f{colour % _NUM_COLOURS}" x="{_x(at, period):.1f}" y="{top:.1f}" width="{thick:.1f}" '
                f'height="{bottom - top:.1f}"/>'
            )
            floors[index] = high
    return _whole(title, parts)


def lines(
    title: str,
    names: Sequence[str],
    curves: Sequence[figures.Curve],
    period: period_.Period,
    step: float,
    most: float | None = None,
) -> str:
    """A value holds for its window; where there is none, the line has a hole. `most`: of the axis, else as it comes."""
    values = [value for curve in curves for _, value in curve.points if value is not None]
    top = nice(max(values, default=1.0)) if most is None else most
    parts = _frame(title, names, top, period)
    for colour, curve in enumerate(curves):
        for run in _runs(curve):
            corners = [
                f"{_x(x, period):.1f},{_y(min(value, top), top):.1f}" for at, value in run for x in (at, at + step)
            ]
            parts.append(f'<polyline class="l{colour % _NUM_COLOURS}" points="{" ".join(corners)}"/>')
    return _whole(title, parts)


def split(title: str, found: Sequence[tuple[str, float, str]]) -> str:
    """One bar of parts: (name, amount, the amount in words)."""
    whole = math.fsum(amount for _, amount, _ in found)
    parts = [_text(_LEFT, 20, title, "t")]
    x, width = float(_LEFT), _WIDTH - _LEFT - _RIGHT
    for colour, (name, amount, words) in enumerate(found):
        long = amount / whole * width if whole > 0 else 0.0
        parts.append(
            f'<rect class="f{colour % _NUM_COLOURS}" x="{x:.1f}" y="34" width="{max(0.0, long):.1f}" height="30"/>'
        )
        x += long
        top = 84 + 18 * colour
        parts.append(f'<rect class="f{colour % _NUM_COLOURS}" x="{_LEFT}" y="{top - 10}" width="12" height="12"/>')
        share = f"({amount / whole * 100:.1f} %)" if whole > 0 else ""
        parts.append(_text(_LEFT + 18, top, f"{name}: {words} {share}", "k"))
    return _whole(title, parts, 84 + 18 * len(found))


def nice(value: float) -> float:
    """The next larger of 1, 2, 4, 5, 8 times a power of ten, so that quarters of it are short numbers."""
    if not value > 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 4.0, 5.0, 8.0, 10.0) if step * power >= value * (1 - 1e-9))


def short(value: float) -> str:
    """`1.5M`."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _at(curve: figures.Curve, index: int) -> float:
    return (curve.points[index][1] or 0.0) if index < len(curve.points) else 0.0


def _runs(curve: figures.Curve) -> list[list[tuple[float, float]]]:
    """Stretches of points that have values."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in curve.points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _frame(title: str, names: Sequence[str], most: float, period: period_.Period) -> list[str]:
    parts = [_text(_LEFT, 16, title, "t")]
    right = _WIDTH - _RIGHT
    place = float(_LEFT + 260)
    for colour, name in enumerate(names):
        parts.append(f'<rect class="f{colour % _NUM_COLOURS}" x="{place:.0f}" y="7" width="10" height="10"/>')
        parts.append(_text(place + 15, 16, name, "k"))
        place += 35 + 7.0 * sum(2 if ord(sign) > 0x2E80 else 1 for sign in name)
    for tick in range(_TICKS + 1):
        level = tick / _TICKS * most
        y = _y(level, most)
        parts.append(f'<line class="g" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 6, y + 4, short(level), "k e"))
    return parts + _days(period)


def _days(period: period_.Period) -> list[str]:
    """Labels of the axis: days, or moments where the period is short."""
    day = period_.DAY_SECONDS
    unit = day if period.seconds >= 3 * day else 3600
    every = max(1, math.ceil(period.seconds / unit / _MOST_LABELS)) * unit
    parts = []
    at = period.start
    while at < period.end - every / 3:
        label = period.day(at) if unit == day else period.moment(at)[5:]
        parts.append(_text(_x(at, period), _HEIGHT - 8, label, "k"))
        at += every
    return parts


def _x(at: float, period: period_.Period) -> float:
    share = (min(at, period.end) - period.start) / period.seconds
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - value / most * (_HEIGHT - _BOTTOM - _TOP)


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{saxutils.escape(words)}</text>'


def _whole(title: str, parts: Sequence[str], height: float = _HEIGHT) -> str:
    name = saxutils.quoteattr(title)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={name} viewBox="0 0 {_WIDTH} {height:g}">'
    return "\n".join([head, *parts, "</svg>"])
