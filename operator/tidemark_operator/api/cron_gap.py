"""The longest time between two moments of a cron schedule."""

from __future__ import annotations

import datetime
import functools
from itertools import pairwise

from tidemark_operator.api import cron

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIRST = datetime.date(2096, 1, 1)
_YEARS = 13
"""From 2096 on: 29 February is left out in 2100, the longest gap that a calendar has."""
_DAY_SECONDS = 86_400


@functools.lru_cache(maxsize=1024)
def longest_seconds(schedule: str) -> int:
    """Of a schedule that `cron.problem` takes. Kept: every pass asks, and years of days are looked at."""
    fields = _MACROS.get(schedule, schedule).split()
    minutes, hours, days, months, weekdays = (cron.values(text, index) for index, text in enumerate(fields))
    either = not cron.is_any(fields[2]) and not cron.is_any(fields[4])
    times = [hour * 3600 + minute * 60 for hour in sorted(hours) for minute in sorted(minutes)]

    def takes(date: datetime.date) -> bool:
        in_month, on_weekday = date.day in days, date.isoweekday() % 7 in weekdays
        return date.month in months and ((in_month or on_weekday) if either else (in_month and on_weekday))

    all_days = (_FIRST + datetime.timedelta(days=number) for number in range(_YEARS * 366))
    found = [date for date in all_days if takes(date)]
    within = max((later - earlier for earlier, later in pairwise(times)), default=0)
    between = max((later - earlier).days for earlier, later in pairwise(found))
    return max(within, between * _DAY_SECONDS + times[0] - times[-1])
