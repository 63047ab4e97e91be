"""From a mapping to an `InferenceService`: every problem at once, each with path, value, expectation and remedy."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pydantic

from tidemark_operator import errors, names
from tidemark_operator.api import checks, describe, problems, service, view

Locate = Callable[[describe.Loc], int | None]
"""Line of a path in the file the document came from."""

MAX_DEPTH = 40
MAX_VALUES = 100_000
"""Far more than any real manifest; YAML's aliases can make a few lines grow without end."""


def parse(document: Mapping[str, Any], source: str = "", locate: Locate | None = None) -> service.InferenceService:
    """`document` is what a YAML file or the API server holds, `status` included.

    Raises `ManifestError` with every unknown key and wrong value. A null value means the default.
    """
    locate = locate or _nowhere
    found = _of_the_wrong_kind(document, locate)
    if found:
        raise errors.ManifestError([found], source)
    plain, odd = _plain(document, source)
    if not isinstance(plain.get("status"), dict):
        plain.pop("status", None)
    details: list[Any] = []
    parsed: service.InferenceService | None = None
    try:
        parsed = service.InferenceService.model_validate(plain)
    except pydantic.ValidationError as error:
        details = [item for item in error.errors(include_url=False) if item["loc"] not in {loc for loc, _ in odd}]
    bad = [tuple(part for part in item["loc"] if part != problems.KEY_MARK) for item in details]
    unreadable = [loc for loc, _ in odd]
    all_found = [
        *_wrong_version(plain, locate),
        *(dataclasses.replace(problem, line=locate(loc)) for loc, problem in odd),
        *(problems.from_details(item, locate(loc)) for item, loc in zip(details, bad, strict=True)),
    ]
    for loc, seen, expected, remedy in checks.run(view.View(plain, [*bad, *unreadable])):
        all_found.append(errors.Problem(describe.render(loc), seen, expected, remedy, locate(loc)))
    if all_found or parsed is None:
        raise errors.ManifestError(all_found, source)
    return parsed


def _nowhere(_: describe.Loc) -> None:
    return None


def _of_the_wrong_kind(document: object, locate: Locate) -> errors.Problem | None:
    """A document that is no InferenceService gets this one answer, instead of one for each of its keys."""
    if not isinstance(document, Mapping):
        return errors.Problem(
            "document", document, f"an {names.KIND}: a mapping with apiVersion, kind, metadata, spec", "", locate(())
        )
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind == names.KIND and isinstance(version, str) and version.partition("/")[0] != names.GROUP:
        return errors.Problem(
            "apiVersion",
            version,
            names.API_VERSION,
            "This InferenceService belongs to another product.",
            locate(("apiVersion",)),
        )
    if kind == names.KIND:
        return None
    seen = errors.Seen("nothing") if kind is None else kind
    return errors.Problem("kind", seen, names.KIND, _other_kind(kind), locate(("kind",)))


def _other_kind(kind: object) -> str:
    if kind is None:
        return f"Add kind: {names.KIND} and apiVersion: {names.API_VERSION}."
    if str(kind) in ("List", f"{names.KIND}List"):
        return "Write each of its items as a document of its own, with a line --- between two."
    return problems.near(str(kind), [names.KIND]) or "Tidemark reads only its own kind; apply this one with kubectl."


def _wrong_version(document: Mapping[str, Any], locate: Locate) -> list[errors.Problem]:
    version = document.get("apiVersion")
    if version == names.API_VERSION:
        return []
    seen = errors.Seen("nothing") if version is None else version
    return [
        errors.Problem(
            "apiVersion",
            seen,
            names.API_VERSION,
            "This is the version that this Tidemark reads.",
            locate(("apiVersion",)),
        )
    ]


Odd = list[tuple[describe.Loc, errors.Problem]]
_YAML_NAMES: Mapping[object, str] = MappingProxyType({True: "true", False: "false", None: "null"})


def _plain(document: Mapping[str, Any], source: str) -> tuple[dict[str, Any], Odd]:
    """A deep copy made of dicts and lists, and what is wrong in any field: keys that are no text, broken Unicode.

    Raises `ManifestError` for a document that is too deep or too large.
    """
    count = 0
    odd: Odd = []

    def copy(value: Any, loc: describe.Loc) -> Any:
        nonlocal count
        count += 1
        if len(loc) > MAX_DEPTH or count > MAX_VALUES:
            raise _too_much(
                f"{MAX_DEPTH} levels of nesting" if len(loc) > MAX_DEPTH else f"{MAX_VALUES} values", source
            )
        if isinstance(value, Mapping):
            kept = {}
            for key, item in value.items():
                if problem := _key_problem(key, loc):
                    odd.append(((*loc, str(key)), problem))
                else:
                    kept[key] = copy(item, (*loc, key))
            return kept
        if isinstance(value, list | tuple):
            return [copy(item, (*loc, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and _SURROGATE.search(value):
            odd.append((loc, errors.Problem(describe.render(loc), value, _UNICODE, _NO_HALF)))
            return _SURROGATE.sub("?", value)
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            return _as_float(value)
        return value

    copied: dict[str, Any] = copy(document, ())
    return copied, odd


_LEAST, _MOST = -(2**63), 2**63 - 1
"""An API server reads a whole number beyond these as one with a fraction."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_UNICODE = "valid Unicode text"
_NO_HALF = "It holds half of a UTF-16 surrogate pair; write the character itself."


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _key_problem(key: object, loc: describe.Loc) -> errors.Problem | None:
    """Whole numbers are told by the field, which may say how to write them."""
    if isinstance(key, str):
        if not _SURROGATE.search(key):
            return None
        return errors.Problem(describe.render(loc) or "document", errors.Seen(f"the key {key!a}"), _UNICODE, _NO_HALF)
    if isinstance(key, int) and not isinstance(key, bool):
        return None
    text = _YAML_NAMES[key] if key is None or isinstance(key, bool) else str(key)
    path = describe.render((*loc, text))
    return errors.Problem(path, errors.Seen(f"the key {text}, which is no text"), "text", "Put the key in quotes.")


def _too_much(limit: str, source: str) -> errors.ManifestError:
    seen = errors.Seen(f"more than {limit}")
    remedy = "Look for a YAML alias that contains itself."
    return errors.ManifestError([errors.Problem("document", seen, "a manifest of usual size", remedy)], source)
