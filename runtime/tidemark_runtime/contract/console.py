"""`GET /console/data`: what the console page shows. `/status` is in it as it is; the rest is what that leaves out.

Nothing here says what was asked or answered, no key, and no id as a whole.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tidemark_runtime.contract import status

MOST_REQUESTS = 200
"""Rows of the table of requests."""


class Severity(StrEnum):
    """What somebody who looks has to do."""

    BAD = "bad"
    """Act now: nobody is served, or everybody is slower."""
    WARN = "warn"
    """Act soon."""
    NOTE = "note"
    """It passes."""


class AdviceCode(StrEnum):
    """What is not as it should be; the page has the words for each, in two languages."""

    FAILED = "failed"
    STALLED = "stalled"
    LOADING = "loading"
    DRAINING = "draining"
    PREEMPT_LINE = "preemptLine"
    """Crossed: nobody starts while others run, and running ones lose their pages."""
    QUEUE_LINE = "queueLine"
    """Crossed, and requests wait."""
    LONG_WAIT = "longWait"
    """The oldest one has waited for half the longest wait that is allowed."""
    KERNEL_PATH = "kernelPath"
    KEYS_UNREADABLE = "keysUnreadable"
    TLS_UNREADABLE = "tlsUnreadable"
    UNKNOWN_KEYS = "unknownKeys"
    MEMORY_PLAN = "memoryPlan"
    """Measured memory is more than a tenth above the plan."""


class Advice(msgspec.Struct, frozen=True, rename="camel"):
    """One thing to look at, the most severe ones first."""

    code: AdviceCode
    severity: Severity
    values: dict[str, float] = {}
    """Numbers for its words."""
    text: str = ""
    """The engine's own sentence, in English; empty where `code` says it all."""


class Batch(msgspec.Struct, frozen=True, rename="camel"):
    """The last step."""

    step: int = 0
    """Its number."""
    sequences: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    """Of `tokens`: beside the one that each sampled sequence needs anyway."""
    schedule_seconds: float = 0.0
    execute_seconds: float = 0.0
    update_seconds: float = 0.0


class Totals(msgspec.Struct, frozen=True, rename="camel"):
    """Counted since the process started, as in `/metrics`: rates are differences of two answers."""

    requests_by_outcome: dict[str, float] = {}
    """`tidemark_requests_total`."""
    refused_by_reason: dict[str, float] = {}
    """`tidemark_requests_rejected_total`; only reasons that occurred."""
    prompt_tokens: float = 0.0
    generated_tokens: float = 0.0
    """For clients."""
    prefix_hit_tokens: int = 0
    prefix_missed_tokens: int = 0
    page_evictions: int = 0
    preemptions_swap: int = 0
    """Of `status.queue.preemptionsTotal`."""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """One sequence: what the engine runs for one choice of one client request."""

    id: str
    """The first eight digits of the answer's id, and the number of the choice."""
    key: str
    """Name of the API key; empty for one without a name, and where no key is needed."""
    state: str
    """waiting, running, preempted, swapped, restoring."""
    lane: str
    """express, slow."""
    priority: int
    prompt_tokens: int
    cached_tokens: int
    """Of these, found in the prefix cache."""
    generated_tokens: int
    most_tokens: int
    """It may generate."""
    pages: int
    """Of the slab; one that is shared counts for each."""
    swapped_pages: int
    preemptions: int
    age_seconds: float
    """Since its arrival."""


class Requests(msgspec.Struct, frozen=True, rename="camel"):
    """All of one moment, between two steps of the engine. It may be older than the rest of the document."""

    age_seconds: float
    """Of this part, when it was sent."""
    step: int
    running: int
    waiting: int
    pages_used: int
    pages_held: int
    """By all together; more than `pagesUsed` where some share pages."""
    pages_swapped: int
    largest: list[Request]
    """At most `MOST_REQUESTS`: those with most pages, in the slab or swapped."""


class Crossing(msgspec.Struct, frozen=True, rename="camel"):
    """A time in which a line was crossed."""

    line: str
    """queue, preempt."""
    at: float
    """Unix time."""
    lasted_seconds: float
    over: bool
    """False: it still lasts."""
    pages_used: int
    """When it was crossed."""


class Setting(msgspec.Struct, frozen=True, rename="camel"):
    """A hot setting as it is in force."""

    key: str
    value: Any
    default: Any


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """The whole answer."""

    status: status.EngineStatus
    at: float
    """Unix time of this server."""
    batch: Batch
    totals: Totals
    advice: list[Advice]
    settings: list[Setting]
    """The hot ones."""
    requests: Requests | None = None
    """None until the engine has answered once."""
    crossings: list[Crossing] = []
    """The last ones, the newest first; as old as `requests`."""
