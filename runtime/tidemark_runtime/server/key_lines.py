"""One line of the key file: a key, and after it what we call it and how important its requests may be.

    KEY name=contracts max-priority=5 priority=1 until=2027-01-31   # a comment

A key has no space in it, because a bearer token has none (RFC 6750, section 2.1); a line whose second word is no
attribute is refused and never taken for a key with spaces, nor for its first word alone.

- `name`: what logs, metrics and degrade rules call it.
- `priority`: what its requests have when they ask for nothing. Default: 0.
- `max-priority`: what they may ask for at most. Default: its `priority`, so that nobody goes first unless the file says
  so. They may always ask for less.
- `until`: the last day, by UTC, on which it opens, as `2027-01-31`. Default: it does not end.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark_runtime import config

_COMMENT = re.compile(r"(^|\s)#.*")
"""Only at the start or after a space: a key with `#` inside stays whole, instead of opening with its first part."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,3}")
_DAY_SECONDS = 86_400
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
ATTRIBUTES = ("name", "priority", "max-priority", "until")


@dataclass(frozen=True, slots=True)
class Key:
    """What the file says of one key; the key itself is not kept."""

    digest: bytes
    """SHA-256 of it."""
    name: str = ""
    priority: int = 0
    max_priority: int = 0
    until: datetime.date | None = None
    """The last day, by UTC, on which it opens; None for one that does not end."""

    @property
    def ends_at(self) -> float | None:
        """Unix time from which on it does not open any more."""
        if self.until is None:
            return None
        midnight = datetime.datetime.combine(self.until, datetime.time(), datetime.UTC)
        return midnight.timestamp() + _DAY_SECONDS

    @property
    def tenant(self) -> str:
        """Whose requests these are: its name, or where it has none a short hash, which no name can be equal to. Empty
        for `ANYONE`."""
        return self.name or (f"sha256:{self.digest.hex()[:12]}" if self.digest else "")


ANYONE = Key(b"", max_priority=config.PRIORITY_MAX)
"""Who asks where no key file is set: nobody is told apart, and nothing is kept from anybody."""


def parse(text: str, *, attributes: bool) -> tuple[Key, ...]:
    """The keys of a file, each once. With `attributes=False` (tokens of /admin) a line is a key and no more.

    Raises `ValueError`, which never repeats a key, for the first line that is wrong, and without any key.
    """
    keys: dict[bytes, tuple[Key, int]] = {}
    names: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        key = _key(words, number, attributes=attributes)
        known, first = keys.setdefault(key.digest, (key, number))
        if known != key:
            raise ValueError(f"lines {first} and {number} hold the same key with different attributes")
        if key.name and names.setdefault(key.name, first) != first:
            raise ValueError(f"lines {names[key.name]} and {number} hold different keys with the same name={key.name}")
    if not keys:
        raise ValueError("it holds no key")
    return tuple(key for key, _ in keys.values())


def _key(words: Sequence[str], number: int, *, attributes: bool) -> Key:
    if len(words) > 1 and not attributes:
        raise ValueError(
            f"line {number} holds more than one word; a token has no attributes, and no spaces, because a bearer token "
            "(RFC 6750) has none. Leave one word there, or replace the token by one without spaces"
        )
    given = dict(_attributes(words[1:], number))
    priority = _priority(given, "priority", 0, number)
    max_priority = _priority(given, "max-priority", priority, number)
    if max_priority < priority:
        raise ValueError(
            f"line {number} has priority={priority} and max-priority={max_priority}, expected max-priority to be at "
            "least priority"
        )
    digest = hashlib.sha256(words[0].encode()).digest()
    return Key(digest, given.get("name", ""), priority, max_priority, _until(given.get("until"), number))


def _attributes(words: Sequence[str], number: int) -> Iterator[tuple[str, str]]:
    """A word that is no attribute is not repeated: it could be the second half of a key."""
    seen = set()
    for position, word in enumerate(words, start=2):
        name, equals, value = word.partition("=")
        if not equals or name not in ATTRIBUTES:
            known = ", ".join(f"{each}=..." for each in ATTRIBUTES)
            raise ValueError(
                f"word {position} of line {number} is none of {known}. Correct it; or, where it is a part of the key, "
                "replace that key by one without spaces, because a bearer token (RFC 6750) has none"
            )
        if name in seen:
            raise ValueError(f"line {number} has {name} twice")
        if name == "name" and not _NAME.fullmatch(value):
            raise ValueError(
                f"line {number} has name={value[:80]!r}, expected 1 to 63 letters, digits, dots, underscores and "
                "dashes, beginning with a letter or digit"
            )
        seen.add(name)
        yield name, value


def _priority(given: Mapping[str, str], name: str, default: int, number: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    if not _WHOLE.fullmatch(value) or not config.PRIORITY_MIN <= int(value) <= config.PRIORITY_MAX:
        raise ValueError(
            f"line {number} has {name}={value[:80]!r}, expected a whole number from {config.PRIORITY_MIN} to "
            f"{config.PRIORITY_MAX}"
        )
    return int(value)


def _until(value: str | None, number: int) -> datetime.date | None:
    if value is None:
        return None
    try:
        if _DAY.fullmatch(value):
            return datetime.date.fromisoformat(value)
    except ValueError:
        pass  # said below: a day that the calendar does not have
    raise ValueError(
        f"line {number} has until={value[:80]!r}, expected a day as year-month-day, such as 2027-01-31: the last one "
        "on which the key opens, by UTC"
    )
