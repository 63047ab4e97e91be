"""The scales that quantized segments have for all their tokens: from a scales file, or none at all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_runtime import config
from tidemark_runtime.model import identity, sources
from tidemark_runtime.planning import fixed_scales, page_layout
from tidemark_runtime.worker import map_files


def wanted(setting: str = "kvCache.scalesFile") -> map_files.Wanted:
    """What a scales file is, for messages; `setting`: what names it."""
    readable = "a readable YAML or JSON file with scales, as `tidemark eval calibrate` writes"
    return map_files.Wanted(setting, readable, fixed_scales.CONFIG_MAP_KEY)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What `KVMemory` wants to know, and a note for people."""

    scales: fixed_scales.Scales = field(default_factory=dict)
    note: str = ""
    """Empty where every token has its own scales."""


def choose(kv_cache: config.KVCacheConfig, layout: page_layout.PageLayout, source: sources.ModelSource) -> Chosen:
    """`source`: the model that runs. Raises `ConfigError` with every problem."""
    if kv_cache.scales_file is None:
        return Chosen()
    path = Path(kv_cache.scales_file)
    content = map_files.content(path, wanted())
    found = fixed_scales.parse(map_files.mapping(content, wanted(), str(path)), str(path))
    scales = fixed_scales.of_layout(found, layout, identity.of(source))
    digest = hashlib.sha256(content).hexdigest()[:12]
    return Chosen(scales, f"fixed for {len(scales)} heads, found on {found.tokens} tokens, by {path}, sha256 {digest}")
