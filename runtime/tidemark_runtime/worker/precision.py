"""Which segments of a page are kept in another dtype: from the configuration's rules, or from a map file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_runtime import config, errors
from tidemark_runtime.contract import documents
from tidemark_runtime.planning import precision_map

READABLE = "a readable YAML file with rules, as `tidemark eval sensitivity` writes"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What `PageLayout` wants to know, and a note for people."""

    segments: precision_map.Segments = field(default_factory=dict)
    note: str = ""
    """Empty where nothing is kept apart."""


def choose(kv_cache: config.KVCacheConfig, target: precision_map.Target) -> Chosen:
    """Raises `ConfigError` with every problem, for a map that does not fit the model too."""
    if kv_cache.precision_file is not None:
        return _from_file(Path(kv_cache.precision_file), target)
    if not kv_cache.precision:
        return Chosen()
    segments = precision_map.segments_of(precision_map.of_settings(kv_cache.precision), target)
    return Chosen(segments, _note(segments, target, "kvCache.precision"))


def loaded(content: bytes, setting: str, path: str) -> Mapping[str, Any]:
    """What a map file holds, or a ConfigMap with one. Raises `ConfigError` naming `setting` and the file, and each key
    that stands twice."""
    try:
        found = documents.read_yaml(content.decode("utf-8"), setting, path, READABLE)
        if isinstance(found, Mapping) and found.get("kind") == "ConfigMap":
            found = documents.read_yaml(found["data"][precision_map.CONFIG_MAP_KEY], setting, path, READABLE)
    except (UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise errors.ConfigError([errors.Problem(setting, path, READABLE, f"It says: {error}")]) from error
    if not isinstance(found, Mapping):
        raise errors.ConfigError([errors.Problem(setting, path, READABLE, "It holds no mapping.")])
    return found


def _from_file(path: Path, target: precision_map.Target) -> Chosen:
    try:
        content = path.read_bytes()
    except OSError as error:
        problem = errors.Problem("kvCache.precisionFile", str(path), READABLE, f"It says: {error}")
        raise errors.ConfigError([problem]) from error
    found = loaded(content, "kvCache.precisionFile", str(path))
    segments = precision_map.segments_of(precision_map.parse(found, str(path)), target)
    return Chosen(segments, _note(segments, target, f"{path}, sha256 {hashlib.sha256(content).hexdigest()[:12]}"))


def _note(segments: precision_map.Segments, target: precision_map.Target, source: str) -> str:
    every = 2 * target.shape.num_layers * target.shape.num_kv_heads
    return f"{len(segments)} of {every} segments in {', '.join(sorted(set(segments.values())))}, by {source}"
