"""Levels of load: each is a workload as `tidemark simulate` reads it, and a window in which it is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tidemark_runtime import errors
from tidemark_runtime.simulation import arrivals, workload

CLASS = "load"
"""Name of the one class of levels that are made from options."""
USERS_MOST = 100_000
LEVELS_MOST = 100
KEPT_UP_SECONDS = 600.0
"""After the window the load goes on for at most so long, while answers that count are awaited."""


class Kind(StrEnum):
    """What grows from level to level."""

    USERS = "users"
    """Closed loop: each sends the next request when it has read the last answer."""
    RATE = "requests/s"
    """Open loop: they come whether or not answers do."""
    SCALE = "x workload"
    """All arrivals of a workload file, so many times as many."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is measured of a load that could go on for ever. Requests first sent within it count; the load is kept up
    until the last of them has its answer."""

    warm_up_seconds: float
    seconds: float
    """At least so long."""
    least_requests: int
    """At least so many that count must have ended."""
    most_seconds: float
    """Not longer, once anything has ended."""


@dataclass(frozen=True, slots=True)
class Level:
    kind: Kind
    amount: float
    load: workload.Workload
    window: Window | None
    """None: all of the workload, which has an end."""

    @property
    def name(self) -> str:
        return "1 user" if self.kind is Kind.USERS and self.amount == 1 else f"{self.amount:g} {self.kind}"


@dataclass(frozen=True, slots=True)
class Shape:
    """Of requests that are not described by a file; token counts as a workload file writes them."""

    prompt_tokens: str = "128"
    output_tokens: str = "64"
    shared_prompt_tokens: int = 0
    arrivals: str = "poisson"
    """Of an open loop: poisson or even."""


def of_users(num: int, shape: Shape, window: Window, seed: int) -> Level:
    """A closed loop whose users begin within the warm-up. Raises `ConfigError`."""
    users = {"num": num, "rampSeconds": window.warm_up_seconds}
    return Level(Kind.USERS, num, _made({"users": users}, shape, window, seed), window)


def of_rate(rate: float, shape: Shape, window: Window, seed: int) -> Level:
    """An open loop. Raises `ConfigError`."""
    return Level(Kind.RATE, rate, _made({shape.arrivals: {"perSecond": rate}}, shape, window, seed), window)


def of_file(path: Path, scales: Sequence[float], seed: int | None) -> list[Level]:
    """A workload file, once for each scale. Raises `ConfigError`."""
    load = workload.load(path, seed=seed)
    return [Level(Kind.SCALE, scale, scaled(load, scale), None) for scale in scales]


def scaled(load: workload.Workload, scale: float) -> workload.Workload:
    """So many times as many requests in the same time. Raises `ConfigError` where that cannot be."""
    problems: list[errors.Problem] = []
    kinds = []
    for kind in load.classes:
        come = _scaled(kind.arrivals, scale)
        if come is None:
            seen = errors.Seen(f"{scale:g} with classes.{kind.name}.arrivals at given seconds")
            problems.append(errors.Problem("--scale", seen, "1", "Only arrivals that have a rate can be scaled."))
            continue
        num = None if kind.num_requests is None else max(1, round(kind.num_requests * scale))
        kinds.append(dataclasses.replace(kind, arrivals=come, num_requests=num))
    if problems:
        raise errors.ConfigError(problems)
    return dataclasses.replace(load, classes=tuple(kinds))


def _scaled(found: arrivals.Arrivals, scale: float) -> arrivals.Arrivals | None:
    if scale == 1:
        return found
    match found:
        case arrivals.Poisson() | arrivals.Even():
            return dataclasses.replace(found, rate=found.rate * scale)
        case arrivals.Bursts():
            return dataclasses.replace(found, size=max(1, round(found.size * scale)))
        case arrivals.Users():
            return dataclasses.replace(found, num=max(1, round(found.num * scale)))
        case arrivals.At():
            return None


def _made(come: Mapping[str, Any], shape: Shape, window: Window, seed: int) -> workload.Workload:
    """Through the same reader as files, whose problems are told by the option's name."""
    values = {
        # Longer than the window, so that the load lasts until the last answer that counts.
        "durationSeconds": window.warm_up_seconds + window.most_seconds + KEPT_UP_SECONDS,
        "classes": {
            CLASS: {
                "arrivals": come,
                "promptTokens": _written(shape.prompt_tokens),
                "outputTokens": _written(shape.output_tokens),
                "sharedPromptTokens": shape.shared_prompt_tokens,
            }
        },
    }
    try:
        return workload.parse(values, CLASS, seed=seed)
    except errors.ConfigError as error:
        problems = [dataclasses.replace(problem, key=_option(problem.key)) for problem in error.problems]
        raise errors.ConfigError(problems) from error


_OPTIONS = {
    "arrivals.users.num": "--users",
    "arrivals.users.rampSeconds": "--warm-up",
    "arrivals.poisson.perSecond": "--rate",
    "arrivals.even.perSecond": "--rate",
    "promptTokens": "--prompt-tokens",
    "outputTokens": "--output-tokens",
    "sharedPromptTokens": "--shared-prompt-tokens",
}


def _option(key: str) -> str:
    """The option that a key of the made workload comes from, with what stands below it."""
    inner = key.removeprefix(f"classes.{CLASS}.")
    for name, option in _OPTIONS.items():
        if inner == name or inner.startswith(f"{name}."):
            return option + inner.removeprefix(name)
    return "--rate" if inner == "classes" else key  # too many requests in all


def _written(text: str) -> Any:
    """A number, or a distribution as a workload file has it."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def numbers(option: str, text: str, *, whole: bool, most: float) -> list[float]:
    """`1,2,4` -> rising numbers. Raises `ConfigError` naming `option`."""
    noun = "whole numbers" if whole else "numbers"
    expected = f"{noun} above 0 and at most {most:g} with commas, rising, such as 1,2,4,8"
    found = []
    for word in text.split(","):
        try:
            found.append(msgspec.convert(word.strip(), type=int if whole else float, strict=False))
        except msgspec.ValidationError:
            raise errors.ConfigError([errors.Problem(option, text, expected)]) from None
    rising = all(left < right for left, right in pairwise(found))
    if not rising or not all(0 < number <= most for number in found):
        raise errors.ConfigError([errors.Problem(option, text, expected)])
    if len(found) > LEVELS_MOST:
        raise errors.ConfigError([errors.Problem(option, text, f"at most {LEVELS_MOST} levels")])
    return [float(number) for number in found]


def ramp(option: str, text: str) -> list[float]:
    """`1:64` -> 1, 2, 4, ... and 64. Raises `ConfigError` naming `option`."""
    first, separator, last = text.partition(":")
    if not separator or not (first.isdecimal() and last.isdecimal()) or not 0 < int(first) < int(last) <= USERS_MOST:
        expected = f"FIRST:LAST, two numbers of users, rising, at most {USERS_MOST}, such as 1:64"
        raise errors.ConfigError([errors.Problem(option, text, expected)])
    found, users = [], int(first)
    while users < int(last):
        found.append(float(users))
        users *= 2
    return [*found, float(last)]
