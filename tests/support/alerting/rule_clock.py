"""A faster clock for a drill: every duration of rendered rules and configurations, divided by one factor.

What is divided: `for`, `keep_firing_for`, intervals and timeouts, ranges (`[5m]`), offsets, and how far
`predict_linear` looks ahead. Numbers that are compared with are not: a queue wait of 5 s stays one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MILLISECONDS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
_DURATION = r"(?:\d+(?:ms|[smhdwy]))+"
_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_RANGE = re.compile(rf"(?<=[\[:]){_DURATION}(?=[\]:])")
_OFFSET = re.compile(rf"(?<=\boffset ){_DURATION}")
_AHEAD = re.compile(r"(predict_linear\(.*\[[^\]]+\], )(\d+)(?=\))")
_KEYS = {
    "for",
    "keep_firing_for",
    "interval",
    "scrape_interval",
    "scrape_timeout",
    "evaluation_interval",
    "group_wait",
    "group_interval",
    "repeat_interval",
}


def seconds(duration: str) -> float:
    """`1h30m` is 5400. Raises `ValueError` for what is no duration of Prometheus."""
    if not re.fullmatch(_DURATION, duration):
        raise ValueError(f"got {duration!r}, expected a duration of Prometheus such as 5m")
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in _PART.findall(duration)) / 1000


def faster(duration: str, factor: float) -> str:
    """`5m` sixty times faster is `5000ms`."""
    return f"{max(1, round(seconds(duration) * 1000 / factor))}ms"


def expression(text: str, factor: float) -> str:
    """PromQL whose windows are so many times shorter."""
    for pattern in (_RANGE, _OFFSET):
        text = pattern.sub(lambda found: faster(found[0], factor), text)
    return _AHEAD.sub(lambda found: f"{found[1]}{int(found[2]) / factor:g}", text)


def document(value: Any, factor: float) -> Any:
    """A new document: a rule file, or a configuration of Prometheus or Alertmanager."""
    if isinstance(value, Mapping):
        return {key: _field(key, inner, factor) for key, inner in value.items()}
    return [document(inner, factor) for inner in value] if isinstance(value, list) else value


def _field(key: str, value: Any, factor: float) -> Any:
    if key == "expr":
        return expression(value, factor)
    return faster(value, factor) if key in _KEYS and isinstance(value, str) else document(value, factor)


def windows(text: str) -> list[float]:
    """Seconds of every range and offset of an expression."""
    return [seconds(found) for pattern in (_RANGE, _OFFSET) for found in pattern.findall(text)]
