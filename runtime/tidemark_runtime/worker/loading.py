"""From settings and a source to a model in memory, a slab of the right size, and the facts about both."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch

from tidemark_kernels import dispatch
from tidemark_runtime import config, errors
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import checkpoint as checkpoints
from tidemark_runtime.model import (
    linear,
    linear_choice,
    packing,
    parallel,
    probes,
    sharded_checkpoint,
    sources,
    tensors,
)
from tidemark_runtime.model import loading as model_loading
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.model import weights as model_weights
from tidemark_runtime.planning import capacity, fixed_scales, page_layout, pool_size, precision_map
from tidemark_runtime.worker import (
    cpu,
    draft_loading,
    draft_model,
    heap,
    interface,
    planned,
    precision,
    ranks,
    scales,
    slab,
)

HTTP_PROCESS_BYTES = 200 * pool_size.MIB_BYTES
"""The server's process shares the pod's memory; this is its budget."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """All a worker needs."""

    model: batches.Model
    memory: batches.KVMemory
    facts: interface.WorkerFacts
    probes: tuple[probes.Probe, ...] = ()
    """For the self-test; let go of after it."""
    draft: draft_model.Parts | None = None
    """Of speculative decoding."""


def load(
    settings: config.EngineConfig,
    source: sources.ModelSource,
    progress: model_weights.Progress,
    policy: linear.LinearPolicy | None = None,
    place: ranks.Place = ranks.ALONE,
) -> Loaded:
    """Everything before the first step. `policy` forces the forms of the weights; otherwise they are measured. `place`:
    among the ranks that share the model; `settings` are then one rank's (`ranks.settings_of`), with a path as
    `speculative.draftModel`.

    Raises ModelError, CapacityError or ConfigError.
    """
    threads = settings.hardware.threads or cpu.usable_cores()
    torch.set_num_threads(threads)
    limit = _memory_limit(settings.hardware)
    checkpoint = checkpoints.open_checkpoint(source)
    spec, num_ranks = checkpoint.spec, place.shard.size
    if num_ranks > 1:
        ranks.check_divides(shape_of(spec, 0), num_ranks, "cpu")
        checkpoint = sharded_checkpoint.ShardedCheckpoint(checkpoint, place.shard)
    check_packed(settings.model, checkpoint)
    max_context_tokens = max_context_of(settings.model, spec)
    dtype = _activations_dtype(settings.model, spec)
    pages = pages_of(settings.kv_cache, source, spec, dtype, place.shard)
    with torch.inference_mode():
        if policy is None:
            progress("choosing the form of the weights", 0.0)
            policy = _choose(checkpoint, settings.model, dtype, limit)
        factory, kept_rows = linear.LinearFactory(policy), probes.Probes()
        model = model_loading.load(checkpoint, factory, progress, kept_rows, group=place.group)
    drafted: draft_loading.Drafted | None = None
    if settings.speculative.draft_model is not None:
        drafted = draft_loading.load(
            sources.resolve_draft(settings.speculative.draft_model, Path()),
            draft_loading.Wanted(
                max_context_tokens,
                *(_kv_dtype(settings.kv_cache, dtype), settings.kv_cache.block_size, num_ranks),
            ),
            lambda opened: _choose(opened, config.ModelConfig(), dtype, limit),
            progress,
        )
    shape = shape_of(spec, factory.num_bytes * num_ranks)
    heap.give_back()  # what loading freed is no overhead
    decided = planned.Decided(shape, pages.layout, limit.num_bytes, max_context_tokens, dtype_name(dtype), num_ranks)
    decided = dataclasses.replace(decided, speculation=_speculation(settings.speculative, drafted))
    overhead_bytes = max(0, cpu.resident_bytes() - factory.num_bytes - decided.speculation.draft_weights_bytes)
    overhead_bytes += HTTP_PROCESS_BYTES if place.shard.is_first else 0
    own_size = planned.pool_size_of(settings, decided, overhead_bytes)
    agreed = place.agree(ranks.NumPages(own_size.num_pages, pages.num_host_pages))
    size = dataclasses.replace(own_size, num_pages=agreed.slab, kv_bytes=agreed.slab * pages.layout.page_bytes)
    plan = planned.of(settings, source, decided)
    # Here and not in the first step: the first time on a machine it compiles.
    kernels = dispatch.current()
    memory = batches.KVMemory.of(slab.allocate(size.num_pages, pages.layout.page_bytes), pages.layout, pages.scales)
    facts = interface.WorkerFacts(
        kind="torch",
        device="cpu",
        dtype=dtype_name(dtype),
        layout=pages.layout,
        num_pages=size.num_pages,
        num_host_pages=agreed.host,
        max_context_tokens=max_context_tokens,
        memory_bytes=planned.measured(size),
        planned_bytes=plan.parts_bytes,
        memory_limit_bytes=limit.num_bytes,
        step_token_bytes=capacity.step_token_bytes(capacity.divided(shape, num_ranks)),
        shape=shape,
        notes={
            "threads": str(threads),
            "memoryLimit": f"{limit.num_bytes} bytes, {limit.source}",
            "pagesDecidedBy": size.decided_by,
            "kernels": kernels.reason,
            **pages.notes,
            **({"linearMeasured": policy.measured} if policy.measured else {}),
            **plan.notes,
        },
    )
    draft_parts = None if drafted is None else drafted.parts(size.num_pages, agreed.host)
    return Loaded(model, memory, facts, tuple(kept_rows.found), draft_parts)


def _speculation(settings: config.SpeculativeConfig, drafted: draft_loading.Drafted | None) -> capacity.Speculation:
    """On a processor, whose memory has the indexes of texts, too."""
    if settings.method == "none":
        return capacity.Speculation()
    if drafted is None:
        return capacity.guessing(settings.tokens, has_index=settings.method == "ngram")
    shape = shape_of(drafted.model.spec, drafted.weights_bytes)
    return capacity.guessing(settings.tokens, draft=shape, draft_page_bytes=drafted.layout.page_bytes)


@dataclass(frozen=True, slots=True)
class Pages:
    """What a page of this model holds."""

    layout: page_layout.PageLayout
    scales: fixed_scales.Scales
    num_host_pages: int
    """In the swap space."""
    notes: dict[str, str]


def pages_of(
    kv_cache: config.KVCacheConfig,
    source: sources.ModelSource,
    spec: model_spec.ModelSpec,
    dtype: torch.dtype,
    shard: parallel.Shard,
) -> Pages:
    """`dtype`: of activations. Maps and scales are of the whole model, and a page has the heads of `shard`.

    Raises ConfigError.
    """
    kv_dtype = _kv_dtype(kv_cache, dtype)
    keep_dtype = precision_map.keep_dtype(dtype_name(dtype))
    kept = precision.choose(kv_cache, precision_map.Target(spec.kv_shape, kv_dtype, keep_dtype, spec.num_heads), source)
    layout = page_layout.PageLayout(
        *(spec.kv_shape, kv_cache.block_size, kv_dtype, kept.segments),
        fixed_scales=kv_cache.scales_file is not None,
    )
    fixed = scales.choose(kv_cache, layout, source)
    notes = {
        **({"precision": kept.note} if kept.note else {}),
        **({"scales": fixed.note} if fixed.note else {}),
        **_loss(layout),
    }
    own = ranks.own_layout(layout, shard)
    own_scales = ranks.own_scales(fixed.scales, spec.num_kv_heads, shard)
    return Pages(own, own_scales, pool_size.num_swap_pages(own, kv_cache.swap_space), notes)


def shape_of(spec: model_spec.ModelSpec, weights_bytes: int) -> capacity.ModelShape:
    """What the planner knows of a model, of this one."""
    return capacity.ModelShape(
        num_layers=spec.num_layers,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        vocab_size=spec.vocab_size,
        max_context_tokens=spec.max_context_tokens,
        weights_bytes=weights_bytes,
    )


def _memory_limit(hardware: config.HardwareConfig) -> cpu.MemoryLimit:
    limit = cpu.memory_limit()
    if hardware.memory is None:
        return limit
    if hardware.memory > limit.num_bytes:
        problem = errors.Problem(
            "hardware.memory",
            hardware.memory,
            f"at most {limit.num_bytes} bytes ({limit.source})",
            "Lower it, leave it out, or give this process more memory",
        )
        raise errors.ConfigError([problem])
    return cpu.MemoryLimit(hardware.memory, "hardware.memory")


def max_context_of(model: config.ModelConfig, spec: model_spec.ModelSpec) -> int:
    wanted = model.max_context_tokens
    if wanted is None:
        return spec.max_context_tokens
    if wanted > spec.max_context_tokens:
        problem = errors.Problem(
            "model.maxContextTokens",
            wanted,
            f"at most {spec.max_context_tokens}, the model's own limit",
            "Lower it or leave it out",
        )
        raise errors.ConfigError([problem])
    return wanted


def check_packed(model: config.ModelConfig, checkpoint: checkpoints.Checkpoint) -> None:
    """Raises ConfigError where a packed format was asked for and the checkpoint is something else."""
    found = None if checkpoint.packed is None else checkpoint.packed.method
    if model.quantization in packing.METHODS and model.quantization != found:
        problem = errors.Problem(
            "model.quantization",
            model.quantization,
            f"auto: {model.source} is {found or 'not packed by AWQ or GPTQ'}",
            "Name another model, or leave the setting out: what a file holds is read from the file",
        )
        raise errors.ConfigError([problem])


def _activations_dtype(model: config.ModelConfig, spec: model_spec.ModelSpec) -> torch.dtype:
    if model.dtype == "float16":
        problem = errors.Problem(
            "model.dtype",
            model.dtype,
            "auto, float32 or bfloat16 on a processor",
            "A float16 model runs in any of them; only the KV cache may be float16",
        )
        raise errors.ConfigError([problem])
    return linear_choice.resolve_dtype(model.dtype)


def _loss(layout: page_layout.PageLayout) -> dict[str, str]:
    """A note where somebody accepted a dtype that loses facts."""
    lossy = {name: size for name, size in layout.page_bytes_by_dtype.items() if page_layout.KV_DTYPES[name].lossy}
    if not lossy:
        return {}
    share = sum(lossy.values()) / layout.page_bytes
    return {"lossy": f"{', '.join(lossy)} for {share:.0%} of the KV memory, by kvCache.allowLossy. {config.LOSSY_COST}"}


def _kv_dtype(kv_cache: config.KVCacheConfig, dtype: torch.dtype) -> str:
    return dtype_name(dtype) if kv_cache.dtype == config.AUTO else kv_cache.dtype


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _choose(
    checkpoint: checkpoints.Checkpoint, model: config.ModelConfig, dtype: torch.dtype, limit: cpu.MemoryLimit
) -> linear.LinearPolicy:
    spec = checkpoint.spec
    rules = linear_choice.Rules(
        dtype=dtype,
        quantization=model.quantization,
        num_elements=num_matrix_elements(spec),
        memory_limit_bytes=limit.num_bytes,
        has_kernels=dispatch.current().library is not None,
    )
    return linear_choice.choose(_sample(checkpoint), rules)


def num_matrix_elements(spec: model_spec.ModelSpec) -> int:
    """Weights in the matrices of all layers, without embedding and head."""
    attention = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    return spec.num_layers * spec.hidden_size * (attention + 3 * spec.intermediate_size)


def _sample(checkpoint: checkpoints.Checkpoint) -> list[list[tensors.HostTensor]]:
    """The matrices of the first and the last layer: mixed quantizations differ by layer."""
    parts = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
    layers = sorted({0, checkpoint.spec.num_layers - 1})
    names = [f"model.layers.{layer}.{part}.weight" for layer in layers for part in parts]
    return [[checkpoint.tensor(name)] for name in names]
