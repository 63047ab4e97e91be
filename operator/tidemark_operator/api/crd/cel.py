"""Words to write CEL with: values with their defaults, and what is said where a rule does not hold."""

from __future__ import annotations

import dataclasses
from typing import Any

from tidemark_operator.api import describe, service


def validation(rule: str, text: str, *values: str) -> dict[str, str]:
    """An item of `x-kubernetes-validations`; `text` is one line with a `%s` for each of the CEL `values`.

    `format` is used because its cost is known beforehand; that of `+` is not. The message without values is said where
    a value has a line break, which an API server takes in no message.
    """
    made = {"rule": rule, "message": text.replace("%s", "…")}
    text = text.replace("'", r"\'")
    return {**made, "messageExpression": f"'{text}'.format([{', '.join(values)}])"} if values else made


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule."""

    mirrors: str
    """Name of the function in `checks` that says the same in Python; empty for what is checked elsewhere."""
    at: str
    """Where it stands: `spec.watermarks`, `spec.hardware.tolerations[]`; empty: the whole object."""
    rule: str
    text: str
    """What is said, on one line, with a `%s` for each of `values`."""
    values: tuple[str, ...] = ()
    """CEL for the values that are shown."""
    field: str = ""
    """Path below `at` of the value to change."""

    def dump(self) -> dict[str, str]:
        """As an item of `x-kubernetes-validations`."""
        made = validation(self.rule, self.text, *self.values)
        return {**made, "fieldPath": self.field} if self.field else made


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else repr(value)


def _optional(path: str) -> str:
    return f"self.?{path.replace('.', '.?')}"


def get(at: str, path: str, default: Any = None) -> str:
    """CEL for the value at `path`, or its default."""
    if default is None:
        _, _, info = describe.hint_at(service.InferenceService, (*at.split("."), *path.split(".")))
        default = info.get_default(call_default_factory=True) if info else None
    if default is None:
        raise LookupError(f"{at}.{path} has no default, expected one. Give `get` what an absent value means.")
    return f"{_optional(path)}.orValue({_literal(default)})"


def has(path: str) -> str:
    """CEL for whether there is a value at `path`."""
    return f"{_optional(path)}.hasValue()"


def given(*keys: str) -> str:
    """CEL for the list of those keys that have a value."""
    return f"({' + '.join(f'(has(self.{key}) ? [{key!r}] : [])' for key in keys)})"


def shown(given: str) -> str:
    """CEL that shows such a list."""
    return f"{given}.size() == 0 ? dyn('none of them') : dyn({given})"


def keys(at: str) -> tuple[str, ...]:
    """The keys of a section."""
    hint, _, _ = describe.hint_at(service.InferenceService, at.split("."))
    return tuple(describe.fields(hint))
