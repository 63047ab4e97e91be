"""Does a model fit, asked before anything starts: the engine's own arithmetic on a model that is not loaded yet.

The sum is that of one device. With several devices (`Wanted.num_devices`) matrices, KV heads and the wide parts of
activations divide; what each device holds in full is listed in `UNDIVIDED`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemark_runtime import config, errors
from tidemark_runtime.planning import page_layout, pool_size, precision_map

CapacityError = errors.CapacityError
"""For callers that take nothing but the planning of the runtime."""

_FLOAT32_BYTES = 4
_ARRAYS_BYTES = 256
"""Of two arrays, beside their entries."""
_TOKEN_TABLE_BYTES = 24
"""Of a step's token: its id and position (int64), its page and its row in it (int32)."""
_SAMPLED_ELEMENT_BYTES = 24
"""Of one row of logits while it is sampled, one row at a time: its copy, its weights, its order."""
DEVICE_OVERHEAD_BYTES = 1 << 30
"""On a device, an assumption: driver context, libraries, communication buffers. No engine of ours has run on one."""
DEVICE_GRAPHS_BYTES = 512 * 1024 * 1024
"""On a device, an assumption: recorded steps. A processor records none."""
DEVICE_HEAP_SHARE = 0.2
"""As HEAP_SHARE, an assumption for the caching allocator of a device."""
HEAP_SHARE = 1.2
"""Of the activations: what a heap that never gives back keeps beside them, after steps of different sizes."""
MOST_DEVICES = 64
"""That one model is divided among."""
UNDIVIDED = (
    "norms, the residual stream of activations, logits, tables, graphs and the framework: each device has them in full",
)
"""What several devices do not share, in words."""
OVERHEAD_BYTES = 768 * 1024 * 1024
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
class Speculation:
    """What guessing takes."""

    num_guesses: int = 0
    """Most at once of a sequence: a step has a row of logits for each."""
    draft_weights_bytes: int = 0
    draft_page_bytes: int = 0
    """The draft model's KV of a page's tokens."""
    draft_token_bytes: int = 0
    """Its activations of one token of a step (`step_token_bytes`): it takes in the same prompts."""
    has_index: bool = False
    """Guesses come from an index of each sequence's text, in the memory that is planned: a processor's, not a
    device's."""


def guessing(
    num_guesses: int,
    *,
    draft: ModelShape | None = None,
    draft_page_bytes: int = 0,
    item_bytes: int = 4,
    has_index: bool = False,
) -> Speculation:
    """What guessing takes with this draft model, whose weights are `draft.weights_bytes`; None: there is none."""
    if draft is None:
        return Speculation(num_guesses=num_guesses, has_index=has_index)
    return Speculation(
        num_guesses=num_guesses,
        draft_weights_bytes=draft.weights_bytes,
        draft_page_bytes=draft_page_bytes,
        draft_token_bytes=step_token_bytes(draft, item_bytes),
    )


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
    """Of one device; on a processor of the pod."""
    num_devices: int = 1
    """Of one pod; the model is divided among them."""
    overhead_bytes: int = OVERHEAD_BYTES
    graphs_bytes: int = 0
    item_bytes: int = 4
    """Of activations: 4 on a processor, whatever the model's dtype, because our kernels' results are float32; 2 on a
    device."""
    heap_share: float = HEAP_SHARE
    """Of the activations, see `workspace_bytes`."""
    num_pages: int | None = None
    """`kvCache.numPages`: this many, instead of what memory allows."""
    memory_bytes: int | None = None
    """`kvCache.memory`: of the slab."""
    swap_bytes: int = 0
    """Of the pod's memory, for pages of preempted requests; only the whole pages in it are used."""
    precision: tuple[config.PrecisionRule, ...] = ()
    """What is kept in another dtype than `kv_dtype`."""
    fixed_scales: bool = False
    """Scales of 8-bit KV are calibrated (`kvCache.scalesFile`) and take no bytes in a page."""
    speculation: Speculation = Speculation()


def plan(shape: ModelShape, wanted: Wanted) -> pool_size.PoolSize:
    """The sum for one device. Raises `errors.CapacityError` with the sum and what would make it fit."""
    layout, demand = layout_and_demand(shape, wanted)
    return pool_size.decide(layout, wishes(wanted), demand)


