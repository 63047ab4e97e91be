"""The precision map of a service: what the ConfigMap holds that `kvCache.precision.mapRef` names. Pure.

Read with the engine's own reader, so that the operator calls wrong what the engine would not start with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api
from tidemark_runtime.contract import documents, settings
from tidemark_runtime.planning import page_layout, precision_map

FIELD = "spec.kvCache.precision.mapRef"
NOT_FOUND = "ConfigMapNotFound"
"""As `status.volumes` has it from the kubelet, which says the same of the pod that waits."""
UNUSABLE = "PrecisionMapUnusable"
_READABLE = "YAML with rules, as `tidemark eval sensitivity` writes"


@dataclass(frozen=True, slots=True)
class Map:
    """What is known of the ConfigMap's content."""

    name: str
    """Of the ConfigMap."""
    found: precision_map.PrecisionMap | None = None
    reason: str = ""
    """Why there is no map: NOT_FOUND or UNUSABLE; empty: there is one."""
    message: str = ""
    """The same in words, with what to do."""


def read(service: api.InferenceService, config_map: Mapping[str, Any] | None) -> Map | None:
    """`config_map`: the object that `service` names, None where there is none of that name. None: it names none."""
    reference = service.spec.kv_cache.precision.map_ref
    if reference is None:
        return None
    if config_map is None:
        words = (
            f"ConfigMap {reference.name} ({FIELD}) does not exist, and what fits depends on the map in it. Create it"
        )
        return Map(reference.name, None, NOT_FOUND, f"{words} in the service's namespace, or change {FIELD}.")
    data, key = config_map.get("data"), precision_map.CONFIG_MAP_KEY
    text = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        keys = ", ".join(sorted(map(str, data))) if isinstance(data, Mapping) and data else "nothing"
        words = f"ConfigMap {reference.name}: data has {keys}, expected {key} with {_READABLE}"
        return unusable(reference.name, words)
    where = f"ConfigMap {reference.name}: {key}"
    try:
        found = precision_map.parse(documents.read_yaml(text, where, "what is there", _READABLE), where)
    except settings.ConfigError as error:
        return unusable(reference.name, str(error))
    lossy = sorted({rule.dtype for rule in found.rules if _is_lossy(rule.dtype)})
    if lossy and not service.spec.kv_cache.allow_lossy:
        words = (
            f"{where}: got {lossy[0]}, expected it only together with kvCache.allowLossy: true. {settings.LOSSY_COST}"
        )
        return unusable(reference.name, words)
    return Map(reference.name, found)


def unusable(name: str, words: str) -> Map:
    """A map with which no engine would start, and why."""
    return Map(name, None, UNUSABLE, f"{words.rstrip('.')}. Correct it, or change {FIELD}.")


def _is_lossy(dtype: str) -> bool:
    return dtype in page_layout.KV_DTYPES and page_layout.KV_DTYPES[dtype].lossy
