"""As much of JSON Schema (draft 7) as the chart's values need, so that the schema is tested where helm is not.

A keyword that is not understood is an error: else a test would pass because nothing was checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
ANNOTATIONS = {"$schema", "title", "description", "definitions"}


def problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """One line a problem: `/images/registry: ...`."""
    return list(_problems(schema, value, schema, ""))


def _problems(rule: Mapping[str, Any], value: Any, root: Mapping[str, Any], path: str) -> Iterator[str]:
    for keyword, wanted in rule.items():
        if keyword not in ANNOTATIONS:
            yield from _CHECKS[keyword](wanted, value, rule, root, path)


def _reference(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    found = root
    for step in wanted.removeprefix("#/").split("/"):
        found = found[step]
    yield from _problems(found, value, root, path)


def _type(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if not isinstance(value, TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean"):
        yield f"{path}: {value!r} is no {wanted}"


def _one_of_values(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if value not in wanted:
        yield f"{path}: {value!r} is none of {wanted}"


def _pattern(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(wanted, value):
        yield f"{path}: {value!r} does not match {wanted}"


def _limit(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(value, int) and not rule.get("minimum", value) <= value <= rule.get("maximum", value):
        yield f"{path}: {value} is out of limits"


def _min_length(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(value, str) and len(value) < wanted:
        yield f"{path}: {value!r} is too short"


def _properties(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key in wanted.keys() & value.keys():
            yield from _problems(wanted[key], value[key], root, f"{path}/{key}")


def _additional(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key in value.keys() - rule.get("properties", {}).keys():
            if wanted is False:
                yield f"{path}/{key}: is not known"
            elif wanted is not True:
                yield from _problems(wanted, value[key], root, f"{path}/{key}")


def _required(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{path}/{key}: is missing" for key in wanted if key not in value)


def _names(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key in value:
            yield from _problems(wanted, key, root, f"{path}/{key}")


def _items(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(wanted, item, root, f"{path}/{index}")


def _unique(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if wanted and isinstance(value, list) and len(value) != len({repr(item) for item in value}):
        yield f"{path}: an item stands there twice"


def _any_of(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if not any(not list(_problems(choice, value, root, path)) for choice in wanted):
        yield f"{path}: {value!r} is none of the choices"


def _not(wanted: Any, value: Any, rule: Any, root: Any, path: str) -> Iterator[str]:
    if not list(_problems(wanted, value, root, path)):
        yield f"{path}: {value!r} is not allowed"


_CHECKS = {
    "$ref": _reference,
    "type": _type,
    "enum": _one_of_values,
    "pattern": _pattern,
    "minimum": _limit,
    "maximum": _limit,
    "minLength": _min_length,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _required,
    "propertyNames": _names,
    "items": _items,
    "uniqueItems": _unique,
    "anyOf": _any_of,
    "not": _not,
}