def layout_and_demand(
    shape: ModelShape, wanted: Wanted, given: page_layout.PageLayout | None = None
) -> tuple[page_layout.PageLayout, pool_size.Demand]:
    """A page of one device, and all that stands beside the slab. Raises `errors.CapacityError`.

    `given`: the layout, where it is known already, map included.
    """
    own = divided(shape, wanted.num_devices)
    try:
        layout = _layout(shape, wanted) if given is None else given
        num_swap_pages = pool_size.num_swap_pages(layout, wanted.swap_bytes)
    except errors.ConfigError as error:
        raise errors.CapacityError(str(error)) from error
    context_tokens = min(wanted.max_context_tokens or shape.max_context_tokens, shape.max_context_tokens)
    activations = activations_bytes(own, wanted.max_num_seqs, wanted.max_num_batched_tokens, wanted.item_bytes)
    if wanted.num_devices > 1:  # the logits come in parts, one from each device, which then become whole rows
        activations += _FLOAT32_BYTES * wanted.max_num_seqs * shape.vocab_size
    demand = pool_size.Demand(
        limit_bytes=wanted.limit_bytes,
        weights_bytes=own.weights_bytes,
        activations_bytes=activations,
        graphs_bytes=wanted.graphs_bytes,
        workspace_bytes=workspace_bytes(
            tables_bytes(wanted.max_num_seqs, context_tokens, wanted.block_size), activations, wanted.heap_share
        ),
        overhead_bytes=wanted.overhead_bytes,
        max_num_seqs=wanted.max_num_seqs,
        max_context_tokens=context_tokens,
        swap_bytes=num_swap_pages * layout.page_bytes,
        speculation_bytes=speculation_bytes(shape, wanted, num_swap_pages, context_tokens),
        speculation_page_bytes=wanted.speculation.draft_page_bytes,
    )
    return layout, demand


def speculation_bytes(shape: ModelShape, wanted: Wanted, num_swap_pages: int, context_tokens: int) -> int:
    """But for the pages: the rows of logits that a step with guesses has beside the usual ones, as many as its budget
    allows; the draft model's weights, its part of the swap space, and its own largest step, which is computed beside
    the model's logits (where it guesses, its logits take the place of the model's); or an index for each slot."""
    guesses = wanted.speculation
    most = max(0, wanted.max_num_batched_tokens - wanted.max_num_seqs)
    rows = min(wanted.max_num_seqs * guesses.num_guesses, most)
    return (
        _FLOAT32_BYTES * rows * shape.vocab_size
        + guesses.draft_weights_bytes
        + num_swap_pages * guesses.draft_page_bytes
        + wanted.max_num_batched_tokens * guesses.draft_token_bytes
        + (wanted.max_num_seqs * guess_index_bytes(context_tokens) if guesses.has_index else 0)
    )


