"""One value, one section: from what a file or a command line says to what a setting is, or the problem with it."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.config_parsing import catalogue

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kKMGT]i?)B?")
_UNITS = {
    "": 1,
    "k": 1000,
    **{f"{unit}{i}": (1024 if i else 1000) ** power for power, unit in enumerate("KMGT", start=1) for i in ("", "i")},
}
_EXPONENT = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")
_INTEGER_MAX = 2**63 - 1


def convert_section(
    name: str,
    settings: Any,
    known: Iterable[catalogue.Entry],
    problems: list[errors.Problem],
    textual: Collection[str] = (),
) -> dict[str, Any]:
    """Field names and values of the section that is called `name`; what is wrong goes to `problems`."""
    if not isinstance(settings, Mapping):
        problems.append(errors.Problem(name, settings, "a mapping of settings"))
        return {}
    by_key = {entry.key: entry for entry in known}
    parsed = {}
    for key, value in settings.items():
        full = f"{name}.{key}"
        if full not in by_key:
            problems.append(unknown(full, by_key))
        elif value is not None:
            try:
                parsed[by_key[full].name] = convert(by_key[full], value, textual=full in textual)
            except errors.ConfigError as error:
                problems.extend(error.problems)
    return parsed


def convert(entry: catalogue.Entry, value: Any, *, textual: bool) -> Any:
    """`value` as the setting's type; `textual`: a text may stand for a number or a truth value, as on a command line.
    Raises `ConfigError`."""
    setting = entry.setting
    wanted = catalogue.without_none(entry.type)
    if catalogue.item_type(wanted) is not None:
        return _convert_list(entry, value)
    expected = catalogue.describe(entry)
    wrong = errors.ConfigError([errors.Problem(entry.key, value, expected)])
    if setting.choices or wanted is str:
        if not isinstance(value, str) or (setting.choices and value not in setting.choices):
            raise wrong
        return value
    if wanted is bool:
        truth = {"true": True, "false": False}.get(value, value) if textual and isinstance(value, str) else value
        if not isinstance(truth, bool):
            raise wrong
        return truth
    number = _number(value, size=setting.size, textual=textual)
    if number is None:
        raise _no_number(entry, value)
    if wanted is int and abs(number) > _INTEGER_MAX and setting.maximum is None:
        limited = f"{expected} and at most {_INTEGER_MAX}"
        raise errors.ConfigError([errors.Problem(entry.key, value, limited)])
    if not _is_usable(number, wanted) or (wanted is int and number != int(number)):
        raise wrong
    if (setting.minimum is not None and number < setting.minimum) or (
        setting.maximum is not None and number > setting.maximum
    ):
        raise wrong
    return int(number) if wanted is int else float(number)


def _convert_list(entry: catalogue.Entry, value: Any) -> tuple[Any, ...]:
    """A list of texts, or of small sections; every problem of every item, each named by its position."""
    if not isinstance(value, list | tuple):
        raise errors.ConfigError([errors.Problem(entry.key, value, catalogue.describe(entry))])
    problems: list[errors.Problem] = []
    cls = catalogue.item_class(entry)
    items: list[Any] = []
    for position, item in enumerate(value):
        at = f"{entry.key}[{position}]"
        if cls is not None:
            items.append(convert_section(at, item, catalogue.item_entries(entry, position), problems))
        elif isinstance(item, str) and item:
            items.append(item)
        else:
            problems.append(errors.Problem(at, item, "a text that is not empty"))
    if problems:
        raise errors.ConfigError(problems)
    return tuple(items) if cls is None else tuple(cls(**settings) for settings in items)


def _is_usable(number: int | float, wanted: type) -> bool:
    """Finite; a whole number in 64 bits, and one of 400 digits would not even become a float."""
    if wanted is int:
        return abs(number) <= _INTEGER_MAX
    return abs(number) <= sys.float_info.max


def _no_number(entry: catalogue.Entry, value: Any) -> errors.ConfigError:
    """Where the text is a number, what is wrong are only the quotation marks."""
    quoted = isinstance(value, str) and _number(value, size=entry.setting.size, textual=True) is not None
    remedy = "Write it as a number: without quotation marks." if quoted else ""
    return errors.ConfigError([errors.Problem(entry.key, value, catalogue.describe(entry), remedy)])


def is_exponent(text: str) -> bool:
    """True for `1e9`: a number in JSON, but YAML 1.1 takes it for text unless it has a dot and a sign, `1.0e+9`."""
    return _EXPONENT.fullmatch(text) is not None


def _number(value: Any, *, size: bool, textual: bool) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return None
    if size:
        match = _SIZE.fullmatch(value.strip())
        return float(match[1]) * _UNITS[match[2]] if match and match[2] in _UNITS else None
    if not textual and not is_exponent(value):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def unknown(key: str, known: Iterable[str]) -> errors.Problem:
    """`key` is none of `known`. Only names are compared: keys of one section all look alike for its sake."""
    section, _, name = key.rpartition(".")
    names: dict[str, str] = {}
    for full in known:
        owner, _, last = full.rpartition(".")
        if owner == section or last not in names:
            names[last] = full
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"Did you mean {names[near[0]]}?" if near else "Remove it."
    return errors.Problem(key, "this key", "a known setting", remedy)
