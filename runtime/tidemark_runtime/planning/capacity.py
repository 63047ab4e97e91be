"""Does a model fit, asked before anything starts: the engine's own arithmetic on a model that is not loaded yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemark_runtime import config, errors
from tidemark_runtime.planning import page_layout, pool_size, precision_map

CapacityError = errors.CapacityError
"""For callers that take nothing but the planning of the runtime."""

_FLOAT32_BYTES = 4
OVERHEAD_BYTES = 720 * 1024 * 1024
"""Interpreter, framework, temporaries of loading and the HTTP process, where no engine has been measured yet. What
`tidemark serve smollm2-135m` reports as overhead after loading is a little less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What the memory of a model depends on."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_context_tokens: int
    """The model's own limit."""
    weights_bytes: int
    """As they are held in memory."""


KNOWN_SHAPES: Mapping[str, ModelShape] = MappingProxyType(
    {
        "smollm2-135m": ModelShape(
            num_layers=30,
            num_heads=9,
            num_kv_heads=3,
            head_dim=64,
            hidden_size=576,
            intermediate_size=1536,
            vocab_size=49_152,
            max_context_tokens=8192,
            weights_bytes=98_362_432,
        )
    }
)
"""Models that `tidemark models` knows by name; a test compares them with the file. Others are known once an engine has
loaded them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a service asks for, `auto` resolved."""

    kv_dtype: str
    block_size: int
    memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_context_tokens: int | None
    limit_bytes: int
    """Of one pod: its memory, or that of its devices together."""
    overhead_bytes: int = OVERHEAD_BYTES
    swap_bytes: int = 0
    """Of the pod's memory, for pages of preempted requests; only the whole pages in it are used."""
    precision: tuple[config.PrecisionRule, ...] = ()
    """What is kept in another dtype than `kv_dtype`."""


def plan(shape: ModelShape, wanted: Wanted) -> pool_size.PoolSize:
    """The sum for one pod. Raises `errors.CapacityError` with the sum and what would make it fit."""
    try:
        layout = page_layout.PageLayout(kv_shape(shape), wanted.block_size, wanted.kv_dtype, _kept(shape, wanted))
        num_swap_pages = pool_size.num_swap_pages(layout, wanted.swap_bytes)
    except errors.ConfigError as error:
        raise errors.CapacityError(str(error)) from error
    demand = pool_size.Demand(
        limit_bytes=wanted.limit_bytes,
        weights_bytes=shape.weights_bytes,
        workspace_bytes=workspace_bytes(shape, wanted.max_num_seqs, wanted.max_num_batched_tokens),
        overhead_bytes=wanted.overhead_bytes,
        max_num_seqs=wanted.max_num_seqs,
        max_context_tokens=min(wanted.max_context_tokens or shape.max_context_tokens, shape.max_context_tokens),
        swap_bytes=num_swap_pages * layout.page_bytes,
    )
    return pool_size.decide(layout, pool_size.Wishes(memory_utilization=wanted.memory_utilization), demand)


def kv_shape(shape: ModelShape) -> page_layout.KVShape:
    """The part of it that pages know."""
    return page_layout.KVShape(shape.num_layers, shape.num_kv_heads, shape.head_dim)


def _kept(shape: ModelShape, wanted: Wanted) -> precision_map.Segments:
    if not wanted.precision:
        return {}
    target = precision_map.Target(kv_shape(shape), wanted.kv_dtype, num_query_heads=shape.num_heads)
    return precision_map.segments_of(precision_map.of_settings(wanted.precision), target)


def workspace_bytes(shape: ModelShape, max_num_seqs: int, max_num_batched_tokens: int) -> int:
    """Activations and logits of the largest step. Per sampled sequence: its logits and the sampler's copy."""
    logits_bytes = 2 * max_num_seqs * shape.vocab_size * _FLOAT32_BYTES
    return max_num_batched_tokens * step_token_bytes(shape) + logits_bytes


def step_token_bytes(shape: ModelShape) -> int:
    """Activations of one token: the residual stream, its addend and its norm, Q, K, V and the attention's output, gate,
    up and their product, in float32."""
    heads = 2 * (shape.num_heads + shape.num_kv_heads)
    return _FLOAT32_BYTES * (4 * shape.hidden_size + heads * shape.head_dim + 3 * shape.intermediate_size)
