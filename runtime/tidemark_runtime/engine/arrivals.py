"""Who is taken when requests arrive, and when those that are not may come back. Requests that come together are taken
or refused together."""

from __future__ import annotations

import math
from collections.abc import Sequence as SequenceOf

from tidemark_runtime import config
from tidemark_runtime.core import overload, scheduler, sequence
from tidemark_runtime.engine import clock, messages

_TRY_AGAIN_SECONDS = 30.0
"""After so long without a step, the first one that comes is tried whatever the steps before have cost."""


def made(request: messages.EngineRequest, order: int, now: float) -> sequence.Sequence:
    """What the engine runs for `request`, which arrives now as the `order`-th of all."""
    return sequence.Sequence(
        request.id,
        list(request.token_ids),
        request.params,
        order=order,
        arrival_seconds=now,
        priority=request.priority,
        tenant=request.tenant,
        is_retry=request.is_retry,
    )


class Arrivals:
    """Asks the scheduler what a newcomer would find, and `overload` what that means for it."""

    def __init__(self, scheduler_: scheduler.Scheduler, now: clock.Clock) -> None:
        self._scheduler = scheduler_
        self._now = now
        self._last_result_at = -math.inf
        self.draining = False
        """Whatever comes is refused."""

    def note_result(self, now: float) -> None:
        """A step is done: what steps cost is known afresh."""
        self._last_result_at = now

    def decide(
        self,
        requests: SequenceOf[messages.EngineRequest],
        entries: SequenceOf[sequence.Sequence],
        settings: config.SchedulerConfig,
    ) -> overload.Acceptance | overload.Refusal:
        """All of `requests`, or none; `entries` are what would run for them."""
        if self.draining:
            message = "the engine is going away and takes no new requests"
            return overload.Refusal(overload.Reason.DRAINING, message, overload.LEAST_RETRY_AFTER_SECONDS)
        for request in requests:
            refusal = self._scheduler.refusal(len(request.token_ids) + request.params.max_tokens)
            if refusal is not None:
                return refusal
        deadlines = [request.deadline_seconds for request in requests if request.deadline_seconds is not None]
        arrival = overload.Arrival(
            num=len(requests),
            num_tokens=sum(len(request.token_ids) + request.params.max_tokens for request in requests),
            priority=requests[0].priority,
            is_retry=requests[0].is_retry,
            deadline_seconds=min(deadlines, default=None) if self._knows_prices() else None,
        )
        longest = max(entries, key=lambda entry: entry.num_prompt_tokens)
        return overload.decide(arrival, self._scheduler.situation(longest), settings)

    def shed(self, entry: sequence.Sequence) -> overload.Refusal:
        """What `entry` is told, which waited and has to go for a newcomer."""
        message = (
            "the queue is full, and a request of higher priority, or a first try, needs the place. Try again later."
        )
        return overload.Refusal(overload.Reason.SHED, message, self.retry_after(entry))

    def retry_after(self, entry: sequence.Sequence) -> float:
        """Seconds until one like `entry` that comes now would have its turn, as far as that is known."""
        return max(overload.LEAST_RETRY_AFTER_SECONDS, self._scheduler.wait_seconds(entry) or 0.0)

    def _knows_prices(self) -> bool:
        """Whether a deadline may be refused early. What steps cost is known from steps: were all refused because a step
        was slow once, it would never be learned that they are fast again."""
        return self._scheduler.has_work or self._now() - self._last_result_at <= _TRY_AGAIN_SECONDS
