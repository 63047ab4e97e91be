"""Cron schedules with five fields, as CronJob takes them."""

from __future__ import annotations

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
"""As the library of Kubernetes has them: Sunday is 0 and never 7, on which CronJob is refused."""
_LONGEST_MONTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
"""Days of the months that do not have 31."""
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
    return None if _comes(parts) else "It names a day that never comes, such as 30 February."


def values(text: str, index: int) -> set[int]:
    """The numbers that the field of this index takes, of a schedule without a problem."""
    _, low, high, words = _FIELDS[index]
    found: set[int] = set()
    for item in text.split(","):
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        begin = low if span == "*" else _value(first, low, words)
        end = high if span == "*" or (slash and not dash) else _value(last if dash else first, low, words)
        if begin is not None and end is not None:
            found.update(range(begin, end + 1, int(step) if slash else 1))
    return found


def is_any(text: str) -> bool:
    """Whether a day's field chooses none, so that only the other one does. Where neither is so, a day that one of them
    takes is taken: a step above 1 chooses, as the library of Kubernetes has it (`*/2` is no `*`)."""
    items = [item.partition("/") for item in text.split(",")]
    return any(span == "*" and (not slash or int(step) == 1) for span, slash, step in items)


def _comes(parts: list[str]) -> bool:
    _, _, days, months, weekdays = (values(text, index) for index, text in enumerate(parts))
    if not is_any(parts[4]) and not is_any(parts[2]):
        return bool(weekdays)
    return any(min(days) <= _LONGEST_MONTHS.get(month, 31) for month in months)


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
