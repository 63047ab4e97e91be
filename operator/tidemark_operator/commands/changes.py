"""What a new manifest changes in a service that runs, field by field, and what happens to the engine for it. Pure."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tidemark_operator import api, effects, errors, plan

RESTART = "the engine restarts"
AT_ONCE = "takes effect without a restart"
NOTHING = "has no effect yet"


@dataclass(frozen=True, slots=True)
class Changed:
    """One field of the spec."""

    path: str
    """`spec.scheduler.maxNumSeqs`; a section that comes or goes is told field by field."""
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


def written(value: Any) -> str:
    """A value as a manifest has it, on one line; `not set` for None."""
    if value is None:
        return "not set"
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=math.inf)
    text = text.removesuffix("\n").removesuffix("\n...")
    return json.dumps(value, ensure_ascii=False) if "\n" in text else text


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


def _process(service: api.InferenceService, facts: plan.Facts) -> Any:
    """What a pod is made of; two that are equal need no new process, for hot settings are pushed to the engines."""
    deployment = next(child for child in plan.wanted(service, facts) if child["kind"] == "Deployment")
    return deployment["spec"]["template"]


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    return copy.deepcopy({key: value for key, value in document.items() if key != "status"})


def _differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of single values, in sections as well of which one document has nothing."""
    if old == new:
        return
    sections = [item for item in (old, new) if isinstance(item, Mapping)]
    whole = old is None or new is None
    if len(sections) == 2 or (whole and sections and sections[0]):
        before, after = (item if isinstance(item, Mapping) else {} for item in (old, new))
        for key in before.keys() | after.keys():
            yield from _differences(before.get(key), after.get(key), (*path, key))
    else:
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
