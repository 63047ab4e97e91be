"""Every setting with its names, its type and what it accepts, read from the fields of `config`."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator
from typing import Any

from tidemark_runtime import config


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One setting with all its names: `scheduler.maxNumSeqs`, `--max-num-seqs`."""

    section: str
    name: str
    key: str
    setting: config.Setting
    type: Any
    default: Any


def camel(name: str) -> str:
    """`max_num_seqs` -> `maxNumSeqs`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def entries() -> tuple[Entry, ...]:
    """Every setting, in the order of the sections and fields in `config`."""
    return _entries()


@functools.cache
def _entries() -> tuple[Entry, ...]:
    # Resolving type hints takes most of the time of a parse, and a module's classes do not change.
    return tuple(_make_entries())


def _make_entries() -> Iterator[Entry]:
    for section, cls in sections().items():
        yield from _entries_of(cls, section, camel(section))


def _entries_of(cls: type[Any], section: str, prefix: str) -> Iterator[Entry]:
    """The settings of one section, or of one item of a list, whose keys begin with `prefix` and a dot."""
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        setting = item.metadata["setting"]
        yield Entry(section, item.name, f"{prefix}.{camel(item.name)}", setting, hints[item.name], item.default)


def item_class(entry: Entry) -> type[Any] | None:
    """The dataclass of each item where the setting is a list of small sections, else None."""
    item = item_type(entry.type)
    return item if dataclasses.is_dataclass(item) and isinstance(item, type) else None


def item_entries(entry: Entry, position: int | None = None) -> tuple[Entry, ...]:
    """What an item of such a list may hold: `overload.degrade[1].maxTokens`; without a position `...degrade[].`."""
    cls = item_class(entry)
    at = "" if position is None else position
    return () if cls is None else tuple(_entries_of(cls, entry.section, f"{entry.key}[{at}]"))


def describe(entry: Entry) -> str:
    """What the setting accepts, as a phrase for messages, `--help` and the docs table."""
    setting = entry.setting
    if item_type(entry.type) is not None:
        if item_class(entry) is None:
            return "a list of texts"
        return f"a list of mappings with {', '.join(camel(item.name) for item in item_entries(entry))}"
    if setting.choices:
        return f"one of {', '.join(setting.choices)}"
    if without_none(entry.type) is str:
        return "text"
    if without_none(entry.type) is bool:
        return "true or false"
    noun = (
        "a size in bytes such as 8Gi"
        if setting.size
        else ("a whole number" if without_none(entry.type) is int else "a number")
    )
    if setting.minimum is not None and setting.maximum is not None:
        return f"{noun} from {plain(setting.minimum)} to {plain(setting.maximum)}"
    return f"{noun} of at least {plain(setting.minimum)}" if setting.minimum is not None else noun


def plain(number: float) -> str:
    """A bound as a person writes it: 1048576, not 1.04858e+06."""
    return str(int(number)) if number == int(number) else str(number)


@functools.cache
def sections() -> dict[str, type[Any]]:
    """The class of each section, by its field in `EngineConfig`."""
    hints = typing.get_type_hints(config.EngineConfig)
    return {item.name: hints[item.name] for item in dataclasses.fields(config.EngineConfig)}


def without_none(hint: Any) -> Any:
    """`T` of `T | None`, and of `T`."""
    if isinstance(hint, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def item_type(hint: Any) -> Any:
    """`T` of `tuple[T, ...]`; None for what is no list."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None
