"""What happens to a request that arrives when much is waiting: accepted, accepted instead of others, or refused.

A refusal comes at once, says why, and when to come back: after as long as what waits now is predicted to take. What
the queue can lose for a newcomer is of lower priority, or a retry where the newcomer is a first try; among these the
lowest priority goes first, and the one that came last. Retries have a budget of their own, so that a storm of them
finds the queue closed while first tries still find it open.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tidemark_runtime import config
from tidemark_runtime.core import sequence, waiting_queue

LEAST_RETRY_AFTER_SECONDS = 1.0


class Reason(StrEnum):
    """Why a request was refused; the metric's label, and the server turns it into a status."""

    QUEUE_FULL = "queue_full"
    """`max_queued_requests` wait."""
    QUEUE_TOKENS = "queue_tokens"
    """`max_queued_tokens` wait."""
    RETRY_BUDGET = "retry_budget"
    """So many retries wait that one more would take room from first tries."""
    QUEUE_TIME = "queue_time"
    """It is predicted to wait longer than `max_queue_seconds`."""
    DEADLINE = "deadline"
    """It is predicted to wait past its own deadline."""
    SHED = "shed"
    """It waited, and had to go for one of higher priority, or for a first try."""
    NEVER_FITS = "never_fits"
    """It could become longer than the whole slab."""
    CONTEXT_LENGTH = "context_length_exceeded"
    """It could become longer than the context limit in force."""
    DRAINING = "draining"
    """The engine goes away."""


class Losable:
    """Those that the queue may lose, for a newcomer or because they wait too long: all that wait for a first turn,
    except those of a request that has had one. Its client reads already, and would lose what it has."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, bool], OrderedDict[str, sequence.Sequence]] = {}
        """By priority, and whether they are retries; each in order of arrival."""
        self._amounts: dict[tuple[int, bool], waiting_queue.Amount] = {}

    def add(self, entry: sequence.Sequence) -> None:
        key = (entry.priority, entry.is_retry)
        self._entries.setdefault(key, OrderedDict())[entry.id] = entry
        self._amounts.setdefault(key, waiting_queue.Amount()).count(entry, 1)

    def discard(self, entry: sequence.Sequence) -> None:
        """Nothing happens when it is not in here."""
        key = (entry.priority, entry.is_retry)
        found = self._entries.get(key)
        if found is not None and found.pop(entry.id, None) is not None:
            self._amounts[key].count(entry, -1)
            if not found:
                del self._entries[key], self._amounts[key]

    def oldest(self) -> sequence.Sequence | None:
        heads = (next(iter(entries.values())) for entries in self._entries.values())
        return min(heads, key=lambda entry: entry.order, default=None)

    def amount_for(self, priority: int, *, is_retry: bool) -> waiting_queue.Amount:
        """What a newcomer can push out: lower priorities, and for a first try the retries of its own."""
        keys = [key for key in self._amounts if _can_push_out(priority, is_retry, key)]
        return sum((self._amounts[key] for key in keys), waiting_queue.Amount())

    def next_for(self, priority: int, *, is_retry: bool) -> sequence.Sequence | None:
        """Of these, the one that goes first: of the lowest priority the last retry, or the last."""
        keys = [key for key in self._entries if _can_push_out(priority, is_retry, key)]
        if not keys:
            return None
        lowest = min(keys, key=lambda key: (key[0], not key[1]))
        return next(reversed(self._entries[lowest].values()))


def _can_push_out(priority: int, is_retry: bool, other: tuple[int, bool]) -> bool:
    return other[0] < priority or (other == (priority, True) and not is_retry)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Requests that come together, and are accepted or refused together."""

    num: int
    num_tokens: int
    """With the most they may generate."""
    priority: int = 0
    is_retry: bool = False
    deadline_seconds: float | None = None
    """From now; the soonest of them."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is here already."""

    num_places: int
    """In the running batch, free."""
    num_running: int
    queue: waiting_queue.WaitingQueue
    losable: Losable
    wait_seconds: float | None
    """Until the newcomer's first turn, as predicted; None as long as there is nothing to judge by."""
    prompt_seconds: Callable[[], float]
    """From then to its first token."""

    @property
    def starts_at_once(self) -> bool:
        return self.num_places > 0 and not len(self.queue)


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: Reason
    message: str
    retry_after_seconds: float


