"""The precision map of a service: what the ConfigMap holds that `kvCache.precision.mapRef` names. Pure.

Read with the engine's own reader, so that the operator calls wrong what the engine would not start with.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, effects
from tidemark_operator.plan import layout
from tidemark_runtime.contract import documents, settings
from tidemark_runtime.planning import page_layout, precision_map

FIELD = "spec.kvCache.precision.mapRef"
NOT_FOUND = "ConfigMapNotFound"
"""As `status.volumes` has it from the kubelet, which says the same of the pod that waits."""
UNUSABLE = "PrecisionMapUnusable"
_LOSSY = tuple(name for name, dtype in page_layout.KV_DTYPES.items() if dtype.lossy)
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
    refused = [*_lossy(service, found), *_not_on_a_device(service, found)]
    if refused:
        return unusable(reference.name, " ".join(refused))
    return Map(reference.name, found)


def unusable(name: str, words: str) -> Map:
    """A map with which no engine would start, and why."""
    return Map(name, None, UNUSABLE, f"{words.rstrip('.')}. Correct it, or change {FIELD}.")


def other_model(mapped: Map | None, name: str) -> str:
    """A sentence for a map that says it was found for another model than `name`; empty where both are the same, or one
    of the two is not known. Names are no proof, so that nothing is refused; the engine compares the weights, too."""
    found_for = "" if mapped is None or mapped.found is None else mapped.found.model
    if mapped is None or not found_for or not name or found_for.casefold() == name.casefold():
        return ""
    return (
        f"The precision map in ConfigMap {mapped.name} was found for the model {found_for}, by its own word, and this "
        f"one is {name}: if that is another one, find a map for it with `tidemark eval sensitivity`."
    )


def name_of_model(service: api.InferenceService) -> str:
    """As `tidemark eval` would name the model: that of its file or folder. Empty where the manifest does not say it."""
    source = service.spec.model.source
    if source.package is not None:
        return source.package.name
    path = source.host_path.path if source.host_path is not None else source.pvc.path if source.pvc is not None else ""
    return posixpath.basename((path or "").rstrip("/")).removesuffix(layout.GGUF)


def _lossy(service: api.InferenceService, found: precision_map.PrecisionMap) -> Iterator[str]:
    if service.spec.kv_cache.allow_lossy:
        return
    for place, dtype in precision_map.places_of(found, _LOSSY):
        yield f"{place}: got {dtype}, expected it only together with kvCache.allowLossy: true. {settings.LOSSY_COST}."


def _not_on_a_device(service: api.InferenceService, found: precision_map.PrecisionMap) -> Iterator[str]:
    dtypes, why = effects.refused_of_kv(service)
    for place, dtype in precision_map.places_of(found, dtypes):
        yield f"{place}: got {dtype}, expected another dtype on a device: {why}."
