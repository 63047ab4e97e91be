"""What all sections of the resource share: strict, frozen models, and fields that explain themselves.

The models hold the API's own defaults, but a CRD rendered from them must not: a default filled in by the API server
could not be told from a value the user has set, and `effects` warns about set values only.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import pydantic
from pydantic import alias_generators

from tidemark_operator.api import cron, quantities


class Section(pydantic.BaseModel):
    """One mapping of the resource. Types are taken as they are written: `"1"` is no number and `1` no text (B075)."""

    model_config = pydantic.ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=alias_generators.to_camel,
        allow_inf_nan=False,
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def null_means_default(cls, values: Any) -> Any:
        """A key without a value is the same as no key (B059)."""
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if value is not None}
        return values


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """Metadata of a type: the phrase for what it accepts, in messages and on the reference page."""

    phrase: str


def field(default: Any, description: str, *, unit: str = "", default_text: str = "", **constraints: Any) -> Any:
    """A field with its texts. `default` is the value, a callable that makes it, or `...` for a required field.

    `default_text` says what an absent value means where the value itself does not.
    """
    extra: dict[str, Any] = {key: text for key, text in {"unit": unit, "default_text": default_text}.items() if text}
    if callable(default):
        return pydantic.Field(default_factory=default, description=description, json_schema_extra=extra, **constraints)
    return pydantic.Field(default, description=description, json_schema_extra=extra, **constraints)


def _size_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else value


def _check_size(value: str) -> str:
    quantities.to_bytes(value)
    return value


def _check_schedule(value: str) -> str:
    problem = cron.problem(value)
    if problem:
        raise ValueError(problem)
    return value


def _no_parent(value: str) -> str:
    if ".." in value.split("/"):
        raise ValueError("Leave out the `..`.")
    return value


def _text(pattern: str, max_length: int) -> pydantic.StringConstraints:
    return pydantic.StringConstraints(pattern=f"^(?:{pattern})$", max_length=max_length)


_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_QUALIFIED = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

Text = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=1024), Expected("text that is not empty")]
ObjectName = Annotated[str, _text(_SUBDOMAIN, 253), Expected("the name of a Kubernetes object: a-z, 0-9, `-`, `.`")]
SecretKey = Annotated[
    str, _text(r"[-._a-zA-Z0-9]+", 253), Expected("a key of the object: letters, digits, `-`, `_`, `.`")
]
LabelKey = Annotated[
    str,
    _text(rf"(?:{_SUBDOMAIN}/)?{_QUALIFIED}", 317),
    Expected("a label key such as team or example.com/team"),
]
LabelValue = Annotated[
    str,
    _text(rf"(?:{_QUALIFIED})?", 63),
    Expected("text of at most 63 characters: letters, digits, `-`, `_`, `.`"),
]
ResourceName = Annotated[
    str,
    _text(rf"cpu|{_SUBDOMAIN}/{_QUALIFIED}", 317),
    Expected("cpu, or a device resource such as nvidia.com/gpu"),
]
EnvName = Annotated[
    str, _text(r"[-._a-zA-Z][-._a-zA-Z0-9]*", 253), Expected("a variable's name: letters, digits, `-`, `_`, `.`")
]
Url = Annotated[str, _text(r"https?://[^\s]+", 2048), Expected("a URL that begins with http:// or https://")]
AbsolutePath = Annotated[
    str, _text(r"/[^\x00]*", 4096), pydantic.AfterValidator(_no_parent), Expected("an absolute path")
]
RelativePath = Annotated[
    str,
    _text(r"[^/\x00][^\x00]*", 4096),
    pydantic.AfterValidator(_no_parent),
    Expected("a path inside the volume, without a leading / and without .."),
]
Schedule = Annotated[str, pydantic.AfterValidator(_check_schedule), Expected('a cron schedule such as "0 3 * * 0"')]
Quantity = Annotated[
    str,
    pydantic.BeforeValidator(_size_as_text),
    pydantic.AfterValidator(_check_size),
    Expected("a size such as 8Gi"),
]
"""Kept as written; `quantities.to_bytes` gives the number."""

Labels = dict[LabelKey, LabelValue]
