"""What one rank of several is told while it loads, and what all of them must agree on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tidemark_runtime import config, errors
from tidemark_runtime.model import parallel
from tidemark_runtime.planning import capacity, fixed_scales, page_layout

KEY = "hardware.tensorParallel"

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class NumPages:
    """Of slab and swap space: the scheduler knows one number of each, so that all ranks take the least of theirs."""

    slab: int
    host: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model that is loaded stands among the ranks that share it."""

    group: parallel.Group
    agree: Callable[[NumPages], NumPages]
    """What this rank has room for -> what all have. Waits for all of them."""

    @property
    def shard(self) -> parallel.Shard:
        return self.group.shard


ALONE = Place(parallel.ALONE, lambda pages: pages)


def check_divides(shape: capacity.ModelShape, size: int, device: str) -> None:
    """Raises ConfigError where the model cannot be divided among `size` ranks. `device`: `hardware.device` as resolved;
    on a processor a manifest cannot ask for ranks, since its `hardware.count` counts cores."""
    wrong = capacity.undividable(shape, size)
    if wrong:
        fits = ", ".join(map(str, capacity.dividers(shape)))
        instead = "compute in one process" if device == "cpu" else "use one device; in a manifest it is hardware.count"
        given = f"Give one of those, or leave --tensor-parallel out and {instead}"
        remedy = f"{size} does not divide {'; '.join(wrong)}. {given}"
        raise errors.ConfigError([errors.Problem(KEY, size, f"one of {fits}", remedy)])


def settings_of(settings: config.EngineConfig, size: int, memory_bytes: int | None, cores: int) -> config.EngineConfig:
    """What each of `size` ranks works by: its part of what they share, which are cores and swap space, and on a
    processor `memory_bytes` (None: each has a device's own). `kvCache.memory` and `kvCache.numPages` are of each."""
    hardware = dataclasses.replace(settings.hardware, threads=max(1, (settings.hardware.threads or cores) // size))
    if memory_bytes is not None:
        hardware = dataclasses.replace(hardware, memory=memory_bytes // size)
    kv_cache = dataclasses.replace(settings.kv_cache, swap_space=settings.kv_cache.swap_space // size)
    return dataclasses.replace(settings, hardware=hardware, kv_cache=kv_cache)


def own_layout(whole: page_layout.PageLayout, shard: parallel.Shard) -> page_layout.PageLayout:
    """A page of the rank's heads, each in the dtype that the map gives it."""
    if shard.size == 1:
        return whole
    own = shard.kv_heads(whole.shape.num_kv_heads)
    shape = dataclasses.replace(whole.shape, num_kv_heads=len(own))
    return dataclasses.replace(whole, shape=shape, precision=_own(whole.precision, own))


def own_scales(whole: fixed_scales.Scales, num_kv_heads: int, shard: parallel.Shard) -> fixed_scales.Scales:
    """Those of the rank's heads."""
    return _own(whole, shard.kv_heads(num_kv_heads))


def _own(
    whole: Mapping[tuple[int, int, page_layout.Kind], _Value], own: range
) -> dict[tuple[int, int, page_layout.Kind], _Value]:
    return {(layer, head - own.start, kind): value for (layer, head, kind), value in whole.items() if head in own}
