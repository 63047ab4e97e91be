"""Options of `tidemark operator` that are more than a word. What is wrong is told with the option, before any start."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable

import pydantic

from tidemark_operator import errors, names
from tidemark_operator.api import base

_LABELS: pydantic.TypeAdapter[dict[str, str]] = pydantic.TypeAdapter(base.Labels)
_NAMESPACE: pydantic.TypeAdapter[str] = pydantic.TypeAdapter(base.Namespace)
_URL: pydantic.TypeAdapter[str] = pydantic.TypeAdapter(base.Url)


def labels(option: str, given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` each, sorted. Raises `errors.ManifestFileError`."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not _is(_LABELS, {key: value}):
            raise errors.ManifestFileError(
                f"{option}: got {text!r}, expected KEY=VALUE of a label, such as release=mon"
            )
        if names.is_own(key):
            raise errors.ManifestFileError(
                f"{option}: got {text!r}, expected a label that the operator does not set itself"
            )
        found[key] = value
    return tuple(sorted(found.items()))


def namespaces(option: str, given: Iterable[str]) -> tuple[str, ...]:
    """Each once. Raises `errors.ManifestFileError`."""
    found = tuple(dict.fromkeys(given))
    for name in found:
        if not _is(_NAMESPACE, name):
            raise errors.ManifestFileError(f"{option}: got {name!r}, expected the name of a namespace")
    return found


def url(option: str, given: str) -> str:
    """Raises `errors.ManifestFileError`."""
    if not _is(_URL, given) or not _has_host(given):
        raise errors.ManifestFileError(
            f"{option}: got {given!r}, expected a URL such as https://wiki.example.com/tidemark"
        )
    return given


def _has_host(url: str) -> bool:
    try:
        return bool(urllib.parse.urlsplit(url).hostname)
    except ValueError:
        return False  # half an address of IPv6


def _is(expected: pydantic.TypeAdapter[dict[str, str]] | pydantic.TypeAdapter[str], value: object) -> bool:
    try:
        expected.validate_python(value, strict=True)
    except pydantic.ValidationError:
        return False
    return True
