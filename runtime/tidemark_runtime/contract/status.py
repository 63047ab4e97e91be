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


class ModelShape(msgspec.Struct, frozen=True, rename="camel"):
    """What a capacity plan is made of, as the engine that loaded the model found it."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    weights_bytes: int
    kv_token_bytes: float
    """What a token costs in KV memory when its page is full (`planning.PageLayout.token_bytes`)."""
    num_heads: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    vocab_size: int = 0
    max_context_tokens: int = 0
    """The model's own limit."""


class ModelStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    source: str
    max_context_tokens: int = 0
    """The limit in force; `model.maxContextTokens` is hot."""
    max_request_tokens: int = 0
    """min(context, slab): the longest request this engine can take."""
    shape: ModelShape | None = None
    """None until the model is loaded."""


class ConfigStatus(msgspec.Struct, frozen=True, rename="camel"):
    hash: str
    """`contract.settings.config_hash` of what is in force."""
    generation: int = 1
    """How many configurations have been in force since this process started; 1 is the one it started with."""
    restart_hash: str = ""
    """`contract.settings.restart_hash`, places included: the same file has the same. Where only `hash` differs from
    what is wanted, `PUT /admin/config` is enough. Empty: an engine that does not take it."""


class LoadStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str
    fraction: float


class MemoryStatus(msgspec.Struct, frozen=True, rename="camel"):
    parts_bytes: dict[str, int] = {}
    """Measured at the start: weights, kv, activations (where they were), workspace, overhead, swap."""
    planned_bytes: dict[str, int] = {}
    """What the plan said, by the same parts, from the files and the settings alone."""
    limit_bytes: int = 0
    """What the pod may use; 0: not known."""
    kv_bytes: dict[str, int] = {}
    """Of the slab, by the dtype of what lies there: with a precision map there are several. Where several ranks share
    the model: of all of them on a processor, of the one with the largest pages on devices, and every dtype is there."""
    page_bytes: int = 0
    block_size: int = 0
    pages_total: int = 0
    pages_used: int = 0
    usage_ratio: float = 0.0
    pages_cached: int = 0
    """Of the slab, held by nobody and kept for who begins with the same tokens; not part of `pages_used`."""
    pages_swapped: int = 0
    """Of the swap space, in use."""
    swap_pages_total: int = 0
    """Pages there are in the swap space."""


class LineStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A level of memory use at which behaviour changes."""

    level: float
    """Share of the pages in use from which on it counts as crossed."""
    above: bool = False
    seconds_above_total: float = 0.0


class QueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    running: int = 0
    waiting: int = 0
    """In both lanes."""
    oldest_wait_seconds: float = 0.0
    preemptions_total: int = 0
    waiting_by_lane: dict[str, int] = {}
    """express, slow."""
    places: int = 0
    """Most that run at once (`scheduler.maxNumSeqs`)."""
    step_tokens_most: int = 0
    """Token budget of a step (`scheduler.maxNumBatchedTokens`)."""


class SpeculativeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Guessing tokens and checking several in one step."""

    method: str = "none"
    tokens: int = 0
    """Most guessed at once."""
    proposed_total: int = 0
    accepted_total: int = 0
    acceptance_ratio: float = 0.0
    """Of all so far."""
    active_ratio: float = 0.0
    """Share of the sequences that decode whose guesses were checked, lately; 0: it is off, or nothing runs."""
    gain: float = 1.0
    """Tokens that the last steps with guesses brought each sequence that decodes, times predicted seconds without over
    measured seconds, which counts as 1 at most: never more than `tokens` + 1."""


class DeviceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A card, as NVIDIA's library has it; what it does not say is None."""

    device: str
    """Its number, as in the metrics."""
    uuid: str
    name: str
    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    xid_errors: dict[str, int] | None = None
    """By number, those that were reported since the start; None where the driver does not report them."""
    problem: str = ""
    """What the library says of a card that says nothing else."""


class SelfTest(StrEnum):
    """What came of comparing an op with its reference, at the start. An engine of which one failed is not there: it
    ends with the reason `KernelSelfTestFailed` and says which."""

    OK = "ok"
    NONE = "none"
    """It was not compared: the first step that ran it in this dtype came later."""


class KernelPath(msgspec.Struct, frozen=True, rename="camel"):
    """One op in one dtype: what was to run it, and what does."""

    op: str
    planned: str
    path: str
    """What ran in the steps so far, counted where it ran; `cpu-c`, `torch`, or the form of a weight."""
    dtype: str
    """What its numbers are: of attention and the write of K and V the dtype in the pages, else that of the inputs."""
    self_test: SelfTest = SelfTest.NONE
    largest_error: float = 0.0
    """Largest difference from the reference, over the root mean square of what that says."""
    tolerance: float = 0.0
    """The largest error that is taken; 0: equal bit for bit."""
    reason: str = ""
    """Where `path` is not the planned one: why, and what to do."""

    @property
    def is_planned(self) -> bool:
        return self.path == self.planned


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
    kernel_paths: list[KernelPath] = []
    """Of every op that the model uses, by name and dtype."""
    load: LoadStatus | None = None
    memory: MemoryStatus = MemoryStatus()
    lines: dict[str, LineStatus] = {}
    """queue, preempt."""
    queue: QueueStatus = QueueStatus()
    speculative: SpeculativeStatus = SpeculativeStatus()
    step_prices: dict[str, float] = {}
    """What steps have been found to cost, in seconds: `base` of each, and each `decode`, `promptToken`, `tokenRead`
    (a KV token that a decode reads) and `pair` (of a prompt token and a KV token). Empty before the first step."""
    out_of_memory_total: int = 0
    """Times that memory ran out since the start."""
    devices: list[DeviceStatus] = []
    """Cards that this process may see; empty without NVIDIA's library."""
    certificate_expires: float | None = None
    """Unix time at which the certificate, or the first of its chain, ends; None without TLS."""
    keys_expire: dict[str, float] = {}
    """Of API keys that end: by name, the Unix time."""
    uptime_seconds: float = 0.0
    last_progress_age_seconds: float = 0.0
