"""Reading a mapping strictly: every unknown key, missing key and wrong value becomes a `Problem`, all at once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tidemark_runtime import config_parsing, errors
from tidemark_runtime.contract import documents

Parsed = TypeVar("Parsed")


class Fields:
    """One mapping of a file; keys are asked for by name, and `close` complains of those that nobody asked for."""

    def __init__(self, key: str, values: object, problems: list[errors.Problem], expected: str = "a mapping") -> None:
        self.key = key
        self.problems = problems
        self._asked: set[str] = set()
        self._values: Mapping[str, Any] = {}
        if isinstance(values, Mapping):
            self._values = {str(name): value for name, value in values.items()}
        else:
            self.problem("", values, expected)

    def full(self, name: str) -> str:
        return ".".join(part for part in (self.key, name) if part)

    def problem(self, name: str, seen: object, expected: str, remedy: str = "") -> None:
        self.problems.append(errors.Problem(self.full(name), seen, expected, remedy))

    def names(self) -> list[str]:
        return list(self._values)

    def has(self, name: str) -> bool:
        self._asked.add(name)
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """The value as it stands; None when it is missing or null."""
        self._asked.add(name)
        return self._values.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """`default=None`: must be there."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if isinstance(value, str):
            return value
        self.problem(name, value, "text")
        return ""

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(name, value, "true or false")
            return default
        return value

    def number(
        self,
        name: str,
        default: float | None = None,
        *,
        least: float | None = 0.0,
        above: float | None = None,
        most: float | None = None,
    ) -> float:
        """A finite number; `default=None`: must be there."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        expected = _range("a number", least, above, most)
        found = as_number(value)
        if found is None or not _within(found, least, above, most):
            self.problem(name, value, expected)
            return default or 0.0
        return found

    def whole(self, name: str, default: int | None = None, *, least: int | None = 0, most: int | None = None) -> int:
        """A whole number; `default=None`: must be there."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        found = as_number(value)
        if found is None or found != int(found) or not _within(found, least, None, most):
            self.problem(name, value, _range("a whole number", least, None, most))
            return default or 0
        return int(found)

    def part(self, name: str, expected: str = "a mapping") -> Fields | None:
        """A mapping within; None when it is missing."""
        value = self.raw(name)
        return None if value is None else Fields(self.full(name), value, self.problems, expected)

    def close(self) -> None:
        """Every key that was not asked for is unknown."""
        for name in self._values:
            if name not in self._asked:
                near = difflib.get_close_matches(name, self._asked, n=1)
                known = ", ".join(sorted(self._asked))
                remedy = f"Did you mean {near[0]}?" if near else f"Known here: {known}."
                self.problem(name, "this key", "a known key", remedy)


def as_number(value: object) -> float | None:
    """A finite number, also one that YAML reads as text (1e9), or None. Other texts are no numbers: `"64"` is None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not config_parsing.is_exponent(value):
        return None
    try:
        found = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return found if math.isfinite(found) else None


def parsed(parse: Callable[[list[errors.Problem]], Parsed]) -> Parsed:
    """Run `parse` with a list for problems. Raises `ConfigError` with all that it noted there."""
    problems: list[errors.Problem] = []
    result = parse(problems)
    if problems:
        raise errors.ConfigError(problems)
    return result


def read_mapping(path: Path, key: str, example: str) -> Mapping[str, Any]:
    """A YAML or JSON file. Raises `ConfigError` naming `key` where it cannot be read or holds no mapping, and each key
    that stands twice."""
    return documents.read_file(path, key, f"a readable YAML or JSON file, such as {example}")


def one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}"


def _within(value: float, least: float | None, above: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (above is None or value > above) and (most is None or value <= most)


def _bound(number: float) -> str:
    """As a person writes it: 16777216, not 1.67772e+07."""
    return f"{number:.0f}" if number == int(number) and abs(number) < 1e15 else f"{number:g}"


def _range(noun: str, least: float | None, above: float | None, most: float | None) -> str:
    words = [noun]
    if above is not None:
        words.append(f"above {_bound(above)}")
    elif least is not None:
        words.append(f"of at least {_bound(least)}")
    if most is not None:
        words.append(f"{'and ' if len(words) > 1 else 'of '}at most {_bound(most)}")
    return " ".join(words)
