"""From pydantic's errors to our problems: path, value seen, what was expected, what to do."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

from tidemark_operator import errors, names
from tidemark_operator.api import describe, service

_MAX_EXACT = 2**53
_METADATA_SHOWN = ("name", "namespace", "labels", "annotations")
"""The rest is set by the cluster."""

KEY_MARK = "[key]"
"""How pydantic says that a key of a mapping, not its value, is wrong."""


def from_details(details: ErrorDetails, line: int | None) -> errors.Problem:
    """One error of a validation as one problem."""
    loc, seen = details["loc"], details["input"]
    path = describe.render([part for part in loc if part != KEY_MARK])
    kind = details["type"]
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown_key(loc, path, line)
    if loc and loc[-1] == KEY_MARK:
        return errors.Problem(
            path, errors.Seen(f"the key {seen!r}"), _key_phrase(loc[:-2]), _key_remedy(details, loc), line
        )
    expected = _expected(loc)
    if kind == "missing":
        return errors.Problem(path, errors.Seen("nothing"), expected, "Add it.", line)
    return errors.Problem(path, seen, expected, _remedy(details, loc), line)


def near(word: str, known: Mapping[str, object] | list[str]) -> str:
    """`Did you mean blockSize?`, or an empty text."""
    folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.7)
    return f"Did you mean {folded[found[0]]}?" if found else ""


def _unknown_key(loc: describe.Loc, path: str, line: int | None) -> errors.Problem:
    hint, _, _ = describe.hint_at(service.InferenceService, loc[:-1])
    known = list(describe.fields(hint)) if describe.is_model(hint) else []
    remedy = _odd_indent(str(loc[-1])) or near(str(loc[-1]), known) or _elsewhere(str(loc[-1])) or "Remove it."
    shown = known if hint is not service.Metadata else _METADATA_SHOWN
    return errors.Problem(path, errors.Seen("an unknown key"), f"one of {', '.join(shown)}", remedy, line)


def _odd_indent(key: str) -> str:
    """What an editor put before the key that looks like the spaces of an indent."""
    first = key[:1]
    if first.isspace() and first != " ":
        return f"It begins with U+{ord(first):04X}, which only looks like a space; indent with plain spaces."
    return ""


def _elsewhere(key: str) -> str:
    """A key that is right, but in another section."""
    found: list[str] = []

    def walk(cls: type[Any], prefix: tuple[str, ...]) -> None:
        for alias, info in describe.fields(cls).items():
            if alias == key:
                found.append(describe.render((*prefix, alias)))
            hint, _ = describe.strip(info.annotation)
            if describe.is_model(hint):
                walk(hint, (*prefix, alias))

    walk(service.Spec, ("spec",))
    return f"Did you mean {found[0]}?" if len(found) == 1 else ""


def _expected(loc: describe.Loc) -> str:
    if loc == ("metadata", "name"):
        return f"at most {names.MAX_NAME_LENGTH} characters of a-z, 0-9 and -, beginning with a letter"
    hint, metadata, _ = describe.hint_at(service.InferenceService, loc)
    if hint is service.Metadata:
        return f"a mapping with keys {', '.join(_METADATA_SHOWN)}"
    return describe.phrase(hint, metadata)


def _key_phrase(loc: describe.Loc) -> str:
    hint, _, _ = describe.hint_at(service.InferenceService, loc)
    arguments = getattr(hint, "__args__", (str,))
    return describe.phrase(arguments[0])


def _key_remedy(details: ErrorDetails, loc: describe.Loc) -> str:
    return _remedy(details, loc) if isinstance(details["input"], str) else "Put the key in quotes."


def _remedy(details: ErrorDetails, loc: describe.Loc) -> str:
    kind, seen, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "value_error":
        return str(context.get("error", ""))
    if kind == "string_type":
        if isinstance(seen, int | float):
            return "Put it in quotes."
        return 'Write "" for an empty text.' if seen is None else ""
    if kind == "string_pattern_mismatch":
        return _odd_character(str(seen))
    if kind == "int_type" and isinstance(seen, float):
        return f"Write {seen:.0f}." if seen.is_integer() and abs(seen) < _MAX_EXACT else ""
    if kind in ("int_type", "float_type", "bool_type") and isinstance(seen, str):
        return "Remove the quotes." if _reads_as(seen) == kind else ""
    if kind == "literal_error" and isinstance(seen, str):
        hint, _, _ = describe.hint_at(service.InferenceService, loc)
        return near(seen, list(getattr(hint, "__args__", ())))
    if kind == "string_too_long":
        return f"It has more than {context['max_length']} characters."
    if kind in ("too_long", "too_short"):
        bound = f"at most {context['max_length']}" if kind == "too_long" else f"at least {context['min_length']}"
        return f"It has {context['actual_length']} items, and may have {bound}."
    return _default_remedy(loc) if kind.startswith(("greater", "less")) else ""


def _odd_character(text: str) -> str:
    """What cannot be seen in the value, and is often why it does not match."""
    if "\n" in text or "\r" in text:
        return "It has a line break; remove it."
    if text.startswith("~/"):
        return "Write the path out; ~ is not replaced."
    if text != text.strip():
        return "It begins or ends with a space; remove it."
    odd = next((sign for sign in text if unicodedata.category(sign) in ("Cc", "Zl", "Zp")), None)
    return "" if odd is None else f"It has the control character U+{ord(odd):04X}; remove it."


def _reads_as(text: str) -> str | None:
    if text in ("true", "false"):
        return "bool_type"
    try:
        float(text)
    except ValueError:
        return None
    if text.isdecimal():
        return "int_type" if str(int(text)) == text else None  # `09` stands there without quotes
    return "float_type"


def _default_remedy(loc: describe.Loc) -> str:
    _, _, info = describe.hint_at(service.InferenceService, loc)
    if info is None or info.is_required():
        return ""
    return "" if info.default is None else f"Without it: {info.default}."
