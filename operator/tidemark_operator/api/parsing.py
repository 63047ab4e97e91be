"""From a mapping to an `InferenceService`: every problem at once, each with path, value, expectation and remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    plain = _plain(document, source)
    if not isinstance(plain.get("status"), dict):
        plain.pop("status", None)
    details: list[Any] = []
    parsed: service.InferenceService | None = None
    try:
        parsed = service.InferenceService.model_validate(plain)
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False)
    bad = [tuple(part for part in item["loc"] if part != problems.KEY_MARK) for item in details]
    all_found = [
        *_wrong_version(plain, locate),
        *(problems.from_details(item, locate(loc)) for item, loc in zip(details, bad, strict=True)),
    ]
    for loc, seen, expected, remedy in checks.run(view.View(plain, bad)):
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
    remedy = (
        f"Add kind: {names.KIND} and apiVersion: {names.API_VERSION}."
        if kind is None
        else (
            problems.near(str(kind), [names.KIND]) or "Tidemark reads only its own kind; apply this one with kubectl."
        )
    )
    return errors.Problem("kind", seen, names.KIND, remedy, locate(("kind",)))


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


def _plain(document: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A deep copy made of dicts and lists. Raises `ManifestError` for a document that is too deep or too large."""
    count = 0

    def copy(value: Any, depth: int) -> Any:
        nonlocal count
        count += 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            what = (
                f"levels of nesting, more than {MAX_DEPTH}" if depth > MAX_DEPTH else f"more than {MAX_VALUES} values"
            )
            raise errors.ManifestError(
                [
                    errors.Problem(
                        "document",
                        errors.Seen(what),
                        "a manifest of usual size",
                        "Look for a YAML alias that contains itself.",
                    )
                ],
                source,
            )
        if isinstance(value, Mapping):
            return {key: copy(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [copy(item, depth + 1) for item in value]
        return value

    copied: dict[str, Any] = copy(document, 0)
    return copied
