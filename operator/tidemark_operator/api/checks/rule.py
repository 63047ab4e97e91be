"""What a rule over more than one field is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemark_operator.api import describe, view

Found = tuple[describe.Loc, object, str, str]
"""Where, what was seen, what was expected, what to do."""
Rule = Callable[[view.View], Iterator[Found]]
"""Raises `view.Unusable` where a value that it needs was refused already."""
