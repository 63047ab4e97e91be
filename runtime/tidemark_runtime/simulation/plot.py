"""A picture of a run as SVG, without a library: load, pages and speed over time, and how first tokens are spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax import saxutils

from tidemark_runtime.simulation import recorder, report

Curve = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 860, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 30, 34
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by people who see colours differently (Okabe and Ito, 2008)."""
_NUM_TICKS = 4
_SPREAD_POINTS = 200


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    x_name: str
    curves: Mapping[str, Curve]
    y_most: float | None = None
    """None: what the curves reach."""


def svg(found: report.Report, record: recorder.Recorder) -> str:
    """The whole picture, as text."""
    panels = _panels(record)
    height = len(panels) * _HEIGHT + 40
    heading = f"{found.profile}, {found.workload}, seed {found.seed}: {found.output_tokens_per_second:,.0f} tokens/s"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(_LEFT, 22, heading, size=14),
    ]
    for index, panel in enumerate(panels):
        parts += _draw(panel, 40 + index * _HEIGHT)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panels(record: recorder.Recorder) -> list[_Panel]:
    points = record.points
    speed = [
        (right.seconds, (right.output_tokens - left.output_tokens) / (right.seconds - left.seconds))
        for left, right in pairwise(points)
        if right.seconds > left.seconds
    ]
    spread = {name: entry.first_token.curve(_SPREAD_POINTS) for name, entry in record.classes.items()}
    return [
        _Panel(
            "requests",
            "seconds",
            {
                "running": [(point.seconds, point.running) for point in points],
                "waiting": [(point.seconds, point.waiting) for point in points],
            },
        ),
        _Panel("pages in use", "seconds", {"share": [(p.seconds, p.pages_used_share) for p in points]}, 1.0),
        _Panel("output tokens/s", "seconds", {"tokens/s": speed}),
        _Panel("share of requests whose first token came within", "seconds", spread, 1.0),
    ]


def _draw(panel: _Panel, top: int) -> list[str]:
    xs = [x for curve in panel.curves.values() for x, _ in curve]
    ys = [y for curve in panel.curves.values() for _, y in curve]
    x_most, y_most = _nice(max(xs, default=1.0)), panel.y_most or _nice(max(ys, default=1.0))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    base = top + _TOP + height

    def place(x: float, y: float) -> str:
        return f"{_LEFT + x / x_most * width:.1f},{base - y / y_most * height:.1f}"

    parts = [_text(_LEFT, top + _TOP - 8, panel.title, size=12)]
    for tick in range(_NUM_TICKS + 1):
        part = tick / _NUM_TICKS
        y, x = base - part * height, _LEFT + part * width
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{part * y_most:g}", anchor="end"))
        parts.append(_text(x, base + 14, f"{part * x_most:g}", anchor="middle"))
    parts.append(_text(_LEFT + width, base + 28, panel.x_name, anchor="end"))
    for index, (name, curve) in enumerate(panel.curves.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        line = " ".join(place(x, y) for x, y in curve)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{line}"/>')
        parts.append(_text(_LEFT + width + 10, top + _TOP + 12 + 15 * index, name, colour=colour))
    return parts


def _text(x: float, y: float, words: str, *, size: int = 11, anchor: str = "start", colour: str = "#333333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">'
        f"{saxutils.escape(words)}</text>"
    )


def _nice(value: float) -> float:
    """The next larger of 1, 2, 4, 5, 8 times a power of ten, so that quarters of it are short numbers."""
    if value <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 4.0, 5.0, 8.0, 10.0) if step * power >= value * (1 - 1e-9))
