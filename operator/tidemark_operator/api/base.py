"""What all sections of the resource share: strict, frozen models, and fields that explain themselves.

The models hold the API's own defaults, but a CRD rendered from them must not: a default filled in by the API server
could not be told from a value the user has set, and `effects` warns about set values only.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections import Counter
from typing import Annotated, Any, TypeVar

import annotated_types
import pydantic
from pydantic import alias_generators

from tidemark_operator.api import cron, quantities

_Item = TypeVar("_Item", str, int)


def without_nulls(values: Any) -> Any:
    """A key without a value is the same as no key (B059)."""
    if isinstance(values, dict):
        return {key: value for key, value in values.items() if value is not None}
    return values


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
        return without_nulls(values)


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """Metadata of a type: the phrase for what it accepts, in messages and on the reference page."""

    phrase: str


def field(
    default: Any, description: str, *, unit: str = "", default_text: str = "", engine: str = "", **constraints: Any
) -> Any:
    """A field with its texts. `default` is the value, a callable that makes it, or `...` for a required field.

    `default_text` says what an absent value means where the value itself does not. `engine` names the setting of the
    engine that gets the value as it is (`scheduler.queueWatermark`): it is written into the engine's configuration,
    and the engine's own declaration says whether a change of it needs a restart.
    """
    texts = {"unit": unit, "default_text": default_text, "engine": engine}
    extra: dict[str, Any] = {key: text for key, text in texts.items() if text}
    if callable(default):
        return pydantic.Field(default_factory=default, description=description, json_schema_extra=extra, **constraints)
    return pydantic.Field(default, description=description, json_schema_extra=extra, **constraints)


def _size_as_text(value: Any) -> Any:
    """Numbers as well, also `1e9`, as Kubernetes takes them."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _check_size(value: str) -> str:
    quantities.to_bytes(value)
    return value


def _check_schedule(value: str) -> str:
    problem = cron.problem(value)
    if problem:
        raise ValueError(problem)
    return value


def each_once(values: list[_Item]) -> list[_Item]:
    """Raises `ValueError` for an item that is there a second time."""
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"{value!r} is there {count} times; once is enough.")
    return values


def _no_parent(value: str) -> str:
    if ".." in value.split("/"):
        raise ValueError("Leave out the `..`.")
    return value


def _check_key(value: str) -> str:
    prefix, slash, _ = value.rpartition("/")
    if slash and len(prefix) > MAX_PREFIX_LENGTH:
        raise ValueError(f"The part before the / has {len(prefix)} characters, and may have {MAX_PREFIX_LENGTH}.")
    return value


def _check_cidr(value: str) -> str:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise ValueError("Write an address, a / and the number of leading bits that count.") from None
    return value


def _text(pattern: str, max_length: int) -> pydantic.StringConstraints:
    return pydantic.StringConstraints(pattern=f"^(?:{pattern})$", max_length=max_length)


_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_QUALIFIED = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_ANY_CASE_LABEL = r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"
_PRINTED = r"[^\p{Cc}\p{Zl}\p{Zp}]"
"""Nothing that ends a line, moves a cursor or rings a bell: such a text goes into logs, headers and messages."""
_VISIBLE = r"[^\s\p{Cc}]"
_IN_URL = r"[^\s\p{Cc}{}<>|^`\"\\]"
"""What no URL has unquoted (RFC 3986, appendix A, and RFC 3987) is refused: Prometheus would take `{{` for a template,
and a file of rules with a wrong one not at all."""

MAX_PREFIX_LENGTH = 253
"""Characters before the `/` of a label's or annotation's key."""

