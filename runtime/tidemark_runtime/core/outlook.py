"""What somebody who comes now would find: the sums that `forecast` asks for, taken from what runs and waits.

Looking around costs something for each that runs, so it is done once a step, and what was predicted from it is kept as
long as nothing changes: in a storm of refusals most ask for the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_runtime import config
from tidemark_runtime.core import forecast, lines, memory, running, sequence, step_time


@dataclass(frozen=True, slots=True)
class Moment:
    """What the scheduler knows beside who runs and waits."""

    settings: config.SchedulerConfig
    step: int
    """The last that was planned."""
    prompt_budget: Callable[[], int]
    """Prompt tokens that the next step may hold."""

    @property
    def num_places(self) -> int:
        soft = self.settings.max_concurrency_soft
        return self.settings.max_num_seqs if soft is None else min(self.settings.max_num_seqs, soft)


class Outlook:
    """Is told who waits and who ended; looks at the rest when it is asked."""

    def __init__(
        self,
        running_: running.Running,
        memory_: memory.Memory,
        lines_: lines.Lines,
        times: step_time.StepTime,
    ) -> None:
        self._running = running_
        self._memory = memory_
        self._lines = lines_
        self._times = times
        self.waiting = forecast.Waiting()
        self.use = forecast.Use()
        self._here: tuple[tuple[int, int], forecast.Here] | None = None
        """As it was last looked at: step, number of running ones, and what was seen."""
        self._waits: dict[tuple[object, ...], float] = {}
        """What was predicted from that."""

    def forget(self) -> None:
        """Other settings are in force."""
        self._here = None

    def wait_seconds(self, entry: sequence.Sequence, now: Moment) -> float | None:
        """What somebody who is like `entry`, and comes now, is predicted to wait for a first turn; None as long as
        there is nothing to judge by."""
        if self.use.part is None:
            return None
        settings = now.settings
        pages = self._memory.num_pages_of(entry.lane) + self._memory.pages_for(entry.num_prompt_tokens)
        share = settings.long_request_share
        of_lane = share if entry.lane is sequence.Lane.SLOW else 1.0 - share
        is_let_in = pages <= of_lane * settings.queue_watermark * self._memory.pool.num_pages
        here = self._look_around(now)
        key = (entry.priority, entry.lane, pages, is_let_in, self.waiting.num_changes)
        if key not in self._waits:
            self._waits[key] = here.seconds_to_first_turn(
                entry.priority, entry.num_prompt_tokens, entry.lane, is_let_in=is_let_in
            )
        return self._waits[key]

    def prompt_seconds(self, entry: sequence.Sequence, now: Moment) -> float:
        """From the first turn of `entry` to its first token."""
        hits = self._memory.need(entry, entry.num_prompt_tokens, search=True).hits
        num_tokens = entry.num_prompt_tokens - len(hits) * self._memory.block_size
        return self._look_around(now).prompt_seconds(entry.priority, num_tokens)

    def _look_around(self, now: Moment) -> forecast.Here:
        key = (now.step, len(self._running))
        if self._here is None or self._here[0] != key:
            self._here = (key, self._here_now(now))
            self._waits.clear()
        return self._here[1]

    def _here_now(self, now: Moment) -> forecast.Here:
        part = self.use.part or 1.0
        budget = max(1, now.prompt_budget())
        pool = self._memory.pool
        shared = pool.num_used / max(1, self._memory.num_pages_held)
        queue = now.settings.queue_watermark
        if self._lines.is_above(lines.Level.QUEUE):
            queue -= now.settings.watermark_hysteresis
        nobody = not len(self._running)
        return forecast.Here(
            holders=sorted(
                (_holder(entry, now.step, part, budget, shared) for entry in self._running),
                key=lambda holder: holder.steps,
            ),
            times=self._times,
            waiting=self.waiting,
            part_used=part,
            num_places=now.num_places,
            free_pages=pool.num_pages if nobody else queue * pool.num_pages - pool.num_used,
            pages_to_spare=(
                pool.num_pages if nobody else now.settings.preempt_watermark * pool.num_pages - pool.num_used
            ),
            block_size=self._memory.block_size,
            prompt_budget=budget,
            tokens_read=self._running.decoding.num_tokens_read(now.step + 1),
            slow_share=now.settings.long_request_share,
        )


def _holder(entry: sequence.Sequence, step: int, part: float, budget: int, shared: float) -> forecast.Holder:
    most = entry.params.max_tokens
    left = max(0, entry.last_step - step if entry.decoding_since else most - entry.num_sampled)
    # Who has had more than the usual part goes on as the others did at their beginning.
    expected = max(part * most - (most - left), part * left)
    prompt = 0 if entry.decoding_since else max(0, entry.num_uncomputed - 1)
    return forecast.Holder(entry.priority, 1 + expected + prompt / budget, len(entry.pages) * shared, prompt)
