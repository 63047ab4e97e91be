"""Which segments of a page are kept in another dtype: from the configuration's rules, or from a map file."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.model import identity, sources
from tidemark_runtime.planning import page_layout, precision_map
from tidemark_runtime.worker import map_files

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What `PageLayout` wants to know, and a note for people."""

    segments: precision_map.Segments = field(default_factory=dict)
    note: str = ""
    """Empty where nothing is kept apart."""


def choose(
    kv_cache: config.KVCacheConfig, target: precision_map.Target, source: sources.ModelSource | None = None
) -> Chosen:
    """`source`: the model that runs; a map file that says it was found for another one is then told of, in the log and
    in the note. Raises `ConfigError` with every problem, for a map that does not fit the model too."""
    if kv_cache.precision_file is not None:
        return _from_file(Path(kv_cache.precision_file), target, kv_cache, source)
    if not kv_cache.precision:
        return Chosen()
    segments = precision_map.segments_of(precision_map.of_settings(kv_cache.precision), target)
    return Chosen(segments, _note(segments, target, "kvCache.precision"))


def _check_loss(found: precision_map.PrecisionMap) -> None:
    """What the configuration itself says was checked when it was parsed; a file is read here first."""
    places = precision_map.places_of(found, [name for name, dtype in page_layout.KV_DTYPES.items() if dtype.lossy])
    if places:
        raise errors.ConfigError([config_parsing.lossy_problem(*place) for place in places])


def wanted(setting: str = "kvCache.precisionFile") -> map_files.Wanted:
    """What a map file is, for messages; `setting`: what names it."""
    readable = "a readable YAML file with rules, as `tidemark eval sensitivity` writes"
    return map_files.Wanted(setting, readable, precision_map.CONFIG_MAP_KEY)


def _from_file(
    path: Path, target: precision_map.Target, kv_cache: config.KVCacheConfig, source: sources.ModelSource | None
) -> Chosen:
    content = map_files.content(path, wanted())
    found = precision_map.parse(map_files.mapping(content, wanted(), str(path)), str(path))
    segments = precision_map.segments_of(found, target)
    if not kv_cache.allow_lossy:
        _check_loss(found)
    note = _note(segments, target, f"{path}, sha256 {hashlib.sha256(content).hexdigest()[:12]}")
    other = "" if source is None else precision_map.of_another(found, source.name, identity.of(source))
    if other:
        _logger.warning("%s: %s", path, other)
    return Chosen(segments, f"{note}. {other}" if other else note)


def _note(segments: precision_map.Segments, target: precision_map.Target, source: str) -> str:
    every = 2 * target.shape.num_layers * target.shape.num_kv_heads
    return f"{len(segments)} of {every} segments in {', '.join(sorted(set(segments.values())))}, by {source}"