Text = Annotated[
    str,
    _text(rf"{_VISIBLE}(?:{_PRINTED}*{_VISIBLE})?", 1024),
    Expected("text on one line that is not empty, without control characters and without spaces at its ends"),
]
Word = Annotated[
    str, _text(rf"{_VISIBLE}+", 1024), Expected("text that is not empty, without spaces and control characters")
]
ModelName = Annotated[
    str, _text(r"[A-Za-z0-9][-A-Za-z0-9_.]*", 253), Expected("a name that is not empty: letters, digits, `-`, `_`, `.`")
]
ObjectName = Annotated[str, _text(_SUBDOMAIN, 253), Expected("the name of a Kubernetes object: a-z, 0-9, `-`, `.`")]
Namespace = Annotated[
    str, _text(_LABEL, 63), Expected("the name of a namespace: at most 63 characters of a-z, 0-9 and `-`")
]
SecretKey = Annotated[
    str, _text(r"[-._a-zA-Z0-9]+", 253), Expected("a key of the object: letters, digits, `-`, `_`, `.`")
]
LabelKey = Annotated[
    str,
    _text(rf"(?:{_SUBDOMAIN}/)?{_QUALIFIED}", MAX_PREFIX_LENGTH + 64),
    pydantic.AfterValidator(_check_key),
    Expected("a label key such as team or example.com/team, at most 63 characters after the /"),
]
AnnotationKey = Annotated[
    str,
    _text(rf"(?:{_ANY_CASE_LABEL}(?:\.{_ANY_CASE_LABEL})*/)?{_QUALIFIED}", MAX_PREFIX_LENGTH + 64),
    pydantic.AfterValidator(_check_key),
    Expected("an annotation key such as team or example.com/team, at most 63 characters after the /"),
]
"""Kubernetes lets the domain of an annotation, unlike that of a label, have capital letters."""
LabelValue = Annotated[
    str,
    _text(rf"(?:{_QUALIFIED})?", 63),
    Expected("text of at most 63 characters: letters, digits, `-`, `_`, `.`, at its ends letters and digits"),
]
ResourceName = Annotated[
    str,
    _text(rf"cpu|{_SUBDOMAIN}/{_QUALIFIED}", MAX_PREFIX_LENGTH + 64),
    Expected("cpu, or a device resource such as nvidia.com/gpu"),
]
KeyName = Annotated[
    str,
    _text(r"[A-Za-z0-9][-A-Za-z0-9._]{0,62}", 63),
    Expected("the name of an API key, as `name=` gives it in the key file: letters, digits, `-`, `_`, `.`"),
]
EnvName = Annotated[
    str, _text(r"[-._a-zA-Z][-._a-zA-Z0-9]*", 253), Expected("a variable's name: letters, digits, `-`, `_`, `.`")
]
EnvValue = Annotated[str, _text(r"[^\x00]*", 32_768), Expected("text, without the character U+0000")]
Url = Annotated[str, _text(rf"https?://{_IN_URL}+", 2048), Expected("a URL that begins with http:// or https://")]
AbsolutePath = Annotated[
    str,
    _text(rf"/{_PRINTED}*", 4096),
    pydantic.AfterValidator(_no_parent),
    Expected("an absolute path, without control characters"),
]
RelativePath = Annotated[
    str,
    _text(rf"[^/\p{{Cc}}\p{{Zl}}\p{{Zp}}]{_PRINTED}*", 4096),
    pydantic.AfterValidator(_no_parent),
    Expected("a path inside the volume, without a leading /, without .. and control characters"),
]
Cidr = Annotated[
    str,
    _text(r"[0-9A-Fa-f:.]+/[0-9]{1,3}", 64),
    pydantic.AfterValidator(_check_cidr),
    Expected("a range such as 10.0.0.0/8"),
]
Schedule = Annotated[
    str,
    pydantic.StringConstraints(max_length=128),
    pydantic.AfterValidator(_check_schedule),
    Expected('a cron schedule such as "0 3 * * 0"'),
]
Quantity = Annotated[
    str,
    pydantic.BeforeValidator(_size_as_text),
    pydantic.AfterValidator(_check_size),
    Expected("a size such as 8Gi"),
]
"""Kept as written; `quantities.to_bytes` gives the number."""

MAX_LABELS = 64
"""Of one mapping. An API server wants to know beforehand how long its rules may take."""
Labels = Annotated[dict[LabelKey, LabelValue], annotated_types.MaxLen(MAX_LABELS)]
Annotations = dict[AnnotationKey, str]
