"""Which segments of a page are kept in another dtype: from the configuration's rules, or from a map file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.planning import page_layout, precision_map
from tidemark_runtime.worker import map_files


@dataclass(frozen=True, slots=True)
class Chosen:
    """What `PageLayout` wants to know, and a note for people."""

    segments: precision_map.Segments = field(default_factory=dict)
    note: str = ""
    """Empty where nothing is kept apart."""


def choose(kv_cache: config.KVCacheConfig, target: precision_map.Target) -> Chosen:
    """Raises `ConfigError` with every problem, for a map that does not fit the model too."""
    if kv_cache.precision_file is not None:
        chosen = _from_file(Path(kv_cache.precision_file), target)
        _check_loss(chosen.segments, kv_cache)
        return chosen
    if not kv_cache.precision:
        return Chosen()
    segments = precision_map.segments_of(precision_map.of_settings(kv_cache.precision), target)
    return Chosen(segments, _note(segments, target, "kvCache.precision"))


def _check_loss(segments: precision_map.Segments, kv_cache: config.KVCacheConfig) -> None:
    """What the configuration itself says was checked when it was parsed; a file is read here first."""
    lossy = sorted(name for name in set(segments.values()) if page_layout.KV_DTYPES[name].lossy)
    if lossy and not kv_cache.allow_lossy:
        raise errors.ConfigError([config_parsing.lossy_problem(str(kv_cache.precision_file), lossy[0])])


def wanted(setting: str = "kvCache.precisionFile") -> map_files.Wanted:
    """What a map file is, for messages; `setting`: what names it."""
    readable = "a readable YAML file with rules, as `tidemark eval sensitivity` writes"
    return map_files.Wanted(setting, readable, precision_map.CONFIG_MAP_KEY)


def _from_file(path: Path, target: precision_map.Target) -> Chosen:
    content = map_files.content(path, wanted())
    found = map_files.mapping(content, wanted(), str(path))
    segments = precision_map.segments_of(precision_map.parse(found, str(path)), target)
    return Chosen(segments, _note(segments, target, f"{path}, sha256 {hashlib.sha256(content).hexdigest()[:12]}"))


def _note(segments: precision_map.Segments, target: precision_map.Target, source: str) -> str:
    every = 2 * target.shape.num_layers * target.shape.num_kv_heads
    return f"{len(segments)} of {every} segments in {', '.join(sorted(set(segments.values())))}, by {source}"