def guess_index_bytes(max_tokens: int) -> int:
    """The most that the index of one text (`core.ngram.Index`) takes that can become `max_tokens` long: a table with a
    power of two of places, an entry for each token, and what an array keeps for more of them, a sixteenth."""
    table = 1 << max(6, (max_tokens - 1).bit_length())
    return _FLOAT32_BYTES * (table + max_tokens + max_tokens // 16) + _ARRAYS_BYTES


def wishes(wanted: Wanted) -> pool_size.Wishes:
    """What the settings say of the slab."""
    return pool_size.Wishes(
        memory_utilization=wanted.memory_utilization, num_pages=wanted.num_pages, memory_bytes=wanted.memory_bytes
    )


def kv_shape(shape: ModelShape) -> page_layout.KVShape:
    """The part of it that pages know."""
    return page_layout.KVShape(shape.num_layers, shape.num_kv_heads, shape.head_dim)


def divided(shape: ModelShape, num_devices: int) -> ModelShape:
    """What one of `num_devices` holds. Raises `CapacityError` where heads or the MLP do not divide.

    KV heads fewer than devices are held by several of them each.
    """
    if num_devices == 1:
        return shape
    wrong = undividable(shape, num_devices)
    if wrong:
        raise errors.CapacityError(
            f"the model cannot be divided among {num_devices} devices: {'; '.join(wrong)} do not divide. Set "
            f"hardware.count to one of {', '.join(map(str, dividers(shape)))}"
        )
    return dataclasses.replace(
        shape,
        num_heads=shape.num_heads // num_devices,
        num_kv_heads=max(1, shape.num_kv_heads // num_devices),
        intermediate_size=shape.intermediate_size // num_devices,
        weights_bytes=-(-shape.weights_bytes // num_devices),
    )


def undividable(shape: ModelShape, num_devices: int) -> list[str]:
    """What of the model is no multiple, in words; empty where it can be divided."""
    return list(_undividable(shape, num_devices))


def dividers(shape: ModelShape) -> list[int]:
    """Numbers of devices that the model can be divided among."""
    return [count for count in range(1, MOST_DEVICES + 1) if not undividable(shape, count)]


def _undividable(shape: ModelShape, num_devices: int) -> Iterator[str]:
    if shape.num_heads % num_devices:
        yield f"{shape.num_heads} query heads"
    if shape.num_kv_heads % num_devices and num_devices % shape.num_kv_heads:
        yield f"{shape.num_kv_heads} KV heads"
    if shape.intermediate_size % num_devices:
        yield f"an MLP {shape.intermediate_size} wide"


def _layout(shape: ModelShape, wanted: Wanted) -> page_layout.PageLayout:
    """A page of the device whose heads cost most: a precision map may keep one device's heads and not another's."""
    kept, own = _kept(shape, wanted), divided(shape, wanted.num_devices)
    if not kept:
        return page_layout.PageLayout(kv_shape(own), wanted.block_size, wanted.kv_dtype, {}, wanted.fixed_scales)
    layouts = []
    for device in range(wanted.num_devices):
        first = device * shape.num_kv_heads // wanted.num_devices
        mine = {
            (layer, head - first, kind): dtype
            for (layer, head, kind), dtype in kept.items()
            if first <= head < first + own.num_kv_heads
        }
        layouts.append(
            page_layout.PageLayout(kv_shape(own), wanted.block_size, wanted.kv_dtype, mine, wanted.fixed_scales)
        )
    return max(layouts, key=lambda layout: layout.page_bytes)


def _kept(shape: ModelShape, wanted: Wanted) -> precision_map.Segments:
    if not wanted.precision:
        return {}
    target = precision_map.Target(kv_shape(shape), wanted.kv_dtype, num_query_heads=shape.num_heads)
    return precision_map.segments_of(precision_map.of_settings(wanted.precision), target)


def activations_bytes(
    shape: ModelShape, max_num_seqs: int, max_num_batched_tokens: int, item_bytes: int = _FLOAT32_BYTES
) -> int:
    """Peak of the largest step: a full budget of tokens, with all sequences sampled at its end. Logits are float32.

    The largest of three moments: inside attention, inside the MLP, and at the head, where each sampled sequence has a
    row of logits. `benchmarks/results/plan_check.md` compares it with what a process grows by.
    """
    at_head = max_num_seqs * (_FLOAT32_BYTES * shape.vocab_size + item_bytes * 2 * shape.hidden_size)
    at_head += _SAMPLED_ELEMENT_BYTES * shape.vocab_size
    return max(
        max_num_batched_tokens * step_token_bytes(shape, item_bytes),
        # Behind the last layer what the one before it added is gone.
        max_num_batched_tokens * (_standing_bytes(shape, item_bytes) - item_bytes * shape.hidden_size) + at_head,
    )


def step_token_bytes(shape: ModelShape, item_bytes: int = _FLOAT32_BYTES) -> int:
    """Activations of one token inside a layer: what stands, and the wider of attention (Q, K and V, and its result) and
    MLP (gate, up and their product)."""
    attention = 2 * (shape.num_heads + shape.num_kv_heads) * shape.head_dim
    return _standing_bytes(shape, item_bytes) + item_bytes * max(attention, 3 * shape.intermediate_size)


def _standing_bytes(shape: ModelShape, item_bytes: int) -> int:
    """Of one token, from the first layer to the last: the residual stream, what the last layer added to it and its
    norm; queries, which all layers share; cosines and sines; and its row in the step's tables."""
    items = 3 * shape.hidden_size + shape.num_heads * shape.head_dim
    return item_bytes * items + _FLOAT32_BYTES * shape.head_dim + _TOKEN_TABLE_BYTES


def tables_bytes(max_num_seqs: int, max_context_tokens: int, block_size: int) -> int:
    """What the worker keeps of its sequences between steps: their tokens and their pages, as 32-bit numbers. The
    memory behind it is provided as rows are first written."""
    return 4 * max_num_seqs * (max_context_tokens + 1 - (-max_context_tokens // block_size))


def workspace_bytes(tables: int, activations: int, heap_share: float = HEAP_SHARE) -> int:
    """The tables (`tables_bytes`), and what the heap comes to keep between the tensors of one step and of the next:
    freed blocks that the next tensor does not fit into. `benchmarks/results/plan_check.md` has how much that was."""
    return tables + int(heap_share * activations)
