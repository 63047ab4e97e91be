"""Looks a field up by its path and says in words what it accepts: for messages and for the reference page."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import annotated_types
import pydantic
from pydantic.fields import FieldInfo

from tidemark_operator.api import base

Loc = tuple[str | int, ...]
"""`("spec", "podTemplate", "env", 2, "value")`."""


def render(loc: Sequence[str | int]) -> str:
    """`spec.podTemplate.env[2].value`; keys that hold dots are put in brackets."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").replace("-", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part, ensure_ascii=False)}]"
    return text


def is_model(hint: Any) -> TypeGuard[type[pydantic.BaseModel]]:
    return isinstance(hint, type) and issubclass(hint, pydantic.BaseModel)


def fields(cls: type[pydantic.BaseModel]) -> dict[str, FieldInfo]:
    """Alias -> field."""
    return {info.alias or name: info for name, info in cls.model_fields.items()}


def strip(hint: Any) -> tuple[Any, list[Any]]:
    """A type without `| None` and `Annotated`, and the metadata of the latter."""
    metadata: list[Any] = []
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint, *more = typing.get_args(hint)
            metadata.extend(more)
        elif isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        else:
            return hint, list(_flat(metadata))


def hint_at(root: type[pydantic.BaseModel], loc: Sequence[str | int]) -> tuple[Any, list[Any], FieldInfo | None]:
    """Type, metadata and field of the value at `loc`; the type is None where the path leads nowhere."""
    hint: Any = root
    metadata: list[Any] = []
    info: FieldInfo | None = None
    for part in loc:
        info = None
        if is_model(hint):
            info = fields(hint).get(str(part))
            if info is None:
                return None, [], None
            hint, metadata = strip(info.annotation)
            metadata = [*_flat(info.metadata), *metadata]
        else:
            arguments = typing.get_args(hint)
            if typing.get_origin(hint) not in (list, dict) or not arguments:
                return None, [], None
            hint, metadata = strip(arguments[-1])
    return hint, metadata, info


def phrase(hint: Any, metadata: Sequence[Any] = ()) -> str:
    """What a type accepts: `a whole number from 1 to 256`."""
    hint, more = strip(hint)
    metadata = [*_flat(metadata), *more]
    for item in metadata:
        if isinstance(item, base.Expected):
            return item.phrase
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}" if len(arguments) > 1 else str(arguments[0])
    if origin is list:
        return f"a list, each item {phrase(arguments[0])}"
    if origin is dict:
        return f"a mapping, each value {phrase(arguments[1])}"
    if hint is bool:
        return "true or false"
    if hint in (int, float):
        return f"a {'whole ' if hint is int else ''}number{_range(metadata)}"
    return f"a mapping with keys {', '.join(fields(hint))}" if is_model(hint) else "text"


def _range(metadata: Iterable[Any]) -> str:
    low = high = ""
    for item in metadata:
        if isinstance(item, annotated_types.Ge):
            low = f"{item.ge}"
        elif isinstance(item, annotated_types.Gt):
            low = f"more than {item.gt}"
        elif isinstance(item, annotated_types.Le):
            high = f"{item.le}"
    if low and high:
        return f" from {low} to {high}"
    if low.startswith("more"):
        return f" of {low}"
    return f" of at least {low}" if low else ""


def _flat(metadata: Iterable[Any]) -> Iterable[Any]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _flat(item.metadata)
        else:
            yield item
