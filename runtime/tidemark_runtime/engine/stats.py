"""What an engine tells of itself after each step: its state, the last step, and totals since the start. It is told what
happens and decides nothing; what this costs a step is measured (benchmarks/results/instrumentation.md)."""

from __future__ import annotations

import logging
from typing import Any

from tidemark_runtime.core import lines, scheduler, sequence, speculation, step_plan
from tidemark_runtime.engine import line_times, messages

_log = logging.getLogger(__name__)

_OF_THE_LAST_STEP = (
    "steps",
    "step_tokens",
    "step_prompt_tokens",
    "step_sequences",
    "schedule_seconds",
    "execute_seconds",
    "update_seconds",
)


class Stats:
    """Of one engine. The scheduler has its own counts and is asked for them."""

    def __init__(self, scheduler_: scheduler.Scheduler, *, num_host_pages: int) -> None:
        self._scheduler = scheduler_
        self._num_host_pages = num_host_pages
        self._last = messages.EngineStats()
        """Of the last step; its other fields are not set."""
        self._line_times = line_times.LineTimes()
        self._queue_waits: dict[sequence.Lane, list[float]] = {lane: [] for lane in sequence.Lane}
        self._op_seconds: list[dict[str, float]] = []
        """Of steps that were timed, until the next message."""
        self._busy_seconds = 0.0
        self._num_out_of_memory = 0

    @property
    def num_steps(self) -> int:
        return self._last.steps

    def note_first_turn(self, entry: sequence.Sequence, now: float) -> None:
        """The step that `entry` takes part in first is planned."""
        self._queue_waits[entry.lane].append(now - entry.arrival_seconds)

    def note_out_of_memory(self) -> None:
        """A step came to nothing."""
        self._num_out_of_memory += 1

    def note_crossings(self, now: float) -> None:
        """Whatever lines were crossed or left since the last call."""
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

    def note_step(
        self,
        plan: step_plan.StepPlan,
        result: step_plan.StepResult,
        schedule_seconds: float,
        update_seconds: float,
    ) -> None:
        """A step is done, and what it brought is taken in."""
        self._busy_seconds += result.execute_seconds
        if result.op_seconds is not None:
            self._op_seconds.append(dict(result.op_seconds))
        self._last = messages.EngineStats(
            steps=plan.step,
            step_tokens=plan.num_tokens,
            step_prompt_tokens=plan.num_tokens - plan.num_samples,
            step_sequences=plan.num_sequences,
            schedule_seconds=schedule_seconds,
            execute_seconds=result.execute_seconds,
            update_seconds=update_seconds,
        )

    def crossings(self, now: float) -> list[messages.LineCrossing]:
        """The last ones, the newest first."""
        return self._line_times.last(now)

    def take(self, now: float) -> messages.EngineStats:
        """State now; waits that ended and times of ops are reported once."""
        self.note_crossings(now)
        oldest, counters = self._scheduler.oldest_fresh(), self._scheduler.counters
        stats = messages.EngineStats(
            **{name: getattr(self._last, name) for name in _OF_THE_LAST_STEP},
            requests_running=self._scheduler.num_running,
            requests_waiting=self._scheduler.num_waiting,
            requests_waiting_slow=self._scheduler.num_waiting_in(sequence.Lane.SLOW),
            oldest_wait_seconds=now - oldest.arrival_seconds if oldest else 0.0,
            pages_total=self._scheduler.num_pages,
            pages_used=self._scheduler.num_pages_used,
            pages_cached=self._scheduler.num_pages_cached,
            pages_swapped=self._scheduler.num_pages_swapped,
            page_evictions_total=self._scheduler.num_page_evictions,
            swap_pages_total=self._num_host_pages,
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


def _guessing(speculation_: speculation.Speculation | None) -> dict[str, Any]:
    if speculation_ is None:
        return {}
    return {
        "guesses_proposed_total": speculation_.counters.proposed,
        "guesses_accepted_total": speculation_.counters.accepted,
        "guessing_ratio": speculation_.active,
        "guessing_gain": speculation_.gain,
    }
