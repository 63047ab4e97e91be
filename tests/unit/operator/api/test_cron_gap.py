from __future__ import annotations

import datetime
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator.api import cron, cron_gap

HOUR, DAY = 3600, 86_400


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        ("* * * * *", 60),
        ("*/7 * * * *", 7 * 60),
        ("30 * * * *", HOUR),
        ("@hourly", HOUR),
        ("0 3 * * *", DAY),
        ("@daily", DAY),
        ("0 8-17 * * 1-5", 3 * DAY - 9 * HOUR),
        ("0 3 * * 0", 7 * DAY),
        ("0 3 * * sun", 7 * DAY),
        ("@weekly", 7 * DAY),
        ("@monthly", 31 * DAY),
        ("0 0 31 * *", 61 * DAY),
        ("0 0 1 1 *", 366 * DAY),
        ("0 0 1,15 * 1", 7 * DAY),
        ("0 0 29 2 *", 8 * 365 * DAY + DAY),
        ("0 0 29 feb *", 8 * 365 * DAY + DAY),
        ("10/20 * * * *", 20 * 60),
        ("0 3 */2 * 0", 2 * DAY),
        ("0 3 */1 * 0", 7 * DAY),
        ("0 3 1 * */3", 3 * DAY),
        ("0 3 *,5 * 0", 7 * DAY),
    ],
)
def test_longest_time_between_two_runs(schedule: str, seconds: int) -> None:
    assert cron.problem(schedule) is None
    assert cron_gap.longest_seconds(schedule) == seconds


@given(
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=4),
    hours=st.sets(st.integers(0, 23), min_size=1, max_size=4),
)
def test_within_a_day_it_is_what_walking_the_clock_finds(minutes: set[int], hours: set[int]) -> None:
    schedule = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *"
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    every = (start + datetime.timedelta(minutes=number) for number in range(3 * 24 * 60))
    moments = [moment for moment in every if moment.minute in minutes and moment.hour in hours]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(moments)]
    assert cron_gap.longest_seconds(schedule) == max(gaps)
