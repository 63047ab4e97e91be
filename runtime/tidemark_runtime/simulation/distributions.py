"""Lengths and times that vary: constant, uniform, lognormal, or one of some values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidemark_runtime.simulation import fields

EXPECTED = (
    "a number, or one of {uniform: {min: a, max: b}}, {lognormal: {median: m, sigma: s, min: a, max: b}}, "
    "{choice: {values: [a, b], weights: [1, 3]}}"
)


class Distribution(Protocol):
    """Never outside its bounds."""

    @property
    def most(self) -> float:
        """The largest value it can give."""
        ...

    @property
    def least(self) -> float: ...

    def draw(self, source: random.Random) -> float: ...


@dataclass(frozen=True, slots=True)
class Constant:
    value: float

    @property
    def most(self) -> float:
        return self.value

    @property
    def least(self) -> float:
        return self.value

    def draw(self, source: random.Random) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    least: float
    most: float

    def draw(self, source: random.Random) -> float:
        return source.uniform(self.least, self.most)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp of a normal variable; half of the values lie under `median`. What falls outside the bounds is put on them,
    as a site's own limits would."""

    median: float
    sigma: float
    least: float
    most: float

    def draw(self, source: random.Random) -> float:
        return min(self.most, max(self.least, source.lognormvariate(math.log(self.median), self.sigma)))


@dataclass(frozen=True, slots=True)
class Choice:
    values: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def most(self) -> float:
        return max(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    def draw(self, source: random.Random) -> float:
        return source.choices(self.values, self.weights)[0]


TOKENS_MOST = 1 << 20
"""Of one request, prompt or output: no model that we know of has a longer context, and the list of a prompt's tokens is
made for each try."""


def whole(distribution: Distribution, source: random.Random) -> int:
    """A draw, rounded."""
    return round(distribution.draw(source))


def parse_tokens(owner: fields.Fields, name: str) -> Distribution:
    """The distribution of a number of tokens under `name`, which must be there."""
    before = len(owner.problems)
    found = parse(owner, name, least=1, most=TOKENS_MOST)
    broken = [value for value in _written(found) if value != int(value)]
    if broken and len(owner.problems) == before:
        owner.problem(name, broken[0], "whole numbers of tokens", "Round it.")
    return found


def _written(found: Distribution) -> tuple[float, ...]:
    """The values that the file says it can give."""
    return found.values if isinstance(found, Choice) else (found.least, found.most)


def parse(
    owner: fields.Fields, name: str, *, least: float, most: float | None = None, default: float | None = None
) -> Distribution:
    """The distribution under `name`; no value may be under `least` or above `most`. `default=None`: must be there."""
    value = owner.raw(name)
    if value is None and default is not None:
        return Constant(default)
    number = fields.as_number(value)
    if number is not None:
        return _bounded(owner, name, Constant(number), least, most)
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _PARSERS:
        owner.problem(name, value, EXPECTED)
        return Constant(max(least, default or 0.0))
    kind, body = next(iter(value.items()))
    inner = fields.Fields(f"{owner.full(name)}.{kind}", body, owner.problems)
    before = len(owner.problems)
    found = _PARSERS[kind](inner)
    inner.close()
    return _bounded(owner, name, found, least, most) if len(owner.problems) == before else Constant(least)


def _bounded(owner: fields.Fields, name: str, found: Distribution, least: float, most: float | None) -> Distribution:
    if found.least < least:
        owner.problem(name, found.least, f"values of at least {least:g}")
    if most is not None and found.most > most:
        owner.problem(name, found.most, f"values of at most {most:.0f}")
    return found


def _uniform(body: fields.Fields) -> Distribution:
    low, high = body.number("min"), body.number("max")
    _check_order(body, low, high)
    return Uniform(low, high)


def _lognormal(body: fields.Fields) -> Distribution:
    low, high = body.number("min"), body.number("max")
    _check_order(body, low, high)
    return Lognormal(body.number("median", above=0.0), body.number("sigma"), low, high)


def _choice(body: fields.Fields) -> Distribution:
    values, weights = _numbers(body, "values"), None
    if body.has("weights"):
        weights = _numbers(body, "weights")
        if len(weights) != len(values):
            body.problem("weights", len(weights), f"as many as there are values, {len(values)}")
        elif sum(weights) <= 0 or min(weights) < 0:
            body.problem("weights", list(weights), "numbers of at least 0, not all of them 0")
    return Choice(values, weights if weights is not None else (1.0,) * len(values))


def _numbers(body: fields.Fields, name: str) -> tuple[float, ...]:
    value = body.raw(name)
    found = [fields.as_number(item) for item in value] if isinstance(value, list) else []
    numbers = tuple(item for item in found if item is not None)
    if not numbers or len(numbers) != len(found):
        body.problem(name, value, "a list of numbers, at least one")
        return (0.0,)
    return numbers


def _check_order(body: fields.Fields, low: float, high: float) -> None:
    if low > high:
        body.problem("min", low, f"at most max, {high:g}", "Exchange them.")


_PARSERS: dict[str, Callable[[fields.Fields], Distribution]] = {
    "uniform": _uniform,
    "lognormal": _lognormal,
    "choice": _choice,
}
