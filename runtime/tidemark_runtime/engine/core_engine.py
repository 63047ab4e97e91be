"""The wheel: schedule, execute, update. One step ahead: a plan is made while the step before it computes.

No sockets and no processes here (`process` has those), so that tests turn the wheel by hand.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections import deque
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from tidemark_runtime import config
from tidemark_runtime.core import scheduler, sequence, step_plan
from tidemark_runtime.engine import clock, messages, worker_thread


@dataclass(frozen=True, slots=True)
class _InFlight:
    plan: step_plan.StepPlan
    result: concurrent.futures.Future[step_plan.StepResult]
    schedule_seconds: float


class CoreEngine:
    """All requests of one engine. Every accepted request gets outputs, the last and only the last with `finish`.

    `overlap=False` waits for each step before planning the next: simpler to follow in a test.
    """

    def __init__(
        self,
        settings: config.SchedulerConfig,
        worker: worker_thread.WorkerThread,
        *,
        max_context_tokens: int,
        now: clock.Clock = clock.monotonic,
        overlap: bool = True,
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._now = now
        self._scheduler = scheduler.Scheduler(
            settings,
            num_pages=worker.facts.num_pages,
            block_size=worker.facts.layout.block_size,
            max_context_tokens=max_context_tokens,
        )
        self._sequences: dict[str, sequence.Sequence] = {}
        """Every request that has not had its last output."""
        self._deadlines: dict[str, float] = {}
        self._num_arrived = 0
        self._draining = False
        self._in_flight: deque[_InFlight] = deque()
        self._max_in_flight = 2 if overlap else 1
        self._stats = messages.EngineStats(pages_total=worker.facts.num_pages)
        self._queue_waits: list[float] = []

    # ---- what comes in ---------------------------------------------------------------------------------------

    def submit(self, requests: SequenceOf[messages.EngineRequest]) -> list[messages.SequenceOutput]:
        """Accept all or refuse all; a refusal is returned as each request's only output."""
        refusal = self._refusal(requests)
        if refusal is not None:
            reason, message = refusal
            return [
                messages.SequenceOutput(
                    request.id, [], [], messages.FinishReason.REJECTED, reject=reason, message=message
                )
                for request in requests
            ]
        now = self._now()
        for request in requests:
            entry = sequence.Sequence(
                request.id, list(request.token_ids), request.params, order=self._num_arrived, arrival_seconds=now
            )
            self._num_arrived += 1
            if request.deadline_seconds is not None:
                self._deadlines[request.id] = now + request.deadline_seconds
            self._sequences[request.id] = entry
            self._scheduler.add(entry)
        return []

    def abort(self, ids: SequenceOf[str]) -> list[messages.SequenceOutput]:
        """End these requests now; unknown and finished ids are ignored."""
        return [
            self._end(self._sequences[request_id], messages.FinishReason.ABORT)
            for request_id in ids
            if request_id in self._sequences
        ]

    def configure(self, settings: config.SchedulerConfig) -> None:
        """Work by `settings` from the next step on. Requests that are here already keep what they have.

        Raises `ValueError` when a setting differs that needs a restart.
        """
        self._scheduler.configure(settings)
        self._settings = settings

    def drain(self) -> None:
        """Refuse whatever comes from now on."""
        self._draining = True

    @property
    def drained(self) -> bool:
        return self._draining and not self.has_work

    @property
    def has_work(self) -> bool:
        return bool(self._sequences or self._in_flight)

    # ---- the wheel -------------------------------------------------------------------------------------------

    def step(self) -> list[messages.SequenceOutput]:
        """Plan a step and hand it to the worker; take in the one before it. Returns what that brought."""
        outputs = self._expire()
        started = time.perf_counter()
        plan = self._scheduler.schedule()
        if plan is not None:
            schedule_seconds = time.perf_counter() - started
            self._note_first_turns(plan)
            self._in_flight.append(_InFlight(plan, self._worker.submit(plan), schedule_seconds))
        if len(self._in_flight) >= self._max_in_flight or (plan is None and self._in_flight):
            done = self._in_flight.popleft()
            result = done.result.result()
            started = time.perf_counter()
            outputs += self._update(result)
            self._note_step(done, result, time.perf_counter() - started)
        return outputs

    def stats(self) -> messages.EngineStats:
        """State now; waits that ended are reported once."""
        oldest = self._scheduler.oldest_fresh()
        stats = messages.EngineStats(
            **{name: getattr(self._stats, name) for name in _OF_THE_LAST_STEP},
            requests_running=self._scheduler.num_running,
            requests_waiting=self._scheduler.num_waiting,
            oldest_wait_seconds=self._now() - oldest.arrival_seconds if oldest else 0.0,
            pages_total=self._scheduler.num_pages,
            pages_used=self._scheduler.num_pages_used,
            tokens_in_used_pages=self._scheduler.num_tokens_in_pages,
            preemptions_total=self._scheduler.counters.preemptions,
            resumes_total=self._scheduler.counters.resumes,
            prompt_tokens_total=self._scheduler.counters.prompt_tokens,
            generated_tokens_total=self._scheduler.counters.generated_tokens,
            queue_waits_seconds=self._queue_waits,
        )
        self._queue_waits = []
        return stats

    def check_integrity(self) -> None:
        """Raise unless pages, slots and counts add up."""
        self._scheduler.check_integrity()

    def close(self) -> None:
        """End the worker; requests that are still here get no further output."""
        self._worker.close()

    # ---- details ---------------------------------------------------------------------------------------------

    def _refusal(self, requests: SequenceOf[messages.EngineRequest]) -> tuple[messages.RejectReason, str] | None:
        if self._draining:
            return messages.RejectReason.DRAINING, "the engine is going away and takes no new requests"
        for request in requests:
            message = self._scheduler.refusal(len(request.token_ids) + request.params.max_tokens)
            if message is not None:
                return messages.RejectReason.NEVER_FITS, message
        room = self._scheduler.room()
        if len(requests) > room:
            return messages.RejectReason.QUEUE_FULL, (
                f"{self._scheduler.num_running} requests are running and {self._scheduler.num_waiting} waiting; there "
                f"is room for {max(0, room)} more (maxQueuedRequests is {self._settings.max_queued_requests}), not "
                f"for {len(requests)}. Try again later."
            )
        return None

    def _update(self, result: step_plan.StepResult) -> list[messages.SequenceOutput]:
        outputs = []
        for sampled in self._scheduler.update(result):
            entry, token_id = sampled.sequence, sampled.token_id
            finish, stopped_by = _finish(entry, token_id)
            if finish is not None:
                self._forget(entry)
            outputs.append(messages.SequenceOutput(entry.id, [token_id], [sampled.logprobs], finish, stopped_by))
        return outputs

    def _expire(self) -> list[messages.SequenceOutput]:
        now = self._now()
        outputs = []
        longest = self._settings.max_queue_seconds
        while (entry := self._scheduler.oldest_fresh()) and now - entry.arrival_seconds > longest:
            message = f"waited {now - entry.arrival_seconds:.1f} s for a first turn, longest allowed are {longest:g} s"
            outputs.append(self._end(entry, messages.FinishReason.TIMEOUT, message))
        for request_id in [request_id for request_id, at in self._deadlines.items() if now >= at]:
            message = "the request's deadline has passed"
            outputs.append(self._end(self._sequences[request_id], messages.FinishReason.TIMEOUT, message))
        return outputs

    def _end(
        self, entry: sequence.Sequence, finish: messages.FinishReason, message: str = ""
    ) -> messages.SequenceOutput:
        self._forget(entry)
        return messages.SequenceOutput(entry.id, [], [], finish, message=message)

    def _forget(self, entry: sequence.Sequence) -> None:
        self._scheduler.finish(entry)
        del self._sequences[entry.id]
        self._deadlines.pop(entry.id, None)

    def _note_first_turns(self, plan: step_plan.StepPlan) -> None:
        if plan.joins:
            now = self._now()
            self._queue_waits += [now - arrival for arrival in self._scheduler.take_first_turns()]

    def _note_step(self, done: _InFlight, result: step_plan.StepResult, update_seconds: float) -> None:
        plan = done.plan
        self._stats = messages.EngineStats(
            steps=plan.step,
            step_tokens=plan.num_tokens,
            step_prompt_tokens=plan.num_tokens - plan.num_samples,
            step_sequences=len(plan.chunks),
            schedule_seconds=done.schedule_seconds,
            execute_seconds=result.execute_seconds,
            update_seconds=update_seconds,
        )


_OF_THE_LAST_STEP = (
    "steps",
    "step_tokens",
    "step_prompt_tokens",
    "step_sequences",
    "schedule_seconds",
    "execute_seconds",
    "update_seconds",
)


def _finish(entry: sequence.Sequence, token_id: int) -> tuple[messages.FinishReason | None, int | None]:
    """Why the sequence ends with this token, if it does."""
    if token_id in entry.params.stop_token_ids and not entry.params.ignore_stop_tokens:
        return messages.FinishReason.STOP, token_id
    if entry.num_known - entry.num_prompt_tokens >= entry.params.max_tokens:
        return messages.FinishReason.LENGTH, None
    return None, None
