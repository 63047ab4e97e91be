"""Every message between the HTTP process and the engine process: one type each, msgpack on a ZeroMQ socket.

    server -> engine    Submit, Abort, Configure, ListSequences, Drain
    engine -> server    LoadProgress, EngineReady, KernelPaths, StepOutputs, Configured, SequenceList, EngineFailed

Nothing else crosses, and nothing here imports torch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tidemark_runtime.contract import admin, status
from tidemark_runtime.core import overload, sampling, step_plan


class FinishReason(StrEnum):
    """How a request ended. Every accepted request ends with exactly one of these."""

    STOP = "stop"
    """An end token, a stop token id, or (decided by the server) a stop string."""
    LENGTH = "length"
    """`max_tokens` generated."""
    ABORT = "abort"
    """The client went away or asked for it."""
    TIMEOUT = "timeout"
    """Waited longer than `max_queue_seconds` for a first turn."""
    DEADLINE = "deadline"
    """Its own deadline passed, wherever it was."""
    REJECTED = "rejected"
    """Refused at arrival: the queue is full, it can never fit, or the engine drains."""
    FAILED = "failed"
    """The engine is at fault."""


RejectReason = overload.Reason


class EngineRequest(msgspec.Struct, frozen=True):
    """One sequence to generate."""

    id: str
    token_ids: list[int]
    params: sampling.SamplingParams
    deadline_seconds: float | None = None
    """Seconds from arrival after which it ends with DEADLINE, wherever it is."""
    priority: int = 0
    """Strict classes: a larger one goes first."""
    tenant: str = ""
    """Whose it is: the prefix cache is shared within a tenant, and tenants may take turns."""
    is_retry: bool = False
    """The client tried before."""
    group: str = ""
    """Of all sequences of one client request: once one of them has had its first turn, the queue keeps the others.
    Empty where it is the only one."""


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


class ListSequences(msgspec.Struct, frozen=True, tag="list"):
    """Somebody looks: answered with one `SequenceList`, between two steps."""

    number: int
    """Of this question, for the answer."""
    most: int
    """So many sequences are described."""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Take nothing new; finish what is here; then the engine process ends by itself with 0."""


class Configured(msgspec.Struct, frozen=True, tag="configured"):
    """The settings of `Configure` are in force; or, with problems, nothing has changed."""

    number: int
    problems: list[admin.ConfigProblem] = []


class SequenceState(StrEnum):
    """Where a sequence is."""

    WAITING = "waiting"
    """For its first turn; holds nothing."""
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Lost its pages and waits for another turn: they are computed again then."""
    SWAPPED = "swapped"
    """The same, and its pages are in the swap space."""
    RESTORING = "restoring"
    """Its pages are being copied back."""


class SequenceFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one sequence holds; nothing of what was asked or answered."""

    id: str
    state: SequenceState
    lane: str
    """express or slow."""
    priority: int
    prompt_tokens: int
    cached_tokens: int
    """Of these, found in the prefix cache at its first turn."""
    generated_tokens: int
    most_tokens: int
    """It may generate."""
    pages: int
    """Of the slab; one that is shared counts for each."""
    swapped_pages: int
    """Of the swap space."""
    preemptions: int
    age_seconds: float
    """Since its arrival."""


class LineCrossing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A time in which a line was crossed."""

    level: str
    """queue or preempt."""
    ago_seconds: float
    """Since it was crossed."""
    lasted_seconds: float
    """Until it was left, or until now."""
    over: bool
    """It has been left."""
    pages_used: int
    """When it was crossed."""


class SequenceList(msgspec.Struct, frozen=True, tag="listed"):
    """The answer to `ListSequences`: all of one moment."""

    number: int
    steps: int
    """`EngineStats.steps` at that moment."""
    running: int
    waiting: int
    pages_used: int
    """Of the slab, as the pool counts."""
    pages_held: int
    """By all sequences together; more than `pages_used` where some share pages."""
    pages_swapped: int
    """Of the swap space, as its pool counts."""
    sequences: list[SequenceFacts]
    """Those with most pages, up to as many as were asked for."""
    crossings: list[LineCrossing]
    """The last ones, the newest first."""


class SequenceOutput(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one step brought one request. The one with `finish` is its last.

    There is one for each sequence of each step. Nothing in it can refer back to it, so the garbage collector need not
    know of it.
    """

    id: str
    token_ids: tuple[int, ...]
    """New tokens, usually one; a stop token that ended the sequence is included."""
    logprobs: tuple[step_plan.TokenLogprobs | None, ...]
    """As long as `token_ids`."""
    finish: FinishReason | None = None
    stopped_by: int | None = None
    """The token id that ended it, when finish is STOP."""
    reject: RejectReason | None = None
    message: str = ""
    """For REJECTED, TIMEOUT, DEADLINE and FAILED: a sentence for the client, with the numbers."""
    retry_after_seconds: float = 0.0
    """For REJECTED, TIMEOUT and DEADLINE, where trying again may help: after so long."""
    num_cached_tokens: int = 0
    """Prompt tokens whose KV was not computed because it was there already (prefix cache)."""


