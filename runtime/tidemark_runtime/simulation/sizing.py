"""From profile and settings to the worker's facts: the engine's own memory arithmetic, asked for a device that is not
here."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_runtime import config, errors
from tidemark_runtime.planning import capacity, page_layout, pool_size
from tidemark_runtime.simulation import devices, profiles, workload
from tidemark_runtime.worker import interface, step_cost

DTYPE = "bfloat16"


@dataclass(frozen=True, slots=True)
class Sized:
    """What a worker is made of."""

    facts: interface.WorkerFacts
    cost: step_cost.StepCost
    host_seconds: float


def size(profile: profiles.Profile, settings: config.EngineConfig) -> Sized:
    """Raises `CapacityError` with the sum where the model does not fit, `ConfigError` for settings that cannot be."""
    if settings.speculative.method != "none":
        raise errors.ConfigError([workload.no_guesses("speculative.method", settings.speculative.method)])
    shape, cache = profile.model.shape, settings.kv_cache
    kv_dtype = profile.model.kv_dtype if cache.dtype == config.AUTO else cache.dtype
    layout = page_layout.PageLayout(
        page_layout.KVShape(shape.num_layers, shape.num_kv_heads, shape.head_dim),
        cache.block_size,
        kv_dtype,
        fixed_scales=cache.scales_file is not None,
    )
    context = min(settings.model.max_context_tokens or shape.max_context_tokens, shape.max_context_tokens)
    if profile.measured is not None:
        return _as_measured(profile, profile.measured, layout, context, settings)
    if profile.device is None:
        raise ValueError(f"profile {profile.name} has neither a device nor measured steps")
    return _on_device(profile, profile.device, layout, context, settings)


def _on_device(
    profile: profiles.Profile,
    device: devices.Device,
    layout: page_layout.PageLayout,
    context: int,
    settings: config.EngineConfig,
) -> Sized:
    shape, scheduler, cache = profile.model.shape, settings.scheduler, settings.kv_cache
    activations = capacity.activations_bytes(shape, scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
    tables = capacity.tables_bytes(scheduler.max_num_seqs, context, layout.block_size)
    demand = pool_size.Demand(
        limit_bytes=device.memory_bytes,
        weights_bytes=shape.weights_bytes,
        activations_bytes=activations,
        workspace_bytes=capacity.workspace_bytes(tables, activations),
        overhead_bytes=device.reserved_bytes,
        max_num_seqs=scheduler.max_num_seqs,
        max_context_tokens=context,
    )
    wishes = pool_size.Wishes(
        memory_utilization=cache.memory_utilization, num_pages=cache.num_pages, memory_bytes=cache.memory
    )
    pool = pool_size.decide(layout, wishes, demand)
    cost = step_cost.RooflineCost(
        weights_bytes=shape.weights_bytes,
        num_params=profile.model.num_params,
        attention_flops_a_pair=profile.model.attention_flops_a_pair,
        kv_token_bytes=layout.token_bytes,
        page_bytes=layout.page_bytes,
        bandwidth=device.bandwidth * device.memory_efficiency,
        flops=device.flops * device.compute_efficiency,
        link_bandwidth=device.link_bandwidth * device.link_efficiency,
        overhead_seconds=device.overhead_seconds,
        overlaps_copies=device.overlaps_copies,
    )
    # Swap space is the host's memory, not the device's: it takes nothing from the slab.
    num_host_pages = pool_size.num_swap_pages(layout, cache.swap_space)
    _check_pages(layout, settings, pool.num_pages, num_host_pages)
    facts = interface.WorkerFacts(
        kind="simulated",
        device=device.name,
        dtype=DTYPE,
        layout=layout,
        num_pages=pool.num_pages,
        max_context_tokens=context,
        memory_bytes=pool.parts_bytes,
        num_host_pages=num_host_pages,
        page_copy_seconds=cost.page_copy_seconds if num_host_pages else 0.0,
        memory_limit_bytes=device.memory_bytes,
        shape=shape,
    )
    return Sized(facts, cost, 0.0)


def _check_pages(
    layout: page_layout.PageLayout, settings: config.EngineConfig, num_pages: int, num_host_pages: int
) -> None:
    """Raises `ConfigError` for more than a simulation can keep lists of."""
    cache, most = settings.kv_cache, profiles.PAGES_MOST
    most_bytes = most * layout.page_bytes
    in_bytes = f"at most {most_bytes} bytes, {most:,} pages of {layout.page_bytes} bytes"
    remedy = "Lower it, or raise kvCache.blockSize."
    problems = []
    if num_host_pages > most:
        problems.append(errors.Problem("kvCache.swapSpace", cache.swap_space, in_bytes, remedy))
    if num_pages > most and cache.memory is not None:
        problems.append(errors.Problem("kvCache.memory", cache.memory, in_bytes, remedy))
    elif num_pages > most:
        key = "kvCache.numPages" if cache.num_pages is not None else "device.memoryBytes"
        seen = cache.num_pages if cache.num_pages is not None else errors.Seen(f"room for {num_pages} pages")
        problems.append(errors.Problem(key, seen, f"at most {most:,} pages", remedy))
    if problems:
        raise errors.ConfigError(problems)


def _as_measured(
    profile: profiles.Profile,
    measured: profiles.Measured,
    layout: page_layout.PageLayout,
    context: int,
    settings: config.EngineConfig,
) -> Sized:
    cache = settings.kv_cache
    num_host_pages = pool_size.num_swap_pages(layout, cache.swap_space) or measured.num_swap_pages
    if num_host_pages and not measured.page_copy_seconds:
        problem = errors.Problem(
            "pages.copySeconds", 0, "the seconds that copying a page takes", "There is swap space: measure it."
        )
        raise errors.ConfigError([problem])
    prices = measured.prices
    cost = step_cost.LinearCost(
        base=prices.base,
        decode=prices.decode,
        prompt_token=prices.prompt_token,
        token_read=prices.token_read,
        pair=prices.pair,
        page_copy_seconds=measured.page_copy_seconds,
    )
    # What was measured includes its memory: only settings that say how large the slab is change it.
    asked_pages = cache.num_pages if cache.memory is None else max(1, cache.memory // layout.page_bytes)
    num_pages = asked_pages or measured.num_pages
    _check_pages(layout, settings, num_pages, num_host_pages)
    facts = interface.WorkerFacts(
        kind="simulated",
        device=profile.name,
        dtype=DTYPE,
        layout=layout,
        num_pages=num_pages,
        max_context_tokens=context,
        memory_bytes={"weights": profile.model.shape.weights_bytes, "kv": num_pages * layout.page_bytes},
        num_host_pages=num_host_pages,
        page_copy_seconds=measured.page_copy_seconds if num_host_pages else 0.0,
        shape=profile.model.shape,
    )
    return Sized(facts, cost, measured.host_seconds)
