"""The `/status` document: what `tidemark status`, the operator and a curious person read of one engine."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class EngineState(StrEnum):
    """One word for what the engine is doing."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STALLED = "stalled"
    """Work is there and no progress was made for `stall_seconds`."""
    FAILED = "failed"


class ModelStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    source: str
    max_context_tokens: int = 0
    max_request_tokens: int = 0
    """min(context, slab): the longest request this engine can take."""


class ConfigStatus(msgspec.Struct, frozen=True, rename="camel"):
    hash: str
    generation: int = 1


class LoadStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str
    fraction: float


class MemoryStatus(msgspec.Struct, frozen=True, rename="camel"):
    parts_bytes: dict[str, int] = {}
    """Measured: weights, kv, ..."""
    page_bytes: int = 0
    block_size: int = 0
    pages_total: int = 0
    pages_used: int = 0
    usage_ratio: float = 0.0


class QueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    running: int = 0
    waiting: int = 0
    oldest_wait_seconds: float = 0.0
    preemptions_total: int = 0


class EngineStatus(msgspec.Struct, frozen=True, rename="camel"):
    version: str
    state: EngineState
    message: str
    """A sentence for a person; says what to do when something is wrong."""
    model: ModelStatus
    config: ConfigStatus
    reason: str = ""
    """One of `contract.reasons` when something is wrong, for programs; empty else."""
    worker: dict[str, str] = {}
    """kind, device, dtype, kvDtype, threads."""
    kernel_paths: dict[str, str] = {}
    load: LoadStatus | None = None
    memory: MemoryStatus = MemoryStatus()
    queue: QueueStatus = QueueStatus()
    uptime_seconds: float = 0.0
    last_progress_age_seconds: float = 0.0
