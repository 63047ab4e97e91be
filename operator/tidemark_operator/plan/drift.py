"""Does an object of the cluster still say what we want? Answered without a write, so that an idle service causes none.

Two things are compared. The hash of the manifest that was last applied stands on the object: if ours is another, there
is something to apply, if only a field that we stopped setting. And every value of the manifest must be found in the
object: what others changed is found there, what the API server or others added is none of our business, but in a
selector, where one more label makes it select nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_operator import names
from tidemark_operator.api import quantities

_NAMING_FIELDS = ("uid", "name", "containerPort", "type", "key")
"""What tells the items of a list apart, whatever their order: the first of these that all items have and that differs
among them. `uid` for owners, `name` for containers, volumes and variables."""
_AMOUNTS = ("requests", "limits")
_WHOLE = ("selector", "matchLabels", "nodeSelector", "podSelector", "namespaceSelector")
"""Mappings that an API server takes as one value (`mapType: atomic`): nothing is added to them."""
_TEXTS_BY_KEY = ("annotations", "labels", "matchLabels", "nodeSelector", "selector", "data")
"""Mappings whose keys are not fields: what is empty there is kept."""


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with its own hash among its annotations: the form in which it is applied and compared."""
    metadata = dict(manifest["metadata"])
    annotations = {**(metadata.get("annotations") or {}), names.MANIFEST_HASH_ANNOTATION: _hash(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def first(wanted: Mapping[str, Any], live: Mapping[str, Any] | None) -> str | None:
    """Where the live object first differs from a sealed manifest: `spec.replicas: 3 instead of 2`; None: nowhere."""
    if live is None:
        return "it does not exist"
    return _differs(wanted, live, "")


def _hash(manifest: Mapping[str, Any]) -> str:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _differs(wanted: Any, live: Any, path: str) -> str | None:
    if isinstance(wanted, Mapping):
        return _mappings(wanted, live, path)
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return _sequences(wanted, live, path)
    if wanted == live or (_is_amount(path) and _same_amount(wanted, live)):
        return None
    if wanted == "" and live is None and not any(part in _TEXTS_BY_KEY for part in path.split(".")):
        return None  # a field whose text is empty is not stored
    return f"{path}: {_short(live)} instead of {_short(wanted)}"


def _mappings(wanted: Mapping[str, Any], live: Any, path: str) -> str | None:
    if live is None and not wanted:
        return None
    if not isinstance(live, Mapping):
        return f"{path}: {_short(live)} instead of a section"
    added = sorted(live.keys() - wanted.keys())
    if added and path.split(".")[-1] in _WHOLE:
        return f"{path}.{added[0]}: {_short(live[added[0]])} instead of nothing"
    for key, value in wanted.items():
        found = _differs(value, live.get(key), f"{path}.{key}" if path else key)
        if found:
            return found
    return None


def _sequences(wanted: Sequence[Any], live: Any, path: str) -> str | None:
    if not wanted and not live:
        return None
    if not isinstance(live, Sequence) or isinstance(live, str):
        return f"{path}: {_short(live)} instead of {len(wanted)} items"
    field = _naming_field(wanted)
    if field is None:
        if len(wanted) != len(live):
            return f"{path}: {len(live)} items instead of {len(wanted)}"
        pairs = [(f"{path}[{index}]", item, live[index]) for index, item in enumerate(wanted)]
    else:
        by_name = {item.get(field): item for item in live if isinstance(item, Mapping)}
        pairs = [(f"{path}[{item[field]}]", item, by_name.get(item[field])) for item in wanted]
    return next((found for where, item, other in pairs if (found := _differs(item, other, where))), None)


def _naming_field(items: Sequence[Any]) -> str | None:
    if not all(isinstance(item, Mapping) for item in items):
        return None
    for field in _NAMING_FIELDS:
        values = [item.get(field) for item in items]
        if None not in values and len(set(map(str, values))) == len(values):
            return field
    return None


def _is_amount(path: str) -> bool:
    parts = path.split(".")
    return any(part in _AMOUNTS for part in parts[:-1]) or parts[-1] == "sizeLimit"


def _same_amount(wanted: Any, live: Any) -> bool:
    """The API server writes quantities its own way: 1024Mi comes back as 1Gi, 0.5 as 500m."""
    try:
        return quantities.to_number(str(wanted)) == quantities.to_number(str(live))
    except ValueError:
        return False


def _short(value: Any, limit: int = 60) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