def too_long(num_tokens: int, max_context_tokens: int, num_pages: int, block_size: int) -> Refusal | None:
    """Why a request that may become `num_tokens` long (prompt and output) can never be served, with the sum; None if it
    can. `num_pages`: of the whole slab."""
    if num_tokens > max_context_tokens:
        message = (
            f"the request may become {num_tokens} tokens long, but the context is limited to "
            f"{max_context_tokens} tokens. Shorten the prompt or lower max_tokens."
        )
        return Refusal(Reason.CONTEXT_LENGTH, message, 0.0)
    if num_tokens <= num_pages * block_size:
        return None
    message = (
        f"the request may need {num_tokens} tokens of KV memory ({-(-num_tokens // block_size)} pages of "
        f"{block_size}), but the whole slab has {num_pages} pages ({num_pages * block_size} tokens): it can "
        "never fit. Shorten the prompt, lower max_tokens, or give the service more KV memory."
    )
    return Refusal(Reason.NEVER_FITS, message, 0.0)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """`num_shed` of those that wait must go first, or more until `num_tokens_shed` are gone."""

    num_shed: int = 0
    num_tokens_shed: int = 0


def decide(arrival: Arrival, here: Situation, settings: config.SchedulerConfig) -> Acceptance | Refusal:
    """All of an arrival, or nothing of it."""
    retry_after = max(LEAST_RETRY_AFTER_SECONDS, here.wait_seconds or 0.0)
    for refusal in (_of_retries(arrival, here, settings), _of_time(arrival, here, settings)):
        if refusal is not None:
            return Refusal(*refusal, retry_after)
    room = settings.max_queued_requests + here.num_places - len(here.queue)
    sheddable = here.losable.amount_for(arrival.priority, is_retry=arrival.is_retry)
    num_short = arrival.num - room
    if num_short > sheddable.num:
        return Refusal(
            Reason.QUEUE_FULL,
            f"{here.num_running} requests are running and {len(here.queue)} waiting; there is room for "
            f"{max(0, room)} more (maxQueuedRequests is {settings.max_queued_requests}), not for {arrival.num}. "
            "Try again later.",
            retry_after,
        )
    tokens_short = _tokens_short(arrival, here, settings)
    if tokens_short > sheddable.num_tokens:
        return Refusal(
            Reason.QUEUE_TOKENS,
            f"requests of {here.queue.fresh.num_tokens} tokens are waiting, and this one may become "
            f"{arrival.num_tokens}; together at most {settings.max_queued_tokens} may wait (maxQueuedTokens). "
            "Try again later, or lower max_tokens.",
            retry_after,
        )
    return Acceptance(max(0, num_short), max(0, tokens_short))


def _tokens_short(arrival: Arrival, here: Situation, settings: config.SchedulerConfig) -> int:
    """One that waits behind nobody is never too large for the queue."""
    if settings.max_queued_tokens is None or not here.queue.fresh.num:
        return 0
    return here.queue.fresh.num_tokens + arrival.num_tokens - settings.max_queued_tokens


def _of_retries(arrival: Arrival, here: Situation, settings: config.SchedulerConfig) -> tuple[Reason, str] | None:
    budget = math.floor(settings.retry_share * settings.max_queued_requests)
    waiting = here.queue.retries.num
    if not arrival.is_retry or here.starts_at_once or waiting + arrival.num <= budget:
        return None
    return Reason.RETRY_BUDGET, (
        f"{waiting} retries are waiting, and at most {budget} may (retryShare {settings.retry_share:g} of "
        f"maxQueuedRequests {settings.max_queued_requests}), so that they leave room for first tries. Try again later."
    )


def _of_time(arrival: Arrival, here: Situation, settings: config.SchedulerConfig) -> tuple[Reason, str] | None:
    wait = here.wait_seconds or 0.0
    if arrival.deadline_seconds is not None:
        prompt = here.prompt_seconds() if wait <= arrival.deadline_seconds else 0.0
        if wait + prompt > arrival.deadline_seconds:
            of_prompt = f", its prompt would take about {prompt:.1f} s" if prompt else ""
            return Reason.DEADLINE, (
                f"the request would wait about {wait:.1f} s for its first turn{of_prompt}, and its deadline is in "
                f"{arrival.deadline_seconds:g} s: it would be late anyway. Try again later, or allow more time."
            )
    if wait > settings.max_queue_seconds:
        return Reason.QUEUE_TIME, (
            f"the request would wait about {wait:.1f} s for its first turn, longest allowed are "
            f"{settings.max_queue_seconds:g} s (maxQueueSeconds). Try again later."
        )
    return None
