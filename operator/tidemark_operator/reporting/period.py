"""The period of a report: half-open, from the first moment to just before the last. Times are seconds since 1970."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from dataclasses import dataclass

from tidemark_operator import errors

LEAST_SECONDS = 3600
"""Over less than an hour nothing can be said of a quarter, and few samples lie in it."""
DAY_SECONDS = 86_400
MOST_SECONDS = 5 * 366 * DAY_SECONDS
"""Of a period. Nobody writes off devices over longer; a first day of the year 1 would be asked for, point by point."""

_QUARTER = re.compile(r"(\d{4})-?[Qq]([1-4])")
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")


@dataclass(frozen=True, slots=True)
class Period:
    """`[start, end)`, and the time zone in which its days begin and are shown."""

    start: float
    end: float
    zone: datetime.tzinfo = datetime.UTC
    asked_end: float | None = None
    """Where the period that was asked for is not over yet: its own end."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def day(self, at: float) -> str:
        """`2026-07-01`."""
        return datetime.datetime.fromtimestamp(at, self.zone).strftime("%Y-%m-%d")

    def moment(self, at: float) -> str:
        """`2026-07-01 14:05`."""
        return datetime.datetime.fromtimestamp(at, self.zone).strftime("%Y-%m-%d %H:%M")


def parse(quarter: str | None, first: str | None, last: str | None, zone: str, now: float) -> Period:
    """What `--quarter`, `--from`, `--to` and `--timezone` say. One that is not over ends with the last full minute.

    Raises `errors.ManifestError` with every problem.
    """
    problems: list[errors.Problem] = []
    found = _zone(zone, problems)
    start, end = _both(quarter, first, last, found, problems)
    if start is not None and end is not None and not problems:
        problems += _wrong(start, end, now, found)
    if problems or start is None or end is None:
        raise errors.ManifestError(problems, "the period")
    return Period(start, min(end, now // 60 * 60), found, end if end > now else None)


def _both(
    quarter: str | None, first: str | None, last: str | None, zone: datetime.tzinfo, problems: list[errors.Problem]
) -> tuple[float | None, float | None]:
    if quarter is not None:
        if first is not None or last is not None:
            problems.append(errors.Problem("--quarter", quarter, "either --quarter or --from and --to, not both"))
        return _quarter(quarter, zone, problems)
    for name, value, example in (("--from", first, "2026-07-01"), ("--to", last, "2026-10-01")):
        if value is None:
            problems.append(
                errors.Problem(
                    name, errors.Seen("nothing"), f"a day such as {example}", "Or give the quarter: --quarter 2026Q3."
                )
            )
    return _moment("--from", first, zone, problems), _moment("--to", last, zone, problems)


def _quarter(
    text: str, zone: datetime.tzinfo, problems: list[errors.Problem]
) -> tuple[float, float] | tuple[None, None]:
    match = _QUARTER.fullmatch(text.strip())
    if match is None or not 1970 < int(match[1]) < 9999:
        problems.append(errors.Problem("--quarter", text, "a year and a quarter, such as 2026Q3"))
        return None, None
    year, month = int(match[1]), 3 * int(match[2]) - 2
    after = (year, month + 3) if month < 10 else (year + 1, 1)
    return (
        datetime.datetime(year, month, 1, tzinfo=zone).timestamp(),
        datetime.datetime(*after, 1, tzinfo=zone).timestamp(),
    )


def _moment(name: str, text: str | None, zone: datetime.tzinfo, problems: list[errors.Problem]) -> float | None:
    """A day or a moment of ISO 8601; without an offset of its own it is one of `zone`."""
    if text is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(text.strip())
        if found.tzinfo is None:
            found = found.replace(tzinfo=zone)
        if not 1970 < found.year < 9999:  # what no zone can show any more
            raise ValueError(f"the year {found.year}")
        return found.timestamp()
    except (ValueError, OverflowError):
        problems.append(errors.Problem(name, text, "a day or a moment, such as 2026-07-01 or 2026-07-01T08:00+08:00"))
        return None


def _wrong(start: float, end: float, now: float, zone: datetime.tzinfo) -> list[errors.Problem]:
    shown = Period(start, end, zone)
    if end <= start:
        return [
            errors.Problem(
                "--to",
                shown.moment(end),
                f"a moment after --from ({shown.moment(start)})",
                "The period is from the first day to the day after the last: for a third quarter, "
                "2026-07-01 to 2026-10-01.",
            )
        ]
    if start >= now - LEAST_SECONDS:
        return [
            errors.Problem(
                "--from",
                shown.moment(start),
                f"a moment at least an hour before now ({shown.moment(now)})",
                "What lies in the future has no figures; `tidemark plan` and `tidemark simulate` predict.",
            )
        ]
    if end - start > MOST_SECONDS:
        return [
            errors.Problem(
                "--from",
                shown.day(start),
                f"a day at most five years before --to ({shown.day(end)})",
                "Ask for shorter periods, one after the other.",
            )
        ]
    if end - start < LEAST_SECONDS:
        return [errors.Problem("--to", shown.moment(end), f"at least an hour after --from ({shown.moment(start)})")]
    return []


def _zone(text: str, problems: list[errors.Problem]) -> datetime.tzinfo:
    """`UTC`, `+08:00` or a name such as `Asia/Shanghai`."""
    if text.upper() in ("UTC", "Z"):
        return datetime.UTC
    match = _OFFSET.fullmatch(text)
    if match is not None and int(match[2]) < 24 and int(match[3]) < 60:
        delta = datetime.timedelta(hours=int(match[2]), minutes=int(match[3]))
        return datetime.timezone(delta if match[1] == "+" else -delta)
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        problems.append(
            errors.Problem(
                "--timezone",
                text,
                "UTC, an offset such as +08:00, or a name that this machine knows, such as Asia/Shanghai",
            )
        )
        return datetime.UTC
