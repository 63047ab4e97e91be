"""The engine's settings: every one, with its unit, default and reason, and whether a change is hot or a restart.

Parsed (`config_parsing.parse`) into these frozen dataclasses, `auto` resolved once when the model is known (by the
worker that loads it), never changed afterwards: a hot change makes a new object.

In a file the sections and keys are camelCase (`kvCache: {blockSize: 16}`); on the command line a setting is the
flag named beside it (`--block-size 16`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

AUTO: Literal["auto"] = "auto"
KV_DTYPES = (AUTO, "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int8", "int4")
QUANTIZED_KV_DTYPES = ("fp8_e4m3", "fp8_e5m2", "int8", "int4")
LOSSY_KV_DTYPES = ("int4",)
"""Refused unless `kvCache.allowLossy` is set. The page layout knows the same; a test compares the two."""
LOSSY_COST = (
    "With int4 the next tokens of SmolLM2-135M are 0.054 nats of mean KL away (int8: 0.0008), its perplexity rises by "
    "3.4 % (int8: 0.1 %), 0 of 8 greedy answers stay the same (int8: 6), and of 20 facts in long texts it answers 4 "
    "otherwise (int8: none)"
)
"""Of int4, for messages: measured by `tidemark eval`; docs/operations/accuracy.md has the table."""


class Effect(StrEnum):
    """When a change of a setting takes effect."""

    HOT = "hot"
    """Between two steps, without touching requests in flight."""
    RESTART = "restart"
    """In a new engine process."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field says of itself beside its type and default."""

    effect: Effect
    flag: str | None
    minimum: float | None = None
    maximum: float | None = None
    size: bool = False
    """True: a number of bytes that may be written 8Gi, 512Mi."""
    choices: tuple[str, ...] = ()


def _setting(
    default: Any,
    effect: Effect,
    flag: str | None = None,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    size: bool = False,
    choices: tuple[str, ...] = (),
) -> Any:
    setting = Setting(effect, flag, minimum, maximum, size, choices)
    return field(default=default, metadata={"setting": setting})


HOT, RESTART = Effect.HOT, Effect.RESTART

QUANTIZATIONS = (AUTO, "none", "int8", "int8_weight_only", "fp8_weight_only", "awq", "gptq")
"""What weights may be held in."""

DEVICES = (AUTO, "cpu", "cuda", "xpu", "npu", "musa", "mlu")
"""What may compute, as torch spells the types of devices."""

