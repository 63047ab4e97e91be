"""Every message between the HTTP process and the engine process: one type each, msgpack on a ZeroMQ socket.

    server -> engine    Submit, Abort, Configure, Drain
    engine -> server    LoadProgress, EngineReady, StepOutputs, Configured, EngineFailed

Nothing else crosses, and nothing here imports torch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tidemark_runtime.contract import admin, status
from tidemark_runtime.core import sampling, step_plan


class FinishReason(StrEnum):
    """How a request ended. Every accepted request ends with exactly one of these."""

    STOP = "stop"
    """An end token, a stop token id, or (decided by the server) a stop string."""
    LENGTH = "length"
    """`max_tokens` generated."""
    ABORT = "abort"
    """The client went away or asked for it."""
    TIMEOUT = "timeout"
    """Waited longer than `max_queue_seconds` for a first turn, or its deadline passed."""
    REJECTED = "rejected"
    """Refused at arrival: the queue is full, it can never fit, or the engine drains."""
    FAILED = "failed"
    """The engine is at fault."""


class RejectReason(StrEnum):
    """Why a request was refused at arrival; the server turns it into a status."""

    QUEUE_FULL = "queue_full"
    NEVER_FITS = "never_fits"
    DRAINING = "draining"


class EngineRequest(msgspec.Struct, frozen=True):
    """One sequence to generate."""

    id: str
    token_ids: list[int]
    params: sampling.SamplingParams
    deadline_seconds: float | None = None
    """Seconds from arrival after which it ends with TIMEOUT, wherever it is."""


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Requests that are accepted together or refused together (`n` choices of one client request)."""

    requests: list[EngineRequest]


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Unknown and finished ids are ignored."""

    ids: list[str]


class Configure(msgspec.Struct, frozen=True, tag="configure"):
    """Hot settings to work with from the next step on; answered with one `Configured`."""

    number: int
    """Of this question, for the answer."""
    settings: dict[str, dict[str, Any]]
    """The whole configuration, as `config_parsing.to_mapping` writes it."""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Take nothing new; finish what is here; then the engine process ends by itself with 0."""


class Configured(msgspec.Struct, frozen=True, tag="configured"):
    """The settings of `Configure` are in force; or, with problems, nothing has changed."""

    number: int
    problems: list[admin.ConfigProblem] = []


class SequenceOutput(msgspec.Struct, frozen=True, array_like=True):
    """What one step brought one request. The one with `finish` is its last."""

    id: str
    token_ids: list[int]
    """New tokens, usually one; a stop token that ended the sequence is included."""
    logprobs: list[step_plan.TokenLogprobs | None]
    """As long as `token_ids`."""
    finish: FinishReason | None = None
    stopped_by: int | None = None
    """The token id that ended it, when finish is STOP."""
    reject: RejectReason | None = None
    message: str = ""
    """For REJECTED, TIMEOUT and FAILED: a sentence for the client, with the numbers."""
    num_cached_tokens: int = 0
    """Prompt tokens whose KV was not computed because it was there already (prefix cache)."""


class EngineStats(msgspec.Struct, frozen=True):
    """State after a step; counters are totals since the engine started."""

    steps: int = 0
    requests_running: int = 0
    requests_waiting: int = 0
    oldest_wait_seconds: float = 0.0
    pages_total: int = 0
    pages_used: int = 0
    tokens_in_used_pages: int = 0
    """Tokens whose KV is in used pages; the rest of those pages is fragmentation."""
    step_tokens: int = 0
    """Of the last step: tokens computed."""
    step_prompt_tokens: int = 0
    """Of the last step: tokens computed beside the one that each sampled sequence needs anyway."""
    step_sequences: int = 0
    """Of the last step: sequences in it."""
    schedule_seconds: float = 0.0
    """Of the last step: time in schedule."""
    execute_seconds: float = 0.0
    """Of the last step: time in execute."""
    update_seconds: float = 0.0
    """Of the last step: time in update."""
    preemptions_total: int = 0
    resumes_total: int = 0
    prompt_tokens_total: int = 0
    """Tokens computed that were known at arrival (a recomputed one counts again)."""
    generated_tokens_total: int = 0
    queue_waits_seconds: list[float] = []
    """Waits until the first turn that ended since the last message."""


class StepOutputs(msgspec.Struct, frozen=True, tag="outputs"):
    """After every step that brought something, and as a heartbeat at least once a second."""

    outputs: list[SequenceOutput]
    stats: EngineStats


class EngineReady(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded and warm."""

    worker: dict[str, str]
    """kind, device, dtype, kvDtype, threads ... for `/status`."""
    kernel_paths: dict[str, str]
    memory_bytes: dict[str, int]
    num_pages: int
    block_size: int
    page_bytes: int
    max_context_tokens: int
    max_request_tokens: int
    """Most tokens one request can have in this slab: min(context, pages x block size)."""
    shape: status.ModelShape | None = None
    """For `/status`."""


class LoadProgress(msgspec.Struct, frozen=True, tag="progress"):
    """While loading: what is done, as a fraction."""

    phase: str
    fraction: float


class EngineFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Loading or a step failed; the engine process ends right after."""

    message: str
    kind: str
    """Name of the exception class, for example `UnsupportedModel`."""


ToEngine = Submit | Abort | Configure | Drain
FromEngine = StepOutputs | EngineReady | LoadProgress | Configured | EngineFailed
