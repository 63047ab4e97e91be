"""Single values that the models check with code: the same checks as pattern and CEL, by the phrase of their type."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from tidemark_operator.api import base
from tidemark_operator.api.crd import cel

MAX_TEXT = 4096
"""Longest text of a mapping's value where the models set no limit."""
_MAX_SIZE_TEXT = 45
_MAX_SCHEDULE = 128

_MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_DAY = "(?i:sun|mon|tue|wed|thu|fri|sat)"
_CRON = (
    ("[0-5]?[0-9]", "[1-9]|[1-5][0-9]"),
    ("[01]?[0-9]|2[0-3]", "[1-9]|1[0-9]|2[0-3]"),
    ("0?[1-9]|[12][0-9]|3[01]", "[1-9]|[12][0-9]|3[01]"),
    (f"0?[1-9]|1[0-2]|{_MONTH}", "[1-9]|1[0-2]"),
    (f"0?[0-6]|{_DAY}", "[1-6]"),
)
"""Values and steps of the five fields; `cron` has the same in Python."""
_NUMBERS = ", ".join(
    f"'{word}': {number}"
    for words, first in (("jan feb mar apr may jun jul aug sep oct nov dec", 1), ("sun mon tue wed thu fri sat", 0))
    for number, word in enumerate(words.split(), first)
)


def _phrase(alias: Any) -> str:
    """The phrase of a type of `base`."""
    return next(item.phrase for item in typing.get_args(alias) if isinstance(item, base.Expected))


def pattern(python: str) -> str:
    r"""The same for Go's RE2, in which `\s` knows ASCII only."""
    return python.replace(r"\s", r"\s\v\x{85}\p{Z}")


def at_least(low: float) -> dict[str, Any]:
    """A rule for a lower limit with a fraction: the API server cuts it off where a whole number is compared with it."""
    return cel.validation(f"self >= {low!r}", f"got %s, expected at least {low!r}", "self")


def keys_match(limits: Mapping[str, Any], phrase: str) -> dict[str, Any]:
    """A rule for all keys of a mapping."""
    tests = [f"k.matches(r'{limits['pattern']}')"]
    if "maxLength" in limits:
        tests.insert(0, f"size(k) <= {limits['maxLength']}")
    if phrase in KEYS:
        tests.append(KEYS[phrase])
    right = " && ".join(tests)
    wrong = f"self.filter(k, !({right}))"
    return cel.validation(f"self.all(k, {right})", f"got the keys %s, expected for each {phrase}", wrong)


def _field(values: str, steps: str) -> str:
    item = rf"(?:\*|(?:{values})(?:-(?:{values}))?)(?:/0*(?:{steps}))?"
    return f"{item}(?:,{item})*"


def _schedule() -> dict[str, Any]:
    fields = " +".join(_field(values, steps) for values, steps in _CRON)
    first, last = (
        f"{{{_NUMBERS}}}[?r.split('-')[{end}].lowerAscii()].orValue(int(r.split('-')[{end}]))" for end in (0, 1)
    )
    value = f"(?:[0-9]{{1,2}}|{_MONTH}|{_DAY})"
    rule = f"self.findAll('{value}-{value}').all(r, {first} <= {last})"
    return {
        "maxLength": _MAX_SCHEDULE,
        "pattern": rf"^(?:@(?:hourly|daily|midnight|weekly|monthly|yearly|annually)| *{fields} *)$",
        "x-kubernetes-validations": [
            cel.validation(rule, "got %s, expected a cron schedule whose ranges rise, such as 1-5", "self")
        ],
    }


def _size() -> dict[str, Any]:
    """A number of bytes without quotes is a size, too."""
    whole = "[quantity(string(self)).asApproximateFloat()].all(x, x < 9.2e18 && double(int(x)) == x)"
    return {
        "type": None,
        "x-kubernetes-int-or-string": True,
        "minimum": 0,
        "maxLength": _MAX_SIZE_TEXT,
        "pattern": r"^[0-9]{1,30}(?:\.[0-9]{0,9})?(?:[KMGTPE]i|[kMGTPE]|[eE][0-9]{1,2})?$",
        "x-kubernetes-validations": [
            cel.validation(
                f"!isQuantity(string(self)) || {whole}",
                "got %s, expected a whole number of bytes, less than 2^63",
                "self",
            )
        ],
    }


def _cidr() -> dict[str, Any]:
    return {
        "x-kubernetes-validations": [
            cel.validation("isCIDR(self)", "got %s, expected a range such as 10.0.0.0/8", "self")
        ]
    }


def _short_prefix(name: str) -> str:
    return f"(!{name}.contains('/') || size({name}.split('/')[0]) <= {base.MAX_PREFIX_LENGTH})"


def _key() -> dict[str, Any]:
    longest = f"at most {base.MAX_PREFIX_LENGTH} characters before the /"
    return {"x-kubernetes-validations": [cel.validation(_short_prefix("self"), f"got %s, expected {longest}", "self")]}


def _inside() -> dict[str, Any]:
    return {
        "x-kubernetes-validations": [
            cel.validation("!('..' in self.split('/'))", "got %s, expected a path without `..`", "self")
        ]
    }


KNOWN: Mapping[str, Mapping[str, Any]] = {
    _phrase(base.Quantity): _size(),
    _phrase(base.Schedule): _schedule(),
    _phrase(base.Cidr): _cidr(),
    _phrase(base.LabelKey): _key(),
    _phrase(base.AbsolutePath): _inside(),
    _phrase(base.RelativePath): _inside(),
}
"""Phrase of a type -> what is added to its schema; a type of None means that OpenAPI's own is left out."""

KEYS: Mapping[str, str] = {phrase: _short_prefix("k") for phrase in map(_phrase, (base.LabelKey, base.AnnotationKey))}
"""Phrase of a type of keys -> what else must hold for the key `k`."""

TOLD = frozenset(map(_phrase, (base.Quantity, base.Schedule)))
"""Phrases that `kubectl explain` shows; those of other types stand in the fields' own words."""
