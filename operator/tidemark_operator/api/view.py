"""Reads single values of a document that may be wrong elsewhere, with the defaults filled in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pydantic

from tidemark_operator.api import describe, service


class Unusable(Exception):
    """The value itself was refused already, so that nothing more can be said about it."""


class View:
    """A document and the places where validation found something."""

    def __init__(self, document: Mapping[str, Any], bad: Iterable[describe.Loc]) -> None:
        self._document = document
        self._bad = tuple(bad)

    def get(self, *loc: str | int) -> Any:
        """The value at `loc` as written, or its default. Raises `Unusable`."""
        self._check(loc)
        value: Any = self._document
        for depth, part in enumerate(loc):
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                value = None
            if value is None:
                return self._default(loc[: depth + 1], loc[depth + 1 :])
        return value

    def keys(self, *loc: str | int) -> Collection[str]:
        """Keys that a mapping really has, those without a value left out; nothing where there is none."""
        value = self.get(*loc)
        return [key for key, item in value.items() if item is not None] if isinstance(value, dict) else []

    def _check(self, loc: describe.Loc) -> None:
        for bad in self._bad:
            shared = min(len(bad), len(loc))
            if bad[:shared] == loc[:shared]:
                raise Unusable

    def _default(self, loc: describe.Loc, rest: describe.Loc) -> Any:
        _, _, info = describe.hint_at(service.InferenceService, loc)
        if info is None or info.is_required():
            return None
        value = info.get_default(call_default_factory=True)
        for part in rest:
            if not isinstance(value, pydantic.BaseModel):
                return None
            name = next(name for name, item in type(value).model_fields.items() if part in (item.alias, name))
            value = getattr(value, name)
        return value
