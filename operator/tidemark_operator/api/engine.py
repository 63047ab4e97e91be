"""`spec.kvCache`, `scheduler`, `watermarks`, `overload` and `speculative`: how memory and time are spent."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from tidemark_operator.api import base

Index = Annotated[int, pydantic.Field(ge=0, le=4095)]
LayerKey = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[0-9]{1,4}$"), base.Expected('a layer number in quotes, such as "7"')
]
Ratio = Annotated[float, pydantic.Field(ge=0, le=1)]


class MapRef(base.Section):
    """A ConfigMap with a precision map."""

    name: base.ObjectName = base.field(..., "ConfigMap in the service's own namespace.")


class Precision(base.Section):
    """What stays at 16 bits while the rest of the KV cache is quantized."""

    keep_layers: list[Index] = base.field(list, "Whole layers, counted from 0.", max_length=1024)
    keep_heads: dict[LayerKey, list[Index]] = base.field(
        dict, 'Single KV heads: layer -> heads, `{"7": [2]}`.', max_length=512
    )
    map_ref: MapRef | None = base.field(None, "A precision map that an evaluation wrote, instead of the two lists.")


class KVCache(base.Section):
    """The slab that holds keys and values, in pages."""

    dtype: Literal["auto", "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int8", "int4"] = base.field(
        "auto", "Of keys and values. auto: the model's dtype. int4 needs `allowLossy`."
    )
    allow_lossy: bool = base.field(False, "Accepts int4, although long summaries lose facts with it.")
    block_size: int = base.field(16, "Tokens of one page.", unit="tokens", ge=1, le=256)
    memory_utilization: float = base.field(
        0.9, "Share of the device's memory that weights, slab and workspace may take together.", ge=0.05, le=1.0
    )
    prefix_caching: bool = base.field(True, "Reuses the pages of equal beginnings.")
    eviction_policy: Literal["lruBlock"] = base.field("lruBlock", "Which cached pages go first.")
    swap_space: base.Quantity = base.field("0", "Host memory for the pages of preempted requests.", unit="bytes")
    precision: Precision = base.field(Precision, "What stays at 16 bits.")


class Preemption(base.Section):
    """What happens when pages run out while requests run."""

    policy: Literal["priority"] = base.field("priority", "Who gives way: the lowest priority, then the newest.")
    mode: Literal["auto", "swap", "recompute"] = base.field(
        "auto", "How a preempted request's pages come back. auto: whichever was measured to be cheaper."
    )
    max_per_request: int = base.field(3, "After so many, a request is no longer preempted.", ge=0)


class Scheduler(base.Section):
    """What one step may hold."""

    policy: Literal["continuous"] = base.field("continuous", "Requests join and leave the batch at every step.")
    max_num_seqs: int | None = base.field(
        None, "Most sequences in the running batch.", default_text="the engine's: 64", ge=1, le=4096
    )
    max_num_batched_tokens: int | None = base.field(
        None, "Token budget of a step.", unit="tokens", default_text="the engine's: 512", ge=1, le=1_048_576
    )
    max_concurrency_soft: int | None = base.field(
        None, "More requests than this wait in the queue; nothing fails.", default_text="from the plan", ge=1
    )
    long_request_tokens: int = base.field(4096, "From here on a request takes the slow lane.", unit="tokens", ge=1)
    long_request_share: Ratio = base.field(0.5, "Share of a step that the slow lane is guaranteed.")
    preemption: Preemption = base.field(Preemption, "What happens when pages run out.")
    target_step_seconds: float | None = base.field(
        None,
        "No step is planned that is predicted to take longer.",
        unit="seconds",
        default_text="no limit",
        ge=0.001,
        le=60,
    )


class Watermarks(base.Section):
    """Lines of memory use, as shares of all pages, and what happens at them."""

    queue: Ratio = base.field(0.70, "New requests wait from here on, although pages remain.")
    preempt: Ratio = base.field(0.90, "From here on a request of higher priority may displace a lower one.")
    hysteresis: Ratio = base.field(0.05, "How far use must fall below a line before the line is left.")
    response: Literal["observe", "tighten"] = base.field(
        "observe", "observe: condition and event. tighten: a lower soft limit as well, until the pressure is gone."
    )


class Overload(base.Section):
    """When a request is answered 429 with Retry-After instead of waiting."""

    max_queued_requests: int | None = base.field(
        None, "Requests that may wait.", default_text="the engine's: 512", ge=0
    )
    max_queued_tokens: int | None = base.field(
        None, "Tokens of all waiting requests together.", unit="tokens", default_text="from the plan", ge=1
    )
    max_queue_seconds: float | None = base.field(
        None, "Longest wait for a first turn.", unit="seconds", default_text="the engine's: 600", ge=0.001
    )
    retry_share: Ratio = base.field(0.1, "Share of the queue that retries may take.")


class Speculative(base.Section):
    """Guesses several tokens and checks them in one step; switched off automatically where it does not pay."""

    method: Literal["none", "ngram", "draft"] = base.field(
        "none", "ngram: looks for repetitions in the text. draft: asks a smaller model."
    )
    tokens: int = base.field(4, "Tokens guessed at once.", unit="tokens", ge=1, le=32)
    draft_model: base.Text | None = base.field(
        None, "For method draft: folder or file beside the model, or a name `tidemark models list` shows."
    )