class EngineStats(msgspec.Struct, frozen=True):
    """State after a step; counters are totals since the engine started."""

    steps: int = 0
    requests_running: int = 0
    requests_waiting: int = 0
    requests_waiting_slow: int = 0
    """Of these, in the slow lane."""
    oldest_wait_seconds: float = 0.0
    pages_total: int = 0
    pages_used: int = 0
    pages_cached: int = 0
    """Held by nobody, kept for whoever begins with the same tokens; free for all who need pages."""
    pages_swapped: int = 0
    """Pages of the swap space that are in use."""
    page_evictions_total: int = 0
    swap_pages_total: int = 0
    """Pages there are in the swap space."""
    swapped_out_pages_total: int = 0
    swapped_in_pages_total: int = 0
    prefix_hit_tokens_total: int = 0
    prefix_missed_tokens_total: int = 0
    above_queue_line: bool = False
    above_preempt_line: bool = False
    seconds_above_queue_line_total: float = 0.0
    seconds_above_preempt_line_total: float = 0.0
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
    step_prices: dict[str, float] = {}
    """Seconds, as fitted to the steps so far: `base`, `decode`, `promptToken`, `tokenRead`, `pair`."""
    preemptions_total: int = 0
    """Both ways of coming back together."""
    preemptions_swap_total: int = 0
    """Of these, with pages copied to the swap space."""
    resumes_total: int = 0
    resumes_swap_total: int = 0
    prompt_tokens_total: int = 0
    """Tokens computed that were known at arrival (a recomputed one counts again)."""
    generated_tokens_total: int = 0
    guesses_proposed_total: int = 0
    """Tokens guessed and checked."""
    guesses_accepted_total: int = 0
    """Of these, right."""
    guessing_ratio: float = 0.0
    """Share of the sequences that decode whose guesses were checked, lately."""
    guessing_gain: float = 1.0
    """Tokens a second of the steps with guesses, over what they are predicted to bring without, lately."""
    queue_waits_seconds: list[float] = []
    """Waits until the first turn that ended since the last message, of the express lane."""
    slow_queue_waits_seconds: list[float] = []
    """... of the slow lane."""
    busy_seconds_total: float = 0.0
    """Time in execute, of all steps."""
    out_of_memory_total: int = 0
    """Steps that came to nothing because memory ran out."""
    op_seconds: list[dict[str, float]] = []
    """Of each step that was timed since the last message: seconds by op, which sum to its time in execute."""


class StepOutputs(msgspec.Struct, frozen=True, tag="outputs"):
    """After every step that brought something, and as a heartbeat at least once a second."""

    outputs: list[SequenceOutput]
    stats: EngineStats


class EngineReady(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded and warm."""

    worker: dict[str, str]
    """kind, device, dtype, kvDtype, threads ... for `/status`."""
    kernel_paths: list[status.KernelPath]
    memory_bytes: dict[str, int]
    num_pages: int
    block_size: int
    page_bytes: int
    max_context_tokens: int
    """What the worker's tables were made for; the limit in force may be lower (`model.maxContextTokens` is hot)."""
    max_request_tokens: int
    """Most tokens one request can have in this slab: min(context, pages x block size)."""
    shape: status.ModelShape | None = None
    """For `/status`."""
    planned_bytes: dict[str, int] = {}
    """By the parts of `memory_bytes`: what the plan said before the start."""
    memory_limit_bytes: int = 0
    """What the pod may use; 0: not known."""
    page_bytes_by_dtype: dict[str, int] = {}
    """How K and V share a page; they sum to `page_bytes`, but for dtypes that only other devices' pages have."""


class KernelPaths(msgspec.Struct, frozen=True, tag="kernels"):
    """A step has run an op on a path that none before had: all there are now."""

    kernel_paths: list[status.KernelPath]


class LoadProgress(msgspec.Struct, frozen=True, tag="progress"):
    """While loading: what is done, as a fraction."""

    phase: str
    fraction: float


class EngineFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Loading or a step failed; the engine process ends right after."""

    message: str
    kind: str
    """Name of the exception class, for example `UnsupportedModel`."""


ToEngine = Submit | Abort | Configure | ListSequences | Drain
FromEngine = StepOutputs | EngineReady | KernelPaths | LoadProgress | Configured | SequenceList | EngineFailed
