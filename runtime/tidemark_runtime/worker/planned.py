"""What `tidemark plan` says of this engine, and what was measured of it: the two that are compared at the start."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_runtime import config, errors
from tidemark_runtime.model import sources
from tidemark_runtime.planning import capacity, footprint, known_models, model_files, page_layout, pool_size

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OnDevice:
    """What the sum of a device's memory needs beside that of a processor's."""

    item_bytes: int
    """Of activations."""
    has_graphs: bool
    """Whether steps will be recorded."""
    has_kernels: bool = True
    """Else groups of weights are expanded."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What loading has found out."""

    shape: capacity.ModelShape
    """Of the whole model, also where several devices share it."""
    layout: page_layout.PageLayout
    """A page of one device."""
    limit_bytes: int
    max_context_tokens: int
    dtype: str
    """Of activations and unquantized weights."""
    num_devices: int = 1
    """That share the model."""
    on_device: OnDevice | None = None
    """None: the processor."""
    speculation: capacity.Speculation = field(default_factory=capacity.Speculation)


def pool_size_of(settings: config.EngineConfig, decided: Decided, overhead_bytes: int) -> pool_size.PoolSize:
    """The slab beside the weights that were loaded and the overhead that was measured: the planner's own sum.

    Raises `CapacityError` where not one page is left.
    """
    wanted = dataclasses.replace(_wanted(settings, decided), overhead_bytes=overhead_bytes)
    _, demand = capacity.layout_and_demand(decided.shape, wanted, decided.layout)
    return pool_size.decide(decided.layout, capacity.wishes(wanted), demand)


@dataclass(frozen=True, slots=True)
class Planned:
    """By part."""

    parts_bytes: dict[str, int]
    notes: dict[str, str] = field(default_factory=dict)


def of(settings: config.EngineConfig, source: sources.ModelSource, decided: Decided) -> Planned:
    """The plan from the files' headers, as it could be made before anything was loaded.

    Where the headers alone do not say it, the weights that were loaded are taken, and a note says so.
    """
    notes: dict[str, str] = {}
    try:
        shape = _shape_of(source.path, settings.model.quantization, decided)
        draft = settings.speculative.draft_model
        if draft is not None:
            held_bytes = _shape_of(Path(draft), config.AUTO, decided).weights_bytes
            guesses = dataclasses.replace(decided.speculation, draft_weights_bytes=held_bytes)
            decided = dataclasses.replace(decided, speculation=guesses)
    except errors.ConfigError as error:
        shape = decided.shape
        notes["planned"] = f"with the weights as loaded, because their files could not be planned with: {error}"
    try:
        plan = footprint.of(shape, _wanted(settings, decided), decided.layout)
    except errors.CapacityError as error:
        return Planned({}, {"planned": f"nothing: {error}"})
    if plan.refusal:
        notes["planned"] = plan.refusal
    return Planned(dict(plan.parts_bytes), notes)


def _shape_of(path: Path, quantization: str, decided: Decided) -> capacity.ModelShape:
    """From the headers of the files. Raises ConfigError."""
    found = model_files.read(path)
    has_kernels = decided.on_device is None or decided.on_device.has_kernels
    held = model_files.held(found, dtype=decided.dtype, quantization=quantization, has_kernels=has_kernels)
    return known_models.shape_of(found.matrices, found.max_context_tokens, held.num_bytes)


def _wanted(settings: config.EngineConfig, decided: Decided) -> capacity.Wanted:
    cache, scheduler = settings.kv_cache, settings.scheduler
    on_device = decided.on_device
    wanted = capacity.Wanted(
        kv_dtype=decided.layout.dtype,
        block_size=cache.block_size,
        memory_utilization=cache.memory_utilization,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_context_tokens=decided.max_context_tokens,
        limit_bytes=decided.limit_bytes,
        num_devices=decided.num_devices,
        num_pages=cache.num_pages,
        memory_bytes=cache.memory,
        swap_bytes=cache.swap_space,
        speculation=decided.speculation,
    )
    if on_device is None:
        return wanted
    return dataclasses.replace(
        wanted,
        overhead_bytes=capacity.DEVICE_OVERHEAD_BYTES,
        graphs_bytes=capacity.DEVICE_GRAPHS_BYTES if on_device.has_graphs else 0,
        item_bytes=on_device.item_bytes,
        heap_share=capacity.DEVICE_HEAP_SHARE,
        swap_bytes=0,  # the host's memory, and no part of the device's
    )


def measured(size: pool_size.PoolSize) -> dict[str, int]:
    """Of the parts that are known once the model is loaded; activations and tables come with the first steps."""
    return {part: num for part, num in size.parts_bytes.items() if part not in ("activations", "workspace")}


def compare(planned_bytes: Mapping[str, int], measured_bytes: Mapping[str, int], linear_path: str = "") -> str:
    """Where the two lie further apart than they should, in words; empty where they do not. Also logged.

    `linear_path`: the forms that the weights are held in, which are the usual reason.
    """
    missed = footprint.misses(planned_bytes, measured_bytes)
    if not missed:
        return ""
    text = "; ".join(
        f"{part} {measured_bytes[part]:,} bytes measured, {planned_bytes[part]:,} planned ({ratio:.0%})"
        for part, ratio in missed.items()
    )
    if "weights" in missed and "rows<=" in linear_path:
        text += f"; the weights are held in two forms, which was measured to be faster: {linear_path}"
    _logger.warning("memory differs from the plan: %s", text)
    return text
