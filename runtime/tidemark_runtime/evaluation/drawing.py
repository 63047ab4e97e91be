"""Small pictures as SVG text, without a library: curves, bars, and a grid of shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax import saxutils

Curve = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 760, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 150, 30, 36
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by people who see colours differently (Okabe and Ito, 2008)."""
_NUM_TICKS = 4
_CELL_WIDTH, _CELL_HEIGHT = 74, 24


def curves(title: str, x_name: str, found: Mapping[str, Curve], marks: bool = False) -> str:
    """One line for each curve; `marks` also draws its points."""
    x_most = _nice(max((x for curve in found.values() for x, _ in curve), default=1.0))
    y_most = _nice(max((y for curve in found.values() for _, y in curve), default=1.0))
    width, base = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM
    parts = [*_axes(title, x_name, y_most)]
    for tick in range(_NUM_TICKS + 1):
        share = tick / _NUM_TICKS
        parts.append(_text(_LEFT + share * width, base + 15, f"{share * x_most:g}", anchor="middle"))
    for index, (name, curve) in enumerate(found.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        spots = [(_LEFT + x / x_most * width, base - y / y_most * (base - _TOP)) for x, y in curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{line}"/>')
        if marks:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots]
        parts.append(_text(_LEFT + width + 10, _TOP + 12 + 15 * index, name, colour=colour))
    return _whole(parts, _WIDTH, _HEIGHT)


def bars(title: str, x_name: str, found: Mapping[str, Sequence[float]]) -> str:
    """Groups of bars side by side, one for each position of the sequences."""
    y_most = _nice(max((value for values in found.values() for value in values), default=1.0))
    count = max((len(values) for values in found.values()), default=1)
    width, base = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM
    step = width / max(1, count)
    thick = step * 0.8 / max(1, len(found))
    parts = [*_axes(title, x_name, y_most)]
    for index, (name, values) in enumerate(found.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        for position, value in enumerate(values):
            x, height = _LEFT + position * step + index * thick, max(0.0, value) / y_most * (base - _TOP)
            parts.append(
                f'<rect x="{x:.1f}" y="{base - height:.1f}" width="{thick:.1f}" height="{height:.1f}" fill="{colour}"/>'
            )
        parts.append(_text(_LEFT + width + 10, _TOP + 12 + 15 * index, name, colour=colour))
    for position in range(0, count, max(1, count // 10)):
        parts.append(_text(_LEFT + (position + 0.4) * step, base + 15, str(position), anchor="middle"))
    return _whole(parts, _WIDTH, _HEIGHT)


def grid(title: str, rows: Mapping[str, Mapping[str, tuple[float, str]]]) -> str:
    """Row -> column -> (share from 0 to 1, words). From red to blue, and the words say it too."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    parts = [_text(8, 18, title, size=12)]
    left = 120
    for index, column in enumerate(columns):
        parts.append(_text(left + (index + 0.5) * _CELL_WIDTH, 38, column, anchor="middle"))
    for line, (name, cells) in enumerate(rows.items()):
        top = 44 + line * _CELL_HEIGHT
        parts.append(_text(left - 8, top + 16, name, anchor="end"))
        for index, column in enumerate(columns):
            if column in cells:
                share, words = cells[column]
                x = left + index * _CELL_WIDTH
                parts.append(
                    f'<rect x="{x}" y="{top}" width="{_CELL_WIDTH - 2}" height="{_CELL_HEIGHT - 2}" '
                    f'fill="{_shade(share)}"/>'
                )
                parts.append(_text(x + _CELL_WIDTH / 2, top + 16, words, anchor="middle"))
    return _whole(parts, left + len(columns) * _CELL_WIDTH + 20, 54 + len(rows) * _CELL_HEIGHT)


def _axes(title: str, x_name: str, y_most: float) -> list[str]:
    width, base = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM
    parts = [_text(_LEFT, _TOP - 10, title, size=12), _text(_LEFT + width, base + 30, x_name, anchor="end")]
    for tick in range(_NUM_TICKS + 1):
        y = base - tick / _NUM_TICKS * (base - _TOP)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{tick / _NUM_TICKS * y_most:g}", anchor="end"))
    return parts


def _whole(parts: Sequence[str], width: float, height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" font-size="11">'
    )
    return "\n".join([head, *parts, "</svg>"])


def _text(x: float, y: float, words: str, *, size: int = 11, anchor: str = "start", colour: str = "#333333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">'
        f"{saxutils.escape(words)}</text>"
    )


def _shade(share: float) -> str:
    """From vermilion over white to blue, all light enough for dark words."""
    low, high = (244, 190, 160), (170, 208, 240)
    mixed = [round(one + (other - one) * min(1.0, max(0.0, share))) for one, other in zip(low, high, strict=True)]
    return f"rgb({mixed[0]},{mixed[1]},{mixed[2]})"


def _nice(value: float) -> float:
    """The next larger of 1, 2, 4, 5, 8 times a power of ten, so that quarters of it are short numbers."""
    if value <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 4.0, 5.0, 8.0, 10.0) if step * power >= value * (1 - 1e-9))
