"""What a new manifest changes in a service that runs, field by field, and what happens to the engine for it. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, effects, errors, plan

RESTART = "the engine restarts"
AT_ONCE = "takes effect without a restart"
NOTHING = "has no effect yet"


@dataclass(frozen=True, slots=True)
class Changed:
    """One field of the spec."""

    path: str
    """`spec.scheduler.maxNumSeqs`"""
    before: Any
    """None: was not set."""
    after: Any
    """None: is no longer set."""
    effect: str


def between(before: Mapping[str, Any], after: Mapping[str, Any], facts: plan.Facts) -> list[Changed]:
    """Changed fields in the order of their paths. Both documents are valid."""
    old = _plain(before)
    found = []
    for path in sorted(_differences(old["spec"], after["spec"])):
        values = (_at(old["spec"], path), _at(after["spec"], path))
        found.append(Changed(".".join(("spec", *path)), *values, _effect(old, after, path, facts)))
    return found


def _effect(old: Mapping[str, Any], after: Mapping[str, Any], path: tuple[str, ...], facts: plan.Facts) -> str:
    """Of this field alone. Where the old document with only this change is not valid: that of all changes together."""
    candidate = copy.deepcopy(dict(old))
    _set(candidate["spec"], path, _at(after["spec"], path))
    try:
        new = api.parse(candidate)
    except errors.ManifestError:
        new = api.parse(_plain(after))
    known = api.parse(old)
    if _process(known, facts) != _process(new, facts):
        return RESTART
    ignored = {warning.path for service in (known, new) for warning in effects.unsupported(service, local=True)}
    dotted = ".".join(("spec", *path))
    if any(dotted == item.partition(":")[0] or dotted.startswith(f"{item.partition(':')[0]}.") for item in ignored):
        return NOTHING
    return AT_ONCE


def _process(service: api.InferenceService, facts: plan.Facts) -> tuple[Any, str]:
    """What a pod is made of; two that are equal need no new process."""
    deployment = next(child for child in plan.wanted(service, facts) if child["kind"] == "Deployment")
    return deployment["spec"]["template"], plan.config_hash(service)


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    return copy.deepcopy({key: value for key, value in document.items() if key != "status"})


def _differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in old.keys() | new.keys():
            yield from _differences(old.get(key), new.get(key), (*path, key))
    elif old != new:
        yield path


def _at(spec: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        spec = spec.get(key) if isinstance(spec, Mapping) else None
    return spec


def _set(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *parents, last = path
    for key in parents:
        inner = spec.get(key)
        if not isinstance(inner, dict):
            spec[key] = inner = {}
        spec = inner
    if value is None:
        spec.pop(last, None)
    else:
        spec[last] = value
