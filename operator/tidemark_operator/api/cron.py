"""Cron schedules with five fields, as CronJob takes them."""

from __future__ import annotations

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_MACROS = frozenset({"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})


def problem(schedule: str) -> str | None:
    """What is wrong with `schedule`, or None."""
    if schedule in _MACROS:
        return None
    parts = schedule.split()
    if len(parts) != len(_FIELDS):
        return f"It has {len(parts)} fields; cron has five: minute, hour, day of month, month, day of week."
    for text, (name, low, high, words) in zip(parts, _FIELDS, strict=True):
        if not all(_item(item, low, high, words) for item in text.split(",")):
            return f"The {name} is {text!r}; it takes {low} to {high}, *, ranges, lists and steps such as */5."
    return None


def _item(item: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    span, slash, step = item.partition("/")
    if slash and not (step.isascii() and step.isdigit() and 0 < int(step[:4]) <= high):
        return False
    if span == "*":
        return True
    first, dash, last = span.partition("-")
    begin, end = _value(first, low, words), _value(last if dash else first, low, words)
    return begin is not None and end is not None and low <= begin <= end <= high


def _value(text: str, low: int, words: tuple[str, ...]) -> int | None:
    if text.lower() in words:
        return words.index(text.lower()) + low
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else None
