"""From the pydantic models to the structural schema that an API server wants: types, limits, texts.

There are no defaults in it. A default filled in by the API server could not be told from a value that the user has
set, and a later version could not change it for objects that exist. What an absent field means stands in its text.

What may be absent may be null (B059): to the models it is no value, and CEL sees an absent field. An API server cannot
check a null against an enum, nor read one as the replicas of a scale, so these fields are not nullable: it drops a null
there before it validates, but in a server-side apply, where it does not, it refuses it.
"""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import annotated_types
import pydantic
from pydantic.fields import FieldInfo

from tidemark_operator.api import base, describe, links
from tidemark_operator.api.crd import formats

MAX_KEYS = 64
"""Of a mapping, and `MAX_ITEMS` of a list, that the models leave open: an API server accepts a rule over all items only
where it can tell beforehand how long it may take."""
MAX_ITEMS = 1024

_READ_BY_SCALE = frozenset({"replicas"})
_VALIDATORS = (pydantic.AfterValidator, pydantic.BeforeValidator, pydantic.PlainValidator, pydantic.WrapValidator)
_TYPES: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def of_model(cls: type[pydantic.BaseModel]) -> dict[str, Any]:
    """The schema of one section with everything below it."""
    fields = describe.fields(cls)
    required = [alias for alias, info in fields.items() if info.is_required()]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "properties": {alias: _of_field(alias, info) for alias, info in fields.items()},
    }


def _of_field(alias: str, info: FieldInfo) -> dict[str, Any]:
    made = {"description": _text(info), **_of_type(info.annotation, info.metadata)}
    if info.is_required() or alias in _READ_BY_SCALE or "enum" in made:
        return made
    return {**made, "nullable": True}


def _of_type(hint: Any, outer: list[Any]) -> dict[str, Any]:
    """`outer`: metadata that pydantic has taken off the type already."""
    hint, inner = describe.strip(typing.Annotated[(hint, *outer)] if outer else hint)
    if describe.is_model(hint):
        return of_model(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        items = _of_type(arguments[0], [])
        return {"type": "array", "maxItems": MAX_ITEMS, "items": items, **_limits(inner, "Items"), **_unique(inner)}
    if origin is dict:
        return {**_of_mapping(*arguments), **_limits(inner, "Properties")}
    if origin is typing.Literal:
        return {"type": "string", "enum": list(arguments)}
    made = {"type": _TYPES[hint], **_limits(inner, "Length"), **_format(inner)}
    return {key: value for key, value in made.items() if value is not None}


def _unique(metadata: list[Any]) -> dict[str, Any]:
    """A list whose items differ. Raises `LookupError` for another check that only Python knows."""
    if not any(isinstance(item, pydantic.AfterValidator) and item.func is base.each_once for item in metadata):
        _known(metadata, {})
        return {}
    return {"x-kubernetes-list-type": "set"}


def _of_mapping(key: Any, value: Any) -> dict[str, Any]:
    """OpenAPI says nothing about keys in a CRD; a rule does."""
    key_metadata = describe.strip(key)[1]
    _known(key_metadata, formats.KEYS)
    values = _of_type(value, [])
    if values["type"] == "string":
        values = {"maxLength": formats.MAX_TEXT, **values}
    return {
        "type": "object",
        "maxProperties": MAX_KEYS,
        "additionalProperties": values,
        "x-kubernetes-validations": [formats.keys_match(_limits(key_metadata, "Length"), describe.phrase(key))],
    }


def _limits(metadata: list[Any], counted: str) -> dict[str, Any]:
    """Ranges, patterns and lengths; `counted` is `Length` for texts and `Items` for lists."""
    limits: dict[str, Any] = {}
    for item in metadata:
        match item:
            case annotated_types.Ge(low):
                limits["minimum"] = low
                if isinstance(low, float) and not low.is_integer():
                    limits["x-kubernetes-validations"] = [formats.at_least(low)]
            case annotated_types.Gt(low):
                limits |= {"minimum": low, "exclusiveMinimum": True}
            case annotated_types.Le(high):
                limits["maximum"] = high
            case annotated_types.MinLen(count):
                limits[f"min{counted}"] = count
            case annotated_types.MaxLen(count):
                limits[f"max{counted}"] = count
            case pydantic.StringConstraints():
                found = {"minLength": item.min_length, "maxLength": item.max_length}
                limits |= {key: value for key, value in found.items() if value is not None}
                if isinstance(item.pattern, str):
                    limits["pattern"] = formats.pattern(item.pattern)
    return limits


def _format(metadata: list[Any]) -> dict[str, Any]:
    """What a type checks in Python, said for an API server.

    Raises `LookupError` for a type that nobody has said it for, so that no check is forgotten.
    """
    known = _known(metadata, formats.KNOWN)
    return copy.deepcopy(dict(formats.KNOWN[known])) if known else {}


def _known(metadata: list[Any], table: Mapping[str, Any]) -> str | None:
    """The phrase of a type of which `table` says how it is checked; None where there is nothing to say."""
    for item in metadata:
        if isinstance(item, base.Expected) and item.phrase in table:
            return item.phrase
    for item in metadata:
        if isinstance(item, _VALIDATORS):
            raise LookupError(f"{item} is checked in Python only, expected an entry in crd/formats.py. Add it there.")
    return None


def _text(info: FieldInfo) -> str:
    """What `kubectl explain` shows: meaning, what is accepted where the type does not say it, unit, default, and
    whether a change restarts the engine."""
    extra: dict[str, Any] = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    parts = [info.description or "", *_accepted(info, str(extra.get("unit", "")))]
    default = str(extra.get("default_text", "")) or _default(info)
    if default:
        parts.append(f"Default: {default}.")
    return " ".join(filter(None, (*parts, links.effect(info))))


def _accepted(info: FieldInfo, unit: str) -> Iterator[str]:
    hint, metadata = describe.strip(info.annotation)
    phrases = [item.phrase for item in (*info.metadata, *metadata) if isinstance(item, base.Expected)]
    if hint in (int, float):
        yield f"{_sentence(describe.phrase(info.annotation, info.metadata))}{f', in {unit}' if unit else ''}."
    elif formats.TOLD.intersection(phrases):
        yield f"{_sentence(phrases[0])}."
    elif unit:
        yield f"In {unit}."


def _sentence(phrase: str) -> str:
    return f"{phrase[0].upper()}{phrase[1:]}"


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return ""
    value = info.get_default(call_default_factory=True)
    if value is None or value in ([], {}) or isinstance(value, pydantic.BaseModel):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
