"""When requests come: at random, evenly, in bursts, at given times, or when a user has read the last answer.

Each kind has `times`, in seconds from the start of its class on, and `expected`: about how many come within so many
seconds, which may be endless.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemark_runtime.simulation import distributions, fields


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent of each other and of the system."""

    rate: float
    """Requests a second, on average."""

    def times(self, source: random.Random) -> Iterator[float]:
        now = 0.0
        while True:
            now += source.expovariate(self.rate)
            yield now

    def expected(self, seconds: float) -> float:
        return self.rate * seconds


@dataclass(frozen=True, slots=True)
class Even:
    """One each 1/rate seconds, the first at once."""

    rate: float

    def times(self, source: random.Random) -> Iterator[float]:
        return (index / self.rate for index in itertools.count())

    def expected(self, seconds: float) -> float:
        return self.rate * seconds


@dataclass(frozen=True, slots=True)
class Bursts:
    """So many at the same moment, again and again."""

    size: int
    every_seconds: float

    def times(self, source: random.Random) -> Iterator[float]:
        return (index // self.size * self.every_seconds for index in itertools.count())

    def expected(self, seconds: float) -> float:
        return self.size * max(1.0, seconds / self.every_seconds)


@dataclass(frozen=True, slots=True)
class At:
    """At these seconds."""

    seconds: tuple[float, ...]

    def times(self, source: random.Random) -> Iterator[float]:
        return iter(sorted(self.seconds))

    def expected(self, seconds: float) -> float:
        return float(len(self.seconds))


@dataclass(frozen=True, slots=True)
class Users:
    """A closed loop: each user sends the next request a while after the last answer ended, however it ended."""

    num: int
    think_seconds: distributions.Distribution
    ramp_seconds: float
    """The first requests are spread over this time, evenly."""

    def times(self, source: random.Random) -> Iterator[float]:
        """The first request of each user."""
        return (index * self.ramp_seconds / self.num for index in range(self.num))

    def expected(self, seconds: float) -> float:
        """The first request of each; how many follow depends on the answers."""
        return float(self.num)


Arrivals = Poisson | Even | Bursts | At | Users


def parse(owner: fields.Fields) -> Arrivals:
    """The `arrivals` of a class of requests."""
    value = owner.raw("arrivals")
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _PARSERS:
        expected = (
            "one of {poisson: {perSecond: r}}, {even: {perSecond: r}}, {bursts: {size: n, everySeconds: s}}, "
            "{at: {seconds: [0, 5]}}, {users: {num: n, thinkSeconds: s}}"
        )
        owner.problem("arrivals", value, expected)
        return At(())
    kind, body = next(iter(value.items()))
    found = fields.Fields(f"{owner.full('arrivals')}.{kind}", body, owner.problems)
    arrivals = _PARSERS[kind](found)
    found.close()
    return arrivals


def _poisson(found: fields.Fields) -> Arrivals:
    return Poisson(found.number("perSecond", above=0.0) or 1.0)


def _even(found: fields.Fields) -> Arrivals:
    return Even(found.number("perSecond", above=0.0) or 1.0)


def _bursts(found: fields.Fields) -> Arrivals:
    return Bursts(found.whole("size", least=1) or 1, found.number("everySeconds", above=0.0) or 1.0)


def _at(found: fields.Fields) -> Arrivals:
    value = found.raw("seconds")
    times = [fields.as_number(item) for item in value] if isinstance(value, list) else []
    if not times or any(item is None or item < 0 for item in times):
        found.problem("seconds", value, "a list of seconds of at least 0, at least one")
    return At(tuple(item for item in times if item is not None))


def _users(found: fields.Fields) -> Arrivals:
    think = distributions.parse(found, "thinkSeconds", least=0.0, default=0.0)
    return Users(found.whole("num", least=1) or 1, think, found.number("rampSeconds", 0.0))


_PARSERS: dict[str, Callable[[fields.Fields], Arrivals]] = {
    "poisson": _poisson,
    "even": _even,
    "bursts": _bursts,
    "at": _at,
    "users": _users,
}
