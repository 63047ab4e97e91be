"""Who is late: has waited longer than is allowed for a first turn, or has passed its own deadline. Looked at before
each step."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemark_runtime import config
from tidemark_runtime.core import scheduler, sequence
from tidemark_runtime.engine import messages


@dataclass(frozen=True, slots=True)
class Late:
    """`entry` has to end, and is told this."""

    entry: sequence.Sequence
    finish: messages.FinishReason
    message: str
    retry_after_seconds: float = 0.0


class Deadlines:
    """Times are seconds on the clock of the sequences' `arrival_seconds`."""

    def __init__(self, scheduler_: scheduler.Scheduler, retry_after: Callable[[sequence.Sequence], float]) -> None:
        self._scheduler = scheduler_
        self._retry_after = retry_after
        self._at: dict[str, tuple[float, sequence.Sequence]] = {}
        """Of those that have a deadline."""
        self._next: list[tuple[float, str]] = []
        """A heap of these; those that ended before are still in it."""

    def note(self, entry: sequence.Sequence, at: float) -> None:
        """`entry` has to end at that time at the latest."""
        self._at[entry.id] = (at, entry)
        if len(self._next) > 2 * len(self._at) + 64:
            self._next = [(each, name) for name, (each, _) in self._at.items()]
            heapq.heapify(self._next)
        else:
            heapq.heappush(self._next, (at, entry.id))

    def forget(self, entry: sequence.Sequence) -> None:
        """`entry` has ended. Nothing happens when it had no deadline."""
        self._at.pop(entry.id, None)

    def late(self, now: float, settings: config.SchedulerConfig) -> Iterator[Late]:
        """Each must have ended before the next is asked for."""
        longest = settings.max_queue_seconds
        # Predicted once for all of a kind: in a storm thousands are late together.
        waits: dict[tuple[int, sequence.Lane], float] = {}

        def retry_after(entry: sequence.Sequence) -> float:
            kind = (entry.priority, entry.lane)
            if kind not in waits:
                waits[kind] = self._retry_after(entry)
            return waits[kind]

        while (entry := self._scheduler.oldest_losable()) and now - entry.arrival_seconds > longest:
            message = f"waited {now - entry.arrival_seconds:.1f} s for a first turn, longest allowed are {longest:g} s"
            yield Late(entry, messages.FinishReason.TIMEOUT, message, retry_after(entry))
        while self._next and self._next[0][0] <= now:
            at, request_id = heapq.heappop(self._next)
            found = self._at.get(request_id)
            if found is not None and found[0] == at:
                yield _past_deadline(found[1], at, now, retry_after(found[1]))


def _past_deadline(entry: sequence.Sequence, at: float, now: float, retry_after: float) -> Late:
    allowed = at - entry.arrival_seconds
    message = f"the request's deadline of {allowed:g} s has passed: it took {now - entry.arrival_seconds:.1f} s"
    if entry.started:
        num_tokens = entry.num_known - entry.num_prompt_tokens
        message += f", and had {num_tokens} of at most {entry.params.max_tokens} tokens"
        return Late(entry, messages.FinishReason.DEADLINE, message)
    message += " without a first turn"
    return Late(entry, messages.FinishReason.DEADLINE, message, retry_after)
