"""The wheel: schedule, execute, update. One step ahead: a plan is made while the step before it computes.

Who is taken in is decided in `arrivals`, who is late in `deadlines`; what is told of it all is made in `stats`. No
sockets and no processes here (`process` has those), so that tests turn the wheel by hand.
"""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections import deque
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import msgspec

from tidemark_runtime import config, errors
from tidemark_runtime.core import overload, scheduler, sequence, step_plan
from tidemark_runtime.engine import arrivals, clock, deadlines, listing, messages, outputs, stats, worker_thread

_log = logging.getLogger(__name__)

_MOST_OUT_OF_MEMORY = 3
"""Steps in a row for which memory may run out. Then it is not one that was too large: only a new process helps."""


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
        worker: worker_thread.Steps,
        *,
        max_context_tokens: int,
        now: clock.Clock = clock.monotonic,
        overlap: bool = True,
        prefix_caching: bool = True,
        speculative: config.SpeculativeConfig | None = None,
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._now = now
        self._scheduler = scheduler.Scheduler(
            settings,
            num_pages=worker.facts.num_pages,
            block_size=worker.facts.layout.block_size,
            max_context_tokens=max_context_tokens,
            num_host_pages=worker.facts.num_host_pages,
            page_copy_seconds=worker.facts.page_copy_seconds,
            prefix_caching=prefix_caching,
            speculative=speculative,
        )
        self._arrivals = arrivals.Arrivals(self._scheduler, now)
        self._deadlines = deadlines.Deadlines(self._scheduler, self._arrivals.retry_after)
        self._stats = stats.Stats(self._scheduler, num_host_pages=worker.facts.num_host_pages)
        self._sequences: dict[str, sequence.Sequence] = {}
        """Every request that has not had its last output."""
        self._groups: dict[str, list[sequence.Sequence]] = {}
        """Of each sequence that is not its request's only one: all of these that are here. One list for all of them."""
        self._num_arrived = 0
        self._in_flight: deque[_InFlight] = deque()
        self._max_in_flight = 2 if overlap else 1
        self._num_out_of_memory_running = 0
        """In a row, up to now."""
        self._num_cached: dict[str, int] = {}
        """Of those that had their first turn with a hit in the prefix cache, until their first output says so."""

    # ---- what comes in ---------------------------------------------------------------------------------------

    def submit(self, requests: SequenceOf[messages.EngineRequest]) -> list[messages.SequenceOutput]:
        """Accept all or refuse all. Returns the only outputs of those that were refused: all of these, or some that
        waited and had to go for these."""
        now = self._now()
        entries = [arrivals.made(request, self._num_arrived + index, now) for index, request in enumerate(requests)]
        decision = self._arrivals.decide(requests, entries, self._settings)
        if isinstance(decision, overload.Refusal):
            return [outputs.rejected(request.id, decision) for request in requests]
        told = self._shed(decision, requests[0])
        self._num_arrived += len(requests)
        for request, entry in zip(requests, entries, strict=True):
            if request.deadline_seconds is not None:
                self._deadlines.note(entry, now + request.deadline_seconds)
            self._sequences[request.id] = entry
            self._scheduler.add(entry)
        self._note_groups(requests)
        return told

    def abort(self, ids: SequenceOf[str]) -> list[messages.SequenceOutput]:
        """End these requests now; unknown and finished ids are ignored."""
        return [
            self._end(self._sequences[request_id], messages.FinishReason.ABORT)
            for request_id in ids
            if request_id in self._sequences
        ]

    def configure(self, settings: config.SchedulerConfig, *, max_context_tokens: int | None = None) -> None:
        """Work by `settings` from the next step on, and refuse what could become longer than `max_context_tokens`
        (None: as before). Requests that are here already keep what they were admitted with.

        Raises `ValueError` when a setting differs that needs a restart, and `ConfigError` for a limit that is exceeded
        already: it would look as if it were in force.
        """
        running, soft = self._scheduler.num_running, settings.max_concurrency_soft
        if soft is not None and soft < running and soft != self._settings.max_concurrency_soft:
            problem = errors.Problem(
                "scheduler.maxConcurrencySoft",
                soft,
                f"at least {running}, because so many requests run now",
                "Lower it in steps as they end, or set it again later; nothing was changed.",
            )
            raise errors.ConfigError([problem])
        self._scheduler.configure(settings)
        if max_context_tokens is not None:
            self._scheduler.limit_context(max_context_tokens)
        self._settings = settings

    def drain(self) -> None:
        """Refuse whatever comes from now on."""
        self._arrivals.draining = True

    @property
    def drained(self) -> bool:
        return self._arrivals.draining and not self.has_work

    @property
    def has_work(self) -> bool:
        return bool(self._sequences or self._in_flight)

    # ---- the wheel -------------------------------------------------------------------------------------------

    def step(self) -> list[messages.SequenceOutput]:
        """Plan a step and hand it to the worker; take in the one before it. Returns what that brought.

        Where memory ran out in that one, that is an end for all that run. Raises OutOfMemory when it goes on doing so.
        """
        told = self._end_late()
        planned = len(self._in_flight) < self._max_in_flight and self._plan()
        if len(self._in_flight) >= self._max_in_flight or (not planned and self._in_flight):
            if told and not self._in_flight[0].result.done():
                return told  # these need not wait for a step to end
            done = self._in_flight.popleft()
            try:
                result = done.result.result()
            except errors.OutOfMemory as error:
                return told + self._give_up_steps(error)
            self._num_out_of_memory_running = 0
            self._arrivals.note_result(self._now())
            started = time.perf_counter()
            told += self._update(result)
            self._stats.note_step(done.plan, result, done.schedule_seconds, time.perf_counter() - started)
        return told

    def stats(self) -> messages.EngineStats:
        """State now; waits that ended and times of ops are reported once."""
        return self._stats.take(self._now())

    def listing(self, question: messages.ListSequences) -> messages.SequenceList:
        """The largest sequences and the last crossings, all of this moment. Changes nothing."""
        now = self._now()
        self._stats.note_crossings(now)
        return messages.SequenceList(
            number=question.number,
            steps=self._stats.num_steps,
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            pages_used=self._scheduler.num_pages_used,
            pages_held=self._scheduler.num_pages_held,
            pages_swapped=self._scheduler.num_pages_swapped,
            sequences=listing.largest(self._sequences.values(), question.most, now),
            crossings=self._stats.crossings(now),
        )

    def check_integrity(self) -> None:
        """Raise unless pages, slots and counts add up."""
        self._scheduler.check_integrity()

    def close(self) -> None:
        """End the worker; requests that are still here get no further output."""
        self._worker.close()

    # ---- details ---------------------------------------------------------------------------------------------

    def _plan(self) -> bool:
        """Hand a step to the worker; False when there is nothing to compute."""
        started = time.perf_counter()
        now = self._now()
        plan = self._scheduler.schedule(now)
        schedule_seconds = time.perf_counter() - started
        self._note_turns(now)
        self._stats.note_crossings(now)
        if plan is not None:
            self._in_flight.append(_InFlight(plan, self._worker.submit(plan), schedule_seconds))
        return plan is not None

    def _shed(self, decision: overload.Acceptance, newcomer: messages.EngineRequest) -> list[messages.SequenceOutput]:
        """End as many of those that wait as must go for `newcomer`."""
        told: list[messages.SequenceOutput] = []
        num_tokens = 0
        while len(told) < decision.num_shed or num_tokens < decision.num_tokens_shed:
            entry = self._scheduler.next_to_shed(newcomer.priority, is_retry=newcomer.is_retry)
            if entry is None:
                raise RuntimeError("fewer wait that can be shed than were counted")
            refusal = self._arrivals.shed(entry)
            for one in list(self._groups.get(entry.id, (entry,))):  # a request goes as a whole
                num_tokens += one.num_max_tokens
                self._forget(one)
                told.append(outputs.rejected(one.id, refusal))
        return told

    def _note_groups(self, requests: SequenceOf[messages.EngineRequest]) -> None:
        groups: dict[str, list[sequence.Sequence]] = {}
        for request in requests:
            if request.group and len(requests) > 1:
                groups.setdefault(request.group, []).append(self._sequences[request.id])
        for group in groups.values():
            self._groups.update((entry.id, group) for entry in group)

    def _update(self, result: step_plan.StepResult) -> list[messages.SequenceOutput]:
        # One turn for each that runs, in every step: what most of them need comes first.
        told = []
        made = messages.SequenceOutput
        for entry, token_id, logprobs in self._scheduler.update(result):
            if token_id not in entry.stop_ids and len(entry.token_ids) < entry.num_max_tokens:
                told.append(made(entry.id, (token_id,), (logprobs,)))
                continue
            self._forget(entry)
            is_stop = token_id in entry.stop_ids
            finish = messages.FinishReason.STOP if is_stop else messages.FinishReason.LENGTH
            told.append(made(entry.id, (token_id,), (logprobs,), finish, token_id if is_stop else None))
        if result.verified:
            for found in self._scheduler.take_verified():
                told.append(outputs.verified(found))
                if told[-1].finish is not None:
                    self._forget(found.entry)
        if self._num_cached:  # seldom: so that the loop above does nothing for it
            told = [self._with_cached(output) for output in told]
        return told

    def _with_cached(self, output: messages.SequenceOutput) -> messages.SequenceOutput:
        num_cached = self._num_cached.pop(output.id, None)
        return output if num_cached is None else msgspec.structs.replace(output, num_cached_tokens=num_cached)

    def _give_up_steps(self, error: errors.OutOfMemory) -> list[messages.SequenceOutput]:
        """A step has come to nothing, and so have those behind it: all that run end, those that wait go on."""
        self._stats.note_out_of_memory()
        self._num_out_of_memory_running += 1
        if self._num_out_of_memory_running > _MOST_OUT_OF_MEMORY:
            raise error
        for behind in self._in_flight:
            if not behind.result.cancel():
                behind.result.exception()  # waits; whatever it says follows from the one before
        self._in_flight.clear()
        lost = self._scheduler.give_up_steps()
        _log.error("step given up running=%d waiting=%d reason=%s", len(lost), self._scheduler.num_waiting, error)
        message = (
            f"The engine ended this request and {len(lost) - 1} others that ran with it: {error}. It goes on with "
            "those that wait. Try again; where it happens often, lower scheduler.maxNumBatchedTokens or "
            "kvCache.memoryUtilization."
        )
        return [self._end(entry, messages.FinishReason.FAILED, message) for entry in lost]

    def _end_late(self) -> list[messages.SequenceOutput]:
        return [
            self._end(late.entry, late.finish, late.message, late.retry_after_seconds)
            for late in self._deadlines.late(self._now(), self._settings)
        ]

    def _end(
        self,
        entry: sequence.Sequence,
        finish: messages.FinishReason,
        message: str = "",
        retry_after_seconds: float = 0.0,
    ) -> messages.SequenceOutput:
        self._forget(entry)
        self._num_cached.pop(entry.id, None)
        return outputs.ended(entry, finish, message, retry_after_seconds)

    def _forget(self, entry: sequence.Sequence) -> None:
        self._scheduler.finish(entry)
        del self._sequences[entry.id]
        self._deadlines.forget(entry)
        group = self._groups.pop(entry.id, None)
        if group is not None:
            group.remove(entry)

    def _note_turns(self, now: float) -> None:
        for entry in self._scheduler.take_first_turns():
            self._stats.note_first_turn(entry, now)
            if entry.num_cached_tokens:
                self._num_cached[entry.id] = entry.num_cached_tokens
            for sibling in self._groups.get(entry.id, ()):
                if not sibling.started:
                    self._scheduler.keep(sibling)
