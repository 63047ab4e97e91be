"""The wheel: schedule, execute, update. One step ahead: a plan is made while the step before it computes.

No sockets and no processes here (`process` has those), so that tests turn the wheel by hand.
"""

from __future__ import annotations

import concurrent.futures
import heapq
import logging
import math
import time
from collections import deque
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemark_runtime import config, errors
from tidemark_runtime.core import lines, overload, scheduler, sequence, speculation, step_plan
from tidemark_runtime.engine import clock, line_times, listing, messages, worker_thread

_log = logging.getLogger(__name__)

_MOST_OUT_OF_MEMORY = 3
"""Steps in a row for which memory may run out. Then it is not one that was too large: only a new process helps."""

_TRY_AGAIN_SECONDS = 30.0
"""After so long without a step, the first one that comes is tried whatever the steps before have cost."""


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
        self._line_times = line_times.LineTimes()
        self._sequences: dict[str, sequence.Sequence] = {}
        """Every request that has not had its last output."""
        self._deadlines: dict[str, float] = {}
        """On the clock, of those that have one."""
        self._next_deadlines: list[tuple[float, str]] = []
        """A heap of these; those that ended before are still in it."""
        self._groups: dict[str, list[sequence.Sequence]] = {}
        """Of each sequence that is not its request's only one: all of these that are here. One list for all of them."""
        self._last_result_at = -math.inf
        self._num_arrived = 0
        self._draining = False
        self._in_flight: deque[_InFlight] = deque()
        self._max_in_flight = 2 if overlap else 1
        self._stats = messages.EngineStats(pages_total=worker.facts.num_pages)
        self._queue_waits: dict[sequence.Lane, list[float]] = {lane: [] for lane in sequence.Lane}
        self._op_seconds: list[dict[str, float]] = []
        """Of steps that were timed, until the next message."""
        self._busy_seconds = 0.0
        self._num_out_of_memory = 0
        self._num_out_of_memory_running = 0
        """In a row, up to now."""
        self._num_cached: dict[str, int] = {}
        """Of those that had their first turn with a hit in the prefix cache, until their first output says so."""

    # ---- what comes in ---------------------------------------------------------------------------------------

    def submit(self, requests: SequenceOf[messages.EngineRequest]) -> list[messages.SequenceOutput]:
        """Accept all or refuse all. Returns the only outputs of those that were refused: all of these, or some that
        waited and had to go for these."""
        now = self._now()
        entries = [_made(request, self._num_arrived + index, now) for index, request in enumerate(requests)]
        decision = self._decide(requests, entries)
        if isinstance(decision, overload.Refusal):
            return [_rejected(request.id, decision) for request in requests]
        outputs = self._shed(decision, requests[0])
        self._num_arrived += len(requests)
        for request, entry in zip(requests, entries, strict=True):
            if request.deadline_seconds is not None:
                self._note_deadline(entry, now + request.deadline_seconds)
            self._sequences[request.id] = entry
            self._scheduler.add(entry)
        self._note_groups(requests)
        return outputs

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
        self._draining = True

    @property
    def drained(self) -> bool:
        return self._draining and not self.has_work

    @property
    def has_work(self) -> bool:
        return bool(self._sequences or self._in_flight)

    # ---- the wheel -------------------------------------------------------------------------------------------

    def step(self) -> list[messages.SequenceOutput]:
        """Plan a step and hand it to the worker; take in the one before it. Returns what that brought.

        Where memory ran out in that one, that is an end for all that run. Raises OutOfMemory when it goes on doing so.
        """
        outputs = self._expire()
        planned = len(self._in_flight) < self._max_in_flight and self._plan()
        if len(self._in_flight) >= self._max_in_flight or (not planned and self._in_flight):
            if outputs and not self._in_flight[0].result.done():
                return outputs  # these need not wait for a step to end
            done = self._in_flight.popleft()
            try:
                result = done.result.result()
            except errors.OutOfMemory as error:
                return outputs + self._give_up_steps(error)
            self._last_result_at = self._now()
            started = time.perf_counter()
            outputs += self._update(result)
            self._note_step(done, result, time.perf_counter() - started)
        return outputs

    def stats(self) -> messages.EngineStats:
        """State now; waits that ended and times of ops are reported once."""
        now = self._now()
        self._note_crossings(now)
        oldest, counters = self._scheduler.oldest_fresh(), self._scheduler.counters
        stats = messages.EngineStats(
            **{name: getattr(self._stats, name) for name in _OF_THE_LAST_STEP},
            requests_running=self._scheduler.num_running,
            requests_waiting=self._scheduler.num_waiting,
            requests_waiting_slow=self._scheduler.num_waiting_in(sequence.Lane.SLOW),
            oldest_wait_seconds=now - oldest.arrival_seconds if oldest else 0.0,
            pages_total=self._scheduler.num_pages,
            pages_used=self._scheduler.num_pages_used,
            pages_cached=self._scheduler.num_pages_cached,
            pages_swapped=self._scheduler.num_pages_swapped,
            page_evictions_total=self._scheduler.num_page_evictions,
            swap_pages_total=self._worker.facts.num_host_pages,
            swapped_out_pages_total=counters.swapped_out_pages,
            swapped_in_pages_total=counters.swapped_in_pages,
            prefix_hit_tokens_total=self._scheduler.prefix_tokens[0],
            prefix_missed_tokens_total=self._scheduler.prefix_tokens[1],
            above_queue_line=self._line_times.is_above(lines.Level.QUEUE),
            above_preempt_line=self._line_times.is_above(lines.Level.PREEMPT),
            seconds_above_queue_line_total=self._line_times.seconds_above(lines.Level.QUEUE, now),
            seconds_above_preempt_line_total=self._line_times.seconds_above(lines.Level.PREEMPT, now),
            tokens_in_used_pages=self._scheduler.num_tokens_in_pages,
            preemptions_total=sum(counters.preemptions.values()),
            preemptions_swap_total=counters.preemptions["swap"],
            resumes_total=sum(counters.resumes.values()),
            resumes_swap_total=counters.resumes["swap"],
            step_prices=self._scheduler.times.prices,
            prompt_tokens_total=counters.prompt_tokens,
            generated_tokens_total=counters.generated_tokens,
            **_guessing(self._scheduler.speculation),
            queue_waits_seconds=self._queue_waits[sequence.Lane.EXPRESS],
            slow_queue_waits_seconds=self._queue_waits[sequence.Lane.SLOW],
            busy_seconds_total=self._busy_seconds,
            out_of_memory_total=self._num_out_of_memory,
            op_seconds=self._op_seconds,
        )
        self._queue_waits, self._op_seconds = {lane: [] for lane in sequence.Lane}, []
        return stats

    def listing(self, question: messages.ListSequences) -> messages.SequenceList:
        """The largest sequences and the last crossings, all of this moment. Changes nothing."""
        now = self._now()
        self._note_crossings(now)
        return messages.SequenceList(
            number=question.number,
            steps=self._stats.steps,
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            pages_used=self._scheduler.num_pages_used,
            pages_held=self._scheduler.num_pages_held,
            pages_swapped=self._scheduler.num_pages_swapped,
            sequences=listing.largest(self._sequences.values(), question.most, now),
            crossings=self._line_times.last(now),
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
        self._note_crossings(now)
        if plan is not None:
            self._in_flight.append(_InFlight(plan, self._worker.submit(plan), schedule_seconds))
        return plan is not None

    def _decide(
        self, requests: SequenceOf[messages.EngineRequest], entries: SequenceOf[sequence.Sequence]
    ) -> overload.Acceptance | overload.Refusal:
        if self._draining:
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
        return overload.decide(arrival, self._scheduler.situation(longest), self._settings)

    def _knows_prices(self) -> bool:
        """Whether a deadline may be refused early. What steps cost is known from steps: were all refused because a step
        was slow once, it would never be learned that they are fast again."""
        return self._scheduler.has_work or self._now() - self._last_result_at <= _TRY_AGAIN_SECONDS

    def _shed(self, decision: overload.Acceptance, newcomer: messages.EngineRequest) -> list[messages.SequenceOutput]:
        """End as many of those that wait as must go for `newcomer`."""
        outputs: list[messages.SequenceOutput] = []
        num_tokens = 0
        while len(outputs) < decision.num_shed or num_tokens < decision.num_tokens_shed:
            entry = self._scheduler.next_to_shed(newcomer.priority, is_retry=newcomer.is_retry)
            if entry is None:
                raise RuntimeError("fewer wait that can be shed than were counted")
            message = (
                "the queue is full, and a request of higher priority, or a first try, needs the place. Try again later."
            )
            refusal = overload.Refusal(overload.Reason.SHED, message, self._retry_after(entry))
            for one in list(self._groups.get(entry.id, (entry,))):  # a request goes as a whole
                num_tokens += one.num_max_tokens
                self._forget(one)
                outputs.append(_rejected(one.id, refusal))
        return outputs

    def _retry_after(self, entry: sequence.Sequence) -> float:
        """Seconds until one like `entry` that comes now would have its turn, as far as that is known."""
        return max(overload.LEAST_RETRY_AFTER_SECONDS, self._scheduler.wait_seconds(entry) or 0.0)

    def _note_deadline(self, entry: sequence.Sequence, at: float) -> None:
        self._deadlines[entry.id] = at
        if len(self._next_deadlines) > 2 * len(self._deadlines) + 64:
            self._next_deadlines = [(each, name) for name, each in self._deadlines.items()]
            heapq.heapify(self._next_deadlines)
        else:
            heapq.heappush(self._next_deadlines, (at, entry.id))

    def _note_groups(self, requests: SequenceOf[messages.EngineRequest]) -> None:
        groups: dict[str, list[sequence.Sequence]] = {}
        for request in requests:
            if request.group and len(requests) > 1:
                groups.setdefault(request.group, []).append(self._sequences[request.id])
        for group in groups.values():
            self._groups.update((entry.id, group) for entry in group)

    def _update(self, result: step_plan.StepResult) -> list[messages.SequenceOutput]:
        # One turn for each that runs, in every step: what most of them need comes first.
        outputs = []
        made = messages.SequenceOutput
        for entry, token_id, logprobs in self._scheduler.update(result):
            if token_id not in entry.stop_ids and len(entry.token_ids) < entry.num_max_tokens:
                outputs.append(made(entry.id, (token_id,), (logprobs,)))
                continue
            self._forget(entry)
            is_stop = token_id in entry.stop_ids
            finish = messages.FinishReason.STOP if is_stop else messages.FinishReason.LENGTH
            outputs.append(made(entry.id, (token_id,), (logprobs,), finish, token_id if is_stop else None))
        if result.verified:
            outputs += map(self._verified_output, self._scheduler.take_verified())
        if self._num_cached:  # seldom: so that the loop above does nothing for it
            outputs = [self._with_cached(output) for output in outputs]
        return outputs

    def _verified_output(self, verified: speculation.Verified) -> messages.SequenceOutput:
        entry, token_ids = verified.entry, verified.token_ids
        finish: messages.FinishReason | None = None
        if token_ids[-1] in entry.stop_ids:
            finish = messages.FinishReason.STOP
        elif len(entry.token_ids) >= entry.num_max_tokens:
            finish = messages.FinishReason.LENGTH
        if finish is not None:
            self._forget(entry)
        stopped_by = token_ids[-1] if finish is messages.FinishReason.STOP else None
        return messages.SequenceOutput(entry.id, token_ids, verified.logprobs, finish, stopped_by)

    def _with_cached(self, output: messages.SequenceOutput) -> messages.SequenceOutput:
        num_cached = self._num_cached.pop(output.id, None)
        return output if num_cached is None else msgspec.structs.replace(output, num_cached_tokens=num_cached)

    def _give_up_steps(self, error: errors.OutOfMemory) -> list[messages.SequenceOutput]:
        """A step has come to nothing, and so have those behind it: all that run end, those that wait go on."""
        self._num_out_of_memory += 1
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

    def _expire(self) -> list[messages.SequenceOutput]:
        now = self._now()
        outputs = []
        longest = self._settings.max_queue_seconds
        retry_after: dict[tuple[int, sequence.Lane], float] = {}
        while (entry := self._scheduler.oldest_losable()) and now - entry.arrival_seconds > longest:
            message = f"waited {now - entry.arrival_seconds:.1f} s for a first turn, longest allowed are {longest:g} s"
            kind = (entry.priority, entry.lane)
            if kind not in retry_after:
                retry_after[kind] = self._retry_after(entry)
            outputs.append(self._end(entry, messages.FinishReason.TIMEOUT, message, retry_after[kind]))
        while self._next_deadlines and self._next_deadlines[0][0] <= now:
            at, request_id = heapq.heappop(self._next_deadlines)
            if self._deadlines.get(request_id) == at:
                entry = self._sequences[request_id]
                kind = (entry.priority, entry.lane)
                if kind not in retry_after:
                    retry_after[kind] = self._retry_after(entry)
                outputs.append(self._end_late(entry, now, retry_after[kind]))
        return outputs

    def _end_late(self, entry: sequence.Sequence, now: float, retry_after: float) -> messages.SequenceOutput:
        """Its own deadline has passed."""
        allowed = self._deadlines[entry.id] - entry.arrival_seconds
        message = f"the request's deadline of {allowed:g} s has passed: it took {now - entry.arrival_seconds:.1f} s"
        if entry.started:
            num_tokens = entry.num_known - entry.num_prompt_tokens
            message += f", and had {num_tokens} of at most {entry.params.max_tokens} tokens"
            return self._end(entry, messages.FinishReason.DEADLINE, message)
        message += " without a first turn"
        return self._end(entry, messages.FinishReason.DEADLINE, message, retry_after)

    def _end(
        self,
        entry: sequence.Sequence,
        finish: messages.FinishReason,
        message: str = "",
        retry_after_seconds: float = 0.0,
    ) -> messages.SequenceOutput:
        self._forget(entry)
        self._num_cached.pop(entry.id, None)
        return messages.SequenceOutput(
            entry.id, (), (), finish, message=message, retry_after_seconds=retry_after_seconds
        )

    def _forget(self, entry: sequence.Sequence) -> None:
        self._scheduler.finish(entry)
        del self._sequences[entry.id]
        self._deadlines.pop(entry.id, None)
        group = self._groups.pop(entry.id, None)
        if group is not None:
            group.remove(entry)

    def _note_turns(self, now: float) -> None:
        for entry in self._scheduler.take_first_turns():
            self._queue_waits[entry.lane].append(now - entry.arrival_seconds)
            if entry.num_cached_tokens:
                self._num_cached[entry.id] = entry.num_cached_tokens
            for sibling in self._groups.get(entry.id, ()):
                if not sibling.started:
                    self._scheduler.keep(sibling)

    def _note_crossings(self, now: float) -> None:
        for crossing in self._scheduler.take_crossings():
            self._line_times.note(crossing, now)
            _log.info(
                "%s line %s used_pages=%d pages=%d at_ratio=%.3f running=%d waiting=%d",
                crossing.level.value,
                "crossed" if crossing.above else "left",
                crossing.num_used,
                crossing.num_pages,
                crossing.ratio,
                self._scheduler.num_running,
                self._scheduler.num_waiting,
            )

    def _note_step(self, done: _InFlight, result: step_plan.StepResult, update_seconds: float) -> None:
        plan = done.plan
        self._busy_seconds += result.execute_seconds
        self._num_out_of_memory_running = 0
        if result.op_seconds is not None:
            self._op_seconds.append(dict(result.op_seconds))
        self._stats = messages.EngineStats(
            steps=plan.step,
            step_tokens=plan.num_tokens,
            step_prompt_tokens=plan.num_tokens - plan.num_samples,
            step_sequences=plan.num_sequences,
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


def _guessing(speculation_: speculation.Speculation | None) -> dict[str, Any]:
    if speculation_ is None:
        return {}
    return {
        "guesses_proposed_total": speculation_.counters.proposed,
        "guesses_accepted_total": speculation_.counters.accepted,
        "guessing_ratio": speculation_.active,
        "guessing_gain": speculation_.gain,
    }


def _made(request: messages.EngineRequest, order: int, now: float) -> sequence.Sequence:
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


def _rejected(request_id: str, refusal: overload.Refusal) -> messages.SequenceOutput:
    return messages.SequenceOutput(
        request_id,
        (),
        (),
        messages.FinishReason.REJECTED,
        reject=refusal.reason,
        message=refusal.message,
        retry_after_seconds=refusal.retry_after_seconds,
    )