PRIORITY_MIN, PRIORITY_MAX = -100, 100
"""Of a request; a larger one goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model, in which precision."""

    source: str = _setting("", RESTART)
    """A `.gguf` file, a Hugging Face folder, or a name `tidemark models list` shows. Required."""
    name: str | None = _setting(None, RESTART, "served-name")
    """What clients send as `model`. Default: the source's own name."""
    dtype: str = _setting(AUTO, RESTART, "dtype", choices=(AUTO, "float32", "bfloat16", "float16"))
    """Of activations and of unquantized weights. auto: on a device the model's own 16 bits; on a processor float32, in
    which a request gets the same text whatever runs beside it. bfloat16 on a processor reads long prompts faster where
    it has instructions for it, but rounds by the number of rows of a step: a text can differ beside others."""
    quantization: str = _setting(AUTO, RESTART, "quantization", choices=QUANTIZATIONS)
    """Of weights. auto: as the file holds them (GGUF, AWQ, GPTQ or unquantized). none: expanded to `dtype`.
    int8_weight_only, fp8_weight_only: unquantized matrices are rounded to 8 bits while loading (int8: groups of 32,
    fp8: E4M3, one scale a row), embedding and head are kept, activations and sums stay as they are; what the file holds
    in groups stays so. awq, gptq: as auto, and the start is refused where the file is something else. int8: as the file
    holds them, unquantized ones rounded to 8 bits, and activations rounded to 8 bits: faster at every batch size, but
    answers differ from the exact ones. What each costs: docs/operations/weights.md."""
    max_context_tokens: int | None = _setting(None, HOT, "max-context-tokens", minimum=1)
    """Most tokens, prompt and output together, of one request; one that could become longer is answered 400. Default:
    the model's own limit. A running engine takes any value up to the one it was started with: its tables and its slab
    are made for that, and more needs a restart. Requests in flight keep what they were admitted with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRule:
    """Layers and heads whose keys or values are kept in another dtype than `kvCache.dtype`."""

    layers: str = _setting("", RESTART)
    """Numbers from 0 and ranges, such as `0,3-5`. Required."""
    heads: str | None = _setting(None, RESTART)
    """KV heads, in the same form. Default: all."""
    kind: str = _setting("both", RESTART, choices=("k", "v", "both"))
    """Keys, values, or both."""
    dtype: str = _setting(AUTO, RESTART, choices=KV_DTYPES)
    """auto: 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheConfig:
    """The slab: how large, how divided."""

    dtype: str = _setting(
        AUTO,
        RESTART,
        "kv-cache-dtype",
        choices=KV_DTYPES,
    )
    """Of keys and values. auto: the model's dtype. Those of 8 bits have a scale for each token and head; int8 changes
    answers least. int4 needs `allow_lossy`."""
    allow_lossy: bool = _setting(False, RESTART, "allow-lossy")
    """Accepts int4 for all keys and values, or for those that a precision map names, although facts of long texts are
    lost with it. Measure your own model first: `tidemark eval MODEL --kv-cache-dtype int4`."""
    precision: tuple[PrecisionRule, ...] = _setting((), RESTART)
    """What is kept in another dtype: layers and heads that quantizing would harm most."""
    precision_file: str | None = _setting(None, RESTART, "precision-file")
    """The same as a file, as `tidemark eval sensitivity` writes it, instead of `precision`; read at the start."""
    scales_file: str | None = _setting(None, RESTART, "scales-file")
    """One scale for all tokens of a head, as `tidemark eval calibrate` writes them from your own text, instead of one
    for each token: 4 bytes less a token and head, K and V each. What is larger than anything in that text is clipped.
    For dtypes of 8 bits; read at the start, and refused with another model or where a scale is missing."""
    block_size: int = _setting(16, RESTART, "block-size", minimum=1, maximum=256)
    """Tokens a page. 16 wastes under 4 % in half-filled pages at usual lengths."""
    memory: int | None = _setting(None, RESTART, "kv-memory", minimum=1, size=True)
    """Bytes of the slab, on each rank where several share the model (`hardware.tensor_parallel`). Default: what
    `memory_utilization` leaves after the weights, never more than can be used."""
    num_pages: int | None = _setting(None, RESTART, "num-pages", minimum=1)
    """Pages of the slab, instead of `memory`; mostly for tests. Of each rank where several share the model."""
    memory_utilization: float = _setting(0.9, RESTART, "memory-utilization", minimum=0.05, maximum=1.0)
    """Share of the device's memory that weights, slab and workspace may take together."""
    prefix_caching: bool = _setting(True, RESTART, "prefix-caching")
    """Keep the pages of ended requests until others need the room, and use them again for requests of the same API key
    that begin with the same tokens."""
    swap_space: int = _setting(0, RESTART, "swap-space", minimum=0, size=True)
    """Bytes of the host's memory for pages of preempted requests. 0: they are computed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Who runs, who waits, who gives way, and what a step may hold."""

    max_num_seqs: int = _setting(64, RESTART, "max-num-seqs", minimum=1, maximum=4096)
    """Most sequences in the running batch; sizes the worker's tables, so a change restarts."""
    max_num_batched_tokens: int = _setting(512, HOT, "max-num-batched-tokens", minimum=1, maximum=1_048_576)
    """Token budget of a step: running sequences first, then chunks of prompts."""
    target_step_seconds: float | None = _setting(None, HOT, "target-step-seconds", minimum=0.001, maximum=60)
    """No step takes in so many prompt tokens that it is predicted to take longer; running sequences always get their
    token. The prediction is fitted to the steps before. Default: no limit but the budget."""
    max_concurrency_soft: int | None = _setting(None, HOT, "max-concurrency-soft", minimum=1)
    """More requests than this wait in the queue; nothing fails. Default: `max_num_seqs`."""
    queue_watermark: float = _setting(0.70, HOT, "queue-watermark", minimum=0, maximum=1)
    """Share of the pages in use from which on new requests wait although pages remain, so that running ones can grow.
    Pages that only the prefix cache keeps are not in use."""
    preempt_watermark: float = _setting(0.90, HOT, "preempt-watermark", minimum=0, maximum=1)
    """Share of the pages above which nobody starts while others run, and from which on a waiting request of strictly
    higher priority takes the pages of the cheapest running one of lower priority."""
    watermark_hysteresis: float = _setting(0.05, HOT, "watermark-hysteresis", minimum=0, maximum=1)
    """How far use must fall below a line before the line counts as left."""
    long_request_tokens: int = _setting(4096, HOT, "long-request-tokens", minimum=1)
    """From so many tokens on (prompt and the most it may generate) a request takes the slow lane."""
    long_request_share: float = _setting(0.5, HOT, "long-request-share", minimum=0, maximum=1)
    """Share of a step's prompt tokens, and of the pages, that the slow lane is guaranteed; the express lane is
    guaranteed the rest. What one lane does not use the other may."""
    aging_seconds: float = _setting(10.0, HOT, "aging-seconds", minimum=0)
    """Who has waited so long for a first turn is passed by nobody of its lane any more, and by the other lane only
    until that one has had its share of the turns."""
    fairness: str = _setting("none", HOT, "fairness", choices=("none", "apiKey"))
    """none: first come, first served within a lane. apiKey: API keys take turns, by the tokens of their requests."""
    preemption_mode: str = _setting("auto", HOT, "preemption-mode", choices=("auto", "swap", "recompute"))
    """How the pages of a preempted sequence come back. swap: copied to the host's memory and back, where swap space is
    left. recompute: computed again. auto: whichever is predicted to take less time, from measurements."""
    max_preemptions_per_request: int = _setting(3, HOT, "max-preemptions-per-request", minimum=0)
    """After so many a sequence is no longer chosen as a victim."""
    max_queued_requests: int = _setting(512, HOT, "max-queued-requests", minimum=0)
    """Requests that may wait; one more is answered 429 with Retry-After."""
    max_queued_tokens: int | None = _setting(None, HOT, "max-queued-tokens", minimum=1)
    """Tokens of all waiting requests together, each with the most it may generate; then 429. Default: no limit."""
    max_queue_seconds: float = _setting(600.0, HOT, "max-queue-seconds", minimum=0.001)
    """Longest wait for a first turn; then 429. The default is generous: a batch client may well wait."""
    retry_share: float = _setting(0.1, HOT, "retry-share", minimum=0, maximum=1)
    """Share of the queue that retries may take, rounded down to whole requests; they also start after first tries, and
    are shed before them. Where it comes to 0, as 0.1 does with a `max_queued_requests` under 10, no retry waits: it
    enters only when a place is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradeRule:
    """Whose requests get less, and how much less, while the engine is under some pressure. Needs `keys` or
    `maxPriority`, of both a request must meet both; and `maxTokens` or `maxRequests`, or both."""

    at: str = _setting("queue", HOT, choices=("queue", "preempt", "backlog"))
    """The pressure from which on it holds. queue: `scheduler.queueWatermark` is crossed. preempt:
    `scheduler.preemptWatermark` is crossed. backlog: half of `scheduler.maxQueuedRequests` wait, or one has waited half
    of `scheduler.maxQueueSeconds`."""
    keys: tuple[str, ...] = _setting((), HOT)
    """Names of API keys, as the key file gives them. None: every key's requests."""
    max_priority: int | None = _setting(None, HOT, minimum=PRIORITY_MIN, maximum=PRIORITY_MAX)
    """Only requests of this priority or a lower one. Default: of every priority."""
    max_tokens: int | None = _setting(None, HOT, minimum=1)
    """Most tokens that such a request may generate; the answer says so in a header."""
    max_requests: int | None = _setting(None, HOT, minimum=0)
    """So many such requests may be in the server, running or waiting; one more is answered 429. 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadConfig:
    """Who gets less when there is not enough for all."""

    degrade: tuple[DegradeRule, ...] = _setting((), HOT)
    """What named keys and low priorities have agreed to get under pressure, so that others go on as usual. Of several
    rules that hold, the smallest `maxTokens` counts, and each `maxRequests`. What is in flight is not touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """Guessing several tokens and checking them in one step. The text is the same as without, whatever is guessed; it
    goes off by itself, for each request and for the engine, where it does not pay."""

    method: str = _setting("none", RESTART, "speculative-method", choices=("none", "ngram", "draft"))
    """ngram: what followed the same tokens earlier in prompt or answer; pays where answers copy. draft: what a smaller
    model says. A restart, because the memory of a step and of the second model is planned at the start."""
    tokens: int = _setting(4, RESTART, "speculative-tokens", minimum=1, maximum=32)
    """Most tokens guessed at once; less where less pays. A restart, because a step holds a row of logits for each."""
    draft_model: str | None = _setting(None, RESTART, "draft-model")
    """For method draft: a `.gguf` file, a Hugging Face folder, or a name `tidemark models list` shows. It must have the
    tokenizer of the model. Its KV pages are as many as the model's, and are counted with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The HTTP side."""

    host: str = _setting("127.0.0.1", RESTART, "host")
    """Address to listen on."""
    port: int = _setting(8000, RESTART, "port", minimum=0, maximum=65_535)
    """Port to listen on; 0 takes a free one and says which."""
    api_keys_file: str | None = _setting(None, RESTART, "api-keys-file")
    """File with one key a line, then what it may do, such as `name=batch priority=-1` (`#` begins a comment); read
    again when it changes. None: no key is asked for."""
    admin_token_file: str | None = _setting(None, RESTART, "admin-token-file")
    """File with the tokens that open /admin, one a line, read again when it changes. None: there is no /admin; an API
    key never opens it."""
    tls_cert_file: str | None = _setting(None, RESTART, "tls-cert-file")
    """PEM file with the certificate and its chain: the server speaks HTTPS only. Read again when it changes: new
    connections get the new one."""
    tls_key_file: str | None = _setting(None, RESTART, "tls-key-file")
    """PEM file with the certificate's private key, not encrypted. Goes with `tls_cert_file`."""
    max_body: int = _setting(8 * 1024 * 1024, HOT, "max-body", minimum=1024, size=True)
    """Largest request body in bytes; a larger one is answered 413 without reading it all."""
    body_seconds: float = _setting(60.0, HOT, "body-seconds", minimum=0.1)
    """How long a client may take to send a request body, from when the server begins to read it; who takes longer is
    answered 408."""
    drain_seconds: float = _setting(60.0, HOT, "drain-seconds", minimum=0)
    """Counted from SIGTERM, how long running requests may go on."""
    lame_duck_seconds: float = _setting(0.0, HOT, "lame-duck-seconds", minimum=0)
    """Counted from SIGTERM, how long new connections are still accepted and served although the server says that it is
    not ready; part of `drain_seconds`. On a cluster it takes a moment until nobody sends any more."""
    stall_seconds: float = _setting(60.0, HOT, "stall-seconds", minimum=0.1)
    """Without progress for so long although there is work, liveness fails."""
    log_level: str = _setting("info", HOT, "log-level", choices=("debug", "info", "warning", "error"))
    """What is logged to standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareConfig:
    """What the engine computes on."""

    device: str = _setting(AUTO, RESTART, "device", choices=DEVICES)
    """auto: the accelerator that torch sees, else the processor. cpu: the processor, whatever else is there. Others:
    that type of accelerator, and the start is refused where there is none. What has been tried on which:
    docs/operations/accelerators.md."""
    threads: int | None = _setting(None, RESTART, "threads", minimum=1)
    """Compute threads. Default: the cores this process may use (affinity and cgroup quota)."""
    strict_kernels: bool | None = _setting(None, RESTART, "strict-kernels")
    """Refuse to become ready where an op runs on another path than planned, because what is planned is missing.
    Default: true on a device, false on a processor: without a C compiler, as in many small images, it serves slowly,
    and `/status` and metrics say so."""
    memory: int | None = _setting(None, RESTART, "memory", minimum=1, size=True)
    """Bytes the whole pod may use; on a device, of its memory. Default: the cgroup's limit, or the machine's memory; on
    a device all of it."""
    tensor_parallel: int = _setting(1, RESTART, "tensor-parallel", minimum=1, maximum=64)
    """Devices that share each layer of the model, each with a process, a part of the weights and one of the KV heads.
    It must divide query heads and MLP, and KV heads or the other way round. On a processor that many processes share
    the cores and the memory: slower than one, for tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """All settings of one engine, by concern."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    kv_cache: KVCacheConfig = dataclasses.field(default_factory=KVCacheConfig)
    scheduler: SchedulerConfig = dataclasses.field(default_factory=SchedulerConfig)
    overload: OverloadConfig = dataclasses.field(default_factory=OverloadConfig)
    speculative: SpeculativeConfig = dataclasses.field(default_factory=SpeculativeConfig)
    server: ServerConfig = dataclasses.field(default_factory=ServerConfig)
    hardware: HardwareConfig = dataclasses.field(default_factory=HardwareConfig)
