"""What period is meant, and what is no period."""

from __future__ import annotations

import datetime

import pytest

from tidemark_operator import errors
from tidemark_operator.reporting import period


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


NOW = at("2026-11-30T12:00+00:00")


@pytest.mark.parametrize(
    ("quarter", "first", "last", "zone", "start", "end"),
    [
        ("2026Q3", None, None, "UTC", "2026-07-01T00:00+00:00", "2026-10-01T00:00+00:00"),
        ("2025-q4", None, None, "UTC", "2025-10-01T00:00+00:00", "2026-01-01T00:00+00:00"),
        ("2026Q3", None, None, "+08:00", "2026-06-30T16:00+00:00", "2026-09-30T16:00+00:00"),
        (None, "2026-07-01", "2026-10-01", "UTC", "2026-07-01T00:00+00:00", "2026-10-01T00:00+00:00"),
        (None, "2026-07-01", "2026-10-01", "-0330", "2026-07-01T03:30+00:00", "2026-10-01T03:30+00:00"),
        (None, "2026-07-01T08:00+08:00", "2026-07-02", "UTC", "2026-07-01T00:00+00:00", "2026-07-02T00:00+00:00"),
    ],
)
def test_what_is_meant(quarter, first, last, zone, start, end):
    found = period.parse(quarter, first, last, zone, NOW)
    assert (found.start, found.end, found.asked_end) == (at(start), at(end), None)


def test_days_are_those_of_the_zone():
    found = period.parse("2026Q3", None, None, "+08:00", NOW)
    assert found.day(found.start) == "2026-07-01"
    assert found.moment(found.end - 60) == "2026-09-30 23:59"


def test_a_period_that_is_not_over_ends_now_and_remembers_what_was_asked():
    found = period.parse("2026Q4", None, None, "UTC", NOW)
    assert found.end == NOW
    assert found.asked_end == at("2027-01-01T00:00+00:00")


@pytest.mark.parametrize(
    ("quarter", "first", "last", "zone", "paths"),
    [
        (None, None, None, "UTC", ["--from", "--to"]),
        (None, "2026-07-01", None, "UTC", ["--to"]),
        ("2026Q5", None, None, "UTC", ["--quarter"]),
        ("2026Q3", "2026-07-01", None, "UTC", ["--quarter"]),
        (None, "yesterday", "1.10.2026", "UTC", ["--from", "--to"]),
        (None, "2026-07-01", "2026-07-01", "UTC", ["--to"]),
        (None, "2026-07-01", "2026-06-01", "UTC", ["--to"]),
        (None, "2026-07-01", "2026-07-01T00:30", "UTC", ["--to"]),
        (None, "2027-01-01", "2027-04-01", "UTC", ["--from"]),
        (None, "0001-01-01", "2026-10-01", "+14:00", ["--from"]),
        (None, "2020-01-01", "2026-10-01", "UTC", ["--from"]),
        ("2026Q3", None, None, "Mars/Olympus", ["--timezone"]),
        ("nonsense", None, None, "+25:00", ["--timezone", "--quarter"]),
    ],
)
def test_what_is_none_is_told(quarter, first, last, zone, paths):
    with pytest.raises(errors.ManifestError) as caught:
        period.parse(quarter, first, last, zone, NOW)
    assert [problem.path for problem in caught.value.problems] == paths
    assert all(problem.expected for problem in caught.value.problems)
