"""`spec.kvCache`, `scheduler`, `watermarks`, `overload` and `speculative`: how memory and time are spent."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from tidemark_operator.api import base

Index = Annotated[int, pydantic.Field(ge=0, le=4095)]
Indices = Annotated[list[Index], pydantic.AfterValidator(base.each_once)]
LayerKey = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^(0|[1-9][0-9]{0,3})$"),
    base.Expected('a layer number in quotes, such as "7"'),
]
Ratio = Annotated[float, pydantic.Field(ge=0, le=1)]
MIN_PRIORITY, MAX_PRIORITY = -100, 100
"""Of a request; a larger one goes first."""


class MapRef(base.Section):
    """A ConfigMap with a precision map, at the key precision.yaml. Engines read it at their start, the operator before
    pods start, to count it: what is wrong with it is the reason PrecisionMapUnusable of the condition CapacityFit."""

    name: base.ObjectName = base.field(..., "ConfigMap in the service's own namespace.")


class ScalesRef(base.Section):
    """A ConfigMap with calibrated scales."""

    name: base.ObjectName = base.field(..., "ConfigMap in the service's own namespace.")


class Precision(base.Section):
    """What stays at 16 bits while the rest of the KV cache is quantized."""

    keep_layers: Indices = base.field(list, "Whole layers, counted from 0.", max_length=1024)
    keep_heads: dict[LayerKey, Indices] = base.field(
        dict, 'Single KV heads: layer -> heads, `{"7": [2]}`.', max_length=512
    )
    map_ref: MapRef | None = base.field(None, "A precision map that an evaluation wrote, instead of the two lists.")


class KVCache(base.Section):
    """The slab that holds keys and values, in pages."""

    dtype: Literal["auto", "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int8", "int4"] = base.field(
        "auto", "Of keys and values. auto: the model's dtype. int4 needs `allowLossy`.", engine="kvCache.dtype"
    )
    allow_lossy: bool = base.field(
        False,
        "Accepts int4, although facts of long texts are lost with it; the condition LossyKV says so for as long.",
        engine="kvCache.allowLossy",
    )
    block_size: int = base.field(16, "Tokens of one page.", unit="tokens", engine="kvCache.blockSize", ge=1, le=256)
    memory_utilization: float = base.field(
        0.9,
        "Share of the device's memory that weights, slab and workspace may take together.",
        engine="kvCache.memoryUtilization",
        ge=0.05,
        le=1.0,
    )
    prefix_caching: bool = base.field(
        True,
        "Keeps the pages of ended requests until others need the room, and uses them again for requests of the same "
        "API key that begin with the same tokens.",
        engine="kvCache.prefixCaching",
    )
    eviction_policy: Literal["lruBlock"] = base.field(
        "lruBlock", "Which of the kept pages go first: those that were not used for longest, the end before the start."
    )
    swap_space: base.Quantity = base.field(
        "0",
        "Host memory for the pages of preempted requests, at least one page of it. 0: they are computed again. With "
        "`cpu` it is part of `hardware.memory`.",
        unit="bytes",
        engine="kvCache.swapSpace",
    )
    precision: Precision = base.field(Precision, "What stays at 16 bits.")
    scales_ref: ScalesRef | None = base.field(
        None,
        "One scale for all tokens of a head, as `tidemark eval calibrate` writes them from your own text, instead of "
        "one for each token: less memory, and what is larger than anything in that text is clipped. For a `dtype` of "
        "8 bits.",
    )


class Preemption(base.Section):
    """What happens when pages run out while requests run."""

    policy: Literal["priority"] = base.field(
        "priority", "Who gives way: the lowest priority, and among equals whoever costs least to bring back."
    )
    mode: Literal["auto", "swap", "recompute"] = base.field(
        "auto",
        "How a preempted request's pages come back. swap: copied to `kvCache.swapSpace` and back, where some of it is "
        "left. recompute: computed again. auto: whichever is predicted to take less time, from measurements.",
        engine="scheduler.preemptionMode",
    )
    max_per_request: int = base.field(
        3,
        "After so many, a request is no longer preempted.",
        engine="scheduler.maxPreemptionsPerRequest",
        ge=0,
    )


class Scheduler(base.Section):
    """Who runs, who waits, who gives way, and what one step may hold."""

    policy: Literal["continuous"] = base.field("continuous", "Requests join and leave the batch at every step.")
    max_num_seqs: int | None = base.field(
        None,
        "Most sequences in the running batch.",
        default_text="the engine's: 64",
        engine="scheduler.maxNumSeqs",
        ge=1,
        le=4096,
    )
    max_num_batched_tokens: int | None = base.field(
        None,
        "Token budget of a step: running sequences first, then chunks of prompts.",
        unit="tokens",
        default_text="the engine's: 512",
        engine="scheduler.maxNumBatchedTokens",
        ge=1,
        le=1_048_576,
    )
    max_concurrency_soft: int | None = base.field(
        None,
        "More requests than this wait in the queue; nothing fails.",
        default_text="`maxNumSeqs`",
        engine="scheduler.maxConcurrencySoft",
        ge=1,
    )
    long_request_tokens: int = base.field(
        4096,
        "From here on (prompt and the most it may generate) a request takes the slow lane.",
        unit="tokens",
        engine="scheduler.longRequestTokens",
        ge=1,
    )
    long_request_share: Ratio = base.field(
        0.5,
        "Share of a step's prompt tokens, and of the pages, that the slow lane is guaranteed; the express lane is "
        "guaranteed the rest.",
        engine="scheduler.longRequestShare",
    )
    aging_seconds: float = base.field(
        10.0,
        "Who has waited so long for a first turn is passed by nobody of the same or a lower priority any more, in "
        "neither lane.",
        unit="seconds",
        engine="scheduler.agingSeconds",
        ge=0,
    )
    fairness: Literal["none", "apiKey"] = base.field(
        "none",
        "none: first come, first served within a lane. apiKey: API keys take turns, by the tokens of their requests.",
        engine="scheduler.fairness",
    )
    preemption: Preemption = base.field(Preemption, "What happens when pages run out.")
    target_step_seconds: float | None = base.field(
        None,
        "No step takes in so many prompt tokens that it is predicted to take longer.",
        unit="seconds",
        default_text="no limit but `maxNumBatchedTokens`",
        engine="scheduler.targetStepSeconds",
        ge=0.001,
        le=60,
    )


class Watermarks(base.Section):
    """Lines of memory use, as shares of all pages, and what happens at them. Pages that only the prefix cache keeps are
    not in use."""

    queue: Ratio = base.field(
        0.70,
        "New requests wait from here on, although pages remain, so that running ones can grow.",
        engine="scheduler.queueWatermark",
    )
    preempt: Ratio = base.field(
        0.90,
        "Above it nobody starts while others run, and a waiting request of strictly higher priority takes the pages "
        "of a running one.",
        engine="scheduler.preemptWatermark",
    )
    hysteresis: Ratio = base.field(
        0.05, "How far use must fall below a line before the line is left.", engine="scheduler.watermarkHysteresis"
    )
    response: Literal["observe", "tighten"] = base.field(
        "observe",
        "observe: condition and event. tighten: above the preempt line a lower `scheduler.maxConcurrencySoft` as well, "
        "down to half of it, until the pressure is gone; `status.tightened` says so.",
    )


class DegradeRule(base.Section):
    """Whose requests get less, and how much less, while the engine is under some pressure. It needs `keys` or
    `maxPriority` (of both a request must meet both), and `maxTokens` or `maxRequests`, or both."""

    at: Literal["queue", "preempt", "backlog"] = base.field(
        "queue",
        "The pressure from which on it holds. queue, preempt: that line is crossed. backlog: half of "
        "`maxQueuedRequests` wait, or one has waited half of `maxQueueSeconds`.",
    )
    keys: Annotated[list[base.KeyName], pydantic.AfterValidator(base.each_once)] = base.field(
        list,
        "Names of API keys, as the file of `access.apiKeysSecretRef` gives them. Empty: every key's requests.",
        max_length=256,
    )
    max_priority: int | None = base.field(
        None,
        "Only requests of this priority or a lower one.",
        default_text="of every priority",
        ge=MIN_PRIORITY,
        le=MAX_PRIORITY,
    )
    max_tokens: int | None = base.field(
        None,
        "Most tokens that such a request may generate; the answer says so in a header.",
        unit="tokens",
        default_text="as many as it asks for",
        ge=1,
    )
    max_requests: int | None = base.field(
        None,
        "So many such requests may run or wait; one more is answered 429. 0: none.",
        default_text="no limit",
        ge=0,
    )


class Overload(base.Section):
    """When a request is answered 429 with Retry-After instead of waiting, and who gets less before that."""

    max_queued_requests: int | None = base.field(
        None,
        "Requests that may wait.",
        default_text="the engine's: 512",
        engine="scheduler.maxQueuedRequests",
        ge=0,
    )
    max_queued_tokens: int | None = base.field(
        None,
        "Tokens of all waiting requests together, each with the most it may generate.",
        unit="tokens",
        default_text="no limit",
        engine="scheduler.maxQueuedTokens",
        ge=1,
    )
    max_queue_seconds: float | None = base.field(
        None,
        "Longest wait for a first turn.",
        unit="seconds",
        default_text="the engine's: 600",
        engine="scheduler.maxQueueSeconds",
        ge=0.001,
    )
    retry_share: Ratio = base.field(
        0.1,
        "Share of the queue that retries may take; they also start after first tries, and are refused before them.",
        engine="scheduler.retryShare",
    )
    degrade: list[DegradeRule] = base.field(
        list,
        "What named keys and low priorities have agreed to get under pressure, so that others go on as usual. Of "
        "several rules that hold, the smallest `maxTokens` counts, and each `maxRequests`.",
        engine="overload.degrade",
        max_length=64,
    )


class Speculative(base.Section):
    """Guesses several tokens and checks them in one step; switched off automatically where it does not pay."""

    method: Literal["none", "ngram", "draft"] = base.field(
        "none",
        "ngram: looks for repetitions in the text. draft: asks a smaller model.",
        engine="speculative.method",
    )
    tokens: int = base.field(4, "Tokens guessed at once.", unit="tokens", engine="speculative.tokens", ge=1, le=32)
    draft_model: base.RelativePath | None = base.field(
        None,
        "For method draft. With `model.source.package`: a name `tidemark models list` shows. With huggingFace: another "
        "repository. With hostPath, or pvc with a path: a folder or file beside the model; with hostPath the folder of "
        "both is mounted. With image, or pvc without a path: one inside the volume.",
    )
