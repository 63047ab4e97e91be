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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model, in which precision."""

    source: str = _setting("", RESTART)
    """A `.gguf` file, a Hugging Face folder, or a name `tidemark models list` shows. Required."""
    name: str | None = _setting(None, RESTART, "served-name")
    """What clients send as `model`. Default: the source's own name."""
    dtype: str = _setting(AUTO, RESTART, "dtype", choices=(AUTO, "float32", "bfloat16", "float16"))
    """Of activations and of unquantized weights. auto: bfloat16 where the processor is fast at it, else float32."""
    quantization: str = _setting(AUTO, RESTART, "quantization", choices=(AUTO, "none", "int8"))
    """Of weights. auto: as the file holds them. none: expanded to `dtype`. int8: as the file holds them,
    unquantized ones rounded to 8 bits, and activations rounded to 8 bits: faster at every batch size, but answers
    differ from the exact ones: read benchmarks/results/cpu.md before choosing it."""
    max_context_tokens: int | None = _setting(None, RESTART, "max-context-tokens", minimum=1)
    """Most tokens, prompt and output together, of one request. Default: the model's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheConfig:
    """The slab: how large, how divided."""

    dtype: str = _setting(AUTO, RESTART, "kv-cache-dtype", choices=(AUTO, "float32", "float16", "bfloat16"))
    """Of keys and values. auto: the model's dtype."""
    block_size: int = _setting(16, RESTART, "block-size", minimum=1, maximum=256)
    """Tokens a page. 16 wastes under 4 % in half-filled pages at usual lengths."""
    memory: int | None = _setting(None, RESTART, "kv-memory", minimum=1, size=True)
    """Bytes of the slab. Default: what `memory_utilization` leaves after the weights, never more than can be used."""
    num_pages: int | None = _setting(None, RESTART, "num-pages", minimum=1)
    """Pages of the slab, instead of `memory`; mostly for tests."""
    memory_utilization: float = _setting(0.9, RESTART, "memory-utilization", minimum=0.05, maximum=1.0)
    """Share of the device's memory that weights, slab and workspace may take together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What a step may hold, and how long requests may wait."""

    max_num_seqs: int = _setting(64, RESTART, "max-num-seqs", minimum=1, maximum=4096)
    """Most sequences in the running batch; sizes the worker's tables, so a change restarts."""
    max_num_batched_tokens: int = _setting(512, HOT, "max-num-batched-tokens", minimum=1, maximum=1_048_576)
    """Token budget of a step: running sequences first, then chunks of prompts."""
    max_queued_requests: int = _setting(512, HOT, "max-queued-requests", minimum=0)
    """Requests that may wait; one more is answered 429 with Retry-After."""
    max_queue_seconds: float = _setting(600.0, HOT, "max-queue-seconds", minimum=0.001)
    """Longest wait for a first turn; then 429. The default is generous: a batch client may well wait."""
    max_preemptions_per_request: int = _setting(3, HOT, "max-preemptions-per-request", minimum=0)
    """After so many a sequence is no longer chosen as a victim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The HTTP side."""

    host: str = _setting("127.0.0.1", RESTART, "host")
    """Address to listen on."""
    port: int = _setting(8000, RESTART, "port", minimum=0, maximum=65_535)
    """Port to listen on; 0 takes a free one and says which."""
    api_keys_file: str | None = _setting(None, RESTART, "api-keys-file")
    """File with one key a line (`#` begins a comment), read again when it changes. None: no key is asked for."""
    admin_token_file: str | None = _setting(None, RESTART, "admin-token-file")
    """File with the tokens that open /admin, written like the key file, read again when it changes. None: there is no
    /admin; an API key never opens it."""
    tls_cert_file: str | None = _setting(None, RESTART, "tls-cert-file")
    """PEM file with the certificate and its chain: the server speaks HTTPS only. Read again when it changes: new
    connections get the new one."""
    tls_key_file: str | None = _setting(None, RESTART, "tls-key-file")
    """PEM file with the certificate's private key, not encrypted. Goes with `tls_cert_file`."""
    max_body: int = _setting(8 * 1024 * 1024, HOT, "max-body", minimum=1024, size=True)
    """Largest request body in bytes; a larger one is answered 413 without reading it all."""
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

    device: str = _setting("cpu", RESTART, "device", choices=("cpu",))
    """Only the processor, so far."""
    threads: int | None = _setting(None, RESTART, "threads", minimum=1)
    """Compute threads. Default: the cores this process may use (affinity and cgroup quota)."""
    memory: int | None = _setting(None, RESTART, "memory", minimum=1, size=True)
    """Bytes the whole pod may use. Default: the cgroup's limit, or the machine's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """All settings of one engine, by concern."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    kv_cache: KVCacheConfig = dataclasses.field(default_factory=KVCacheConfig)
    scheduler: SchedulerConfig = dataclasses.field(default_factory=SchedulerConfig)
    server: ServerConfig = dataclasses.field(default_factory=ServerConfig)
    hardware: HardwareConfig = dataclasses.field(default_factory=HardwareConfig)
