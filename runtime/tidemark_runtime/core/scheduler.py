"""Decides what each step computes: running sequences first, then chunks of prompts, within a budget of tokens.

Rules, in the order in which they are asked, and the file that has each:

1. Who decodes gets its token in every step, so that a long prompt never delays a running answer (`decoding`).
2. A sequence gets pages for *all* its known tokens when it starts, so that prompts in progress cannot lock each other
   out (`memory`). Only who decodes asks for more, a page at a time (`growth`).
3. When a running sequence needs a page and none is free, a victim loses its pages (`preemption`, `victims`); they are
   copied to the swap space, or computed again, whichever is predicted to be cheaper. It comes back in its old turn,
   before any of its priority that never ran. Nothing that was generated is lost. In a step with such a victim nobody
   starts.
4. A sequence that was a victim `max_preemptions_per_request` times starts again only when pages for all it may ever
   need are free, and gets them. So it is never a victim again, never waits for a page, and always ends: with at
   least one such sequence the engine makes progress, and without one the oldest can take pages from all others.
5. Who may start does, one after the other (`starting`); `admission` has the rules. Who could never have enough pages
   is refused at arrival (`overload`).
6. What the budget leaves after the decodes goes to prompts: higher priorities first, and within one the slow lane gets
   the share it is guaranteed (`prompts`). With `target_step_seconds` the budget is what is predicted to fit into that
   time (`budget`).
7. What prompts leave may go to guesses at the next tokens of those that decode, where that pays (`speculation`).

What these decisions do to a sequence is in `transitions`; what the result of a step does is in `results`.
"""

from __future__ import annotations

import functools

from tidemark_runtime import config
from tidemark_runtime.core import (
    block_pool,
    growth,
    lines,
    memory,
    outlook,
    overload,
    preemption,
    prompts,
    restoring,
    results,
    running,
    sequence,
    speculation,
    starting,
    step_plan,
    step_time,
    transitions,
    victims,
    waiting_queue,
)
from tidemark_runtime.core import budget as budget_
from tidemark_runtime.core import counters as counters_
from tidemark_runtime.core import draft as draft_


class Scheduler:
    """Owns all sequences and their memory. Pure: time is an argument, no I/O, no tensors."""

    def __init__(
        self,
        settings: config.SchedulerConfig,
        *,
        num_pages: int,
        block_size: int,
        max_context_tokens: int,
        num_host_pages: int = 0,
        page_copy_seconds: float = 0.0,
        prefix_caching: bool = True,
        speculative: config.SpeculativeConfig | None = None,
    ) -> None:
        self._settings = settings
        self._max_context_tokens = max_context_tokens
        self._step = 0
        """The last that was planned."""
        self.times = step_time.StepTime()
        self.counters = counters_.Counters()
        self._memory = memory.Memory(
            num_slots=settings.max_num_seqs,
            num_pages=num_pages,
            block_size=block_size,
            num_host_pages=num_host_pages,
            prefix_caching=prefix_caching,
        )
        self._waiting = waiting_queue.WaitingQueue()
        self._losable = overload.Losable()
        self._running = running.Running(block_size)
        self._decoding = self._running.decoding
        self._lines = lines.Lines(settings)
        self._outlook = outlook.Outlook(self._running, self._memory, self._lines, self.times)
        self.speculation: speculation.Speculation | None = None
        """None where nobody guesses (`speculative.method` none)."""
        if speculative is not None and speculative.method != "none":
            self.speculation = speculation.Speculation(speculative, self._decoding, self._memory, self.times)
        self._join_parts(victims.Costs(self.times, page_copy_seconds))

    def _join_parts(self, costs: victims.Costs) -> None:
        """What decides, over what keeps."""
        self._budget = budget_.Budget(self._running, self.times, self._memory.block_size)
        self._prompts = prompts.Prompts(self._running, self._budget, self._memory.block_size, self.counters)
        preemption_ = preemption.Preemption(self._memory, self._running, costs)
        self._transitions = transitions.Transitions(
            self._memory,
            self._running,
            self._waiting,
            losable=self._losable,
            outlook_=self._outlook,
            preemption_=preemption_,
            counters_=self.counters,
        )
        self._results = results.Results(
            self._memory,
            times=self.times,
            costs=costs,
            speculation_=self.speculation,
            counters_=self.counters,
        )
        self._growth = growth.Growth(self._memory, self._running, preemption_, self._transitions, self._results)
        self._starting = starting.Starting(
            self._memory,
            self._running,
            self._waiting,
            lines_=self._lines,
            preemption_=preemption_,
            transitions_=self._transitions,
        )
        self._restoring = restoring.Restoring(
            self._memory,
            self._running,
            times=self.times,
            costs=costs,
            transitions_=self._transitions,
            counters_=self.counters,
        )

    def configure(self, settings: config.SchedulerConfig) -> None:
        """Decide by `settings` from the next `schedule` on; who runs or waits already stays where it is.

        Raises `ValueError` for another `max_num_seqs`: the slots are made once.
        """
        if settings.max_num_seqs != self._settings.max_num_seqs:
            raise ValueError(f"max_num_seqs is {self._settings.max_num_seqs} for good, got {settings.max_num_seqs}")
        self._settings = settings
        self._outlook.forget()
        self._lines.move(settings)

    def limit_context(self, max_context_tokens: int) -> None:
        """Refuse what could become longer, from now on; who is here keeps what it was admitted with. The caller knows
        that the worker's tables are wide enough."""
        self._max_context_tokens = max_context_tokens

    # ---- what callers may know -------------------------------------------------------------------------------

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def num_waiting_in(self, lane: sequence.Lane) -> int:
        return self._waiting.num_in(lane)

    @property
    def num_pages(self) -> int:
        return self._memory.pool.num_pages

    @property
    def num_pages_used(self) -> int:
        return self._memory.pool.num_used

    @property
    def num_pages_held(self) -> int:
        """By all sequences together; a shared page counts for each."""
        return self._memory.num_pages_held

    @property
    def num_pages_cached(self) -> int:
        return self._memory.pool.num_cached

    @property
    def num_pages_swapped(self) -> int:
        """In the swap space."""
        return self._memory.num_host_used

    @property
    def num_page_evictions(self) -> int:
        return self._memory.pool.num_evictions

    @property
    def prefix_tokens(self) -> tuple[int, int]:
        """Tokens found in the prefix cache, and tokens that were not, of all that had a turn."""
        cache = self._memory.cache
        return (cache.num_hit_tokens, cache.num_missed_tokens) if cache is not None else (0, 0)

    @property
    def num_tokens_in_pages(self) -> int:
        """Tokens whose KV is in used pages; what is missing to `num_pages_used * block_size` is fragmentation.

        With shared pages it is counted as what is missing from the pages of each sequence.
        """
        num_computed = self._running.num_tokens_computed(self._step)
        unfilled = self._memory.num_pages_held * self._memory.block_size - num_computed
        return max(0, self.num_pages_used * self._memory.block_size - unfilled)

    @property
    def max_request_tokens(self) -> int:
        """Prompt and output together of the longest request that can be served."""
        return min(self._max_context_tokens, self.num_pages * self._memory.block_size)

    @property
    def has_work(self) -> bool:
        return bool(len(self._running) or len(self._waiting))

    def is_above(self, level: lines.Level) -> bool:
        """Whether a line is crossed."""
        return self._lines.is_above(level)

    def take_crossings(self) -> list[lines.Crossing]:
        """Lines that were crossed or left since the last call."""
        return self._lines.take_crossings()

    def oldest_fresh(self) -> sequence.Sequence | None:
        """Of those that have not had a first turn, the one that waits longest."""
        return self._waiting.oldest_fresh()

    def oldest_losable(self) -> sequence.Sequence | None:
        """Of these, without those that were told to be kept."""
        return self._losable.oldest()

    def refusal(self, num_tokens: int) -> overload.Refusal | None:
        """Why a request of so many tokens (prompt and output) can never be served, with the sum; None if it can."""
        return overload.too_long(num_tokens, self._max_context_tokens, self.num_pages, self._memory.block_size)

    def situation(self, newcomer: sequence.Sequence) -> overload.Situation:
        """What `newcomer` finds."""
        newcomer.lane = self._lane_of(newcomer)
        return overload.Situation(
            max(0, self._moment.num_places - len(self._running)),
            len(self._running),
            self._waiting,
            self._losable,
            self.wait_seconds(newcomer),
            functools.partial(self._outlook.prompt_seconds, newcomer, self._moment),
        )

    def wait_seconds(self, entry: sequence.Sequence) -> float | None:
        """What somebody who is like `entry`, and comes now, is predicted to wait for a first turn; None as long as
        there is nothing to judge by."""
        return self._outlook.wait_seconds(entry, self._moment)

    @property
    def _moment(self) -> outlook.Moment:
        return outlook.Moment(self._settings, self._step, self._prompt_tokens_next)

    def _prompt_tokens_next(self) -> int:
        return self._budget.prompt_tokens(draft_.Draft(self._step + 1), self._settings)

    def next_to_shed(self, priority: int, *, is_retry: bool) -> sequence.Sequence | None:
        """Of those that wait, who goes first for a newcomer of this kind."""
        return self._losable.next_for(priority, is_retry=is_retry)

    def keep(self, entry: sequence.Sequence) -> None:
        """A waiting `entry` is not shed any more, and not the oldest that may be lost: its request has begun."""
        self._losable.discard(entry)

    def take_first_turns(self) -> list[sequence.Sequence]:
        """Those that had their first turn since the last call."""
        return self._transitions.take_first_turns()

    # ---- the three things that happen ------------------------------------------------------------------------

    def add(self, entry: sequence.Sequence) -> None:
        """Accept a sequence; the caller has asked `refusal` and `overload.decide`."""
        entry.lane = self._lane_of(entry)
        self._transitions.add(entry, self._settings)

    def _lane_of(self, entry: sequence.Sequence) -> sequence.Lane:
        is_long = entry.num_max_tokens >= self._settings.long_request_tokens
        return sequence.Lane.SLOW if is_long else sequence.Lane.EXPRESS

    def finish(self, entry: sequence.Sequence) -> None:
        """Take everything from a sequence, wherever it is. Idempotent."""
        self._transitions.finish(entry, self._step)
        if self.speculation is not None:
            self.speculation.forget(entry)
        self._look_at_lines()  # no step may follow

    def give_up_steps(self) -> list[sequence.Sequence]:
        """The steps in flight have come to nothing, and nobody knows how far they got. Returns all that hold a slot,
        for the caller to end. Who waits goes on waiting, and computes anew what it has in the swap space: copies may be
        among what was lost. What the prefix cache holds was written by steps before these.
        """
        self._transitions.give_up(self._results.give_up())
        if self.speculation is not None:
            self.speculation.give_up()
        return list(self._running)

    def schedule(self, now: float = 0.0) -> step_plan.StepPlan | None:
        """The next step, or None when there is nothing to compute, or what is in flight must come back first. May be
        called with a step in flight.

        `now`: seconds on the clock of the sequences' `arrival_seconds`.
        """
        guesses, settings = self.speculation, self._settings
        if guesses is not None and self._results.are_awaited and guesses.wants_result(self._step + 1):
            return None
        draft = draft_.Draft(self._step + 1)
        self._growth.grow(draft, settings)
        budget = self._budget.prompt_tokens(draft, settings)
        self._starting.start(draft, budget, now, settings)
        self._restoring.restore(draft)
        # Those that were restored decode now, too.
        self._prompts.compute(draft, min(budget, self._budget.tokens_beside_decodes(settings)), settings)
        if guesses is not None and not self._results.are_awaited:
            above = self._lines.is_above(lines.Level.QUEUE)
            guesses.plan(draft, self._budget.for_guesses(draft, settings, queue_line_crossed=above))
        return self._close(draft)

    def update(self, result: step_plan.StepResult) -> list[results.Sampled]:
        """Book the tokens of a step. Those of sequences that have ended meanwhile are dropped."""
        return self._results.book(result, self._step + 1)

    def take_verified(self) -> list[speculation.Verified]:
        """What guesses brought in the last `update`, beside what that returned."""
        return self._results.take_verified()

    def check_integrity(self) -> None:
        """Raise `PoolCorrupted` unless pages, slots and counts add up."""
        holders = list(self._running)
        if wrong := self._running.miscounted():
            raise block_pool.PoolCorrupted(wrong)
        self._memory.check_integrity(holders, self._transitions.parked)
        self._waiting.check_integrity()
        for entry in holders:
            num_computed = self._decoding.num_computed(entry, self._step)
            if len(entry.pages) < self._memory.pages_for(num_computed):
                raise block_pool.PoolCorrupted(
                    f"sequence {entry.id} has {num_computed} tokens computed in {len(entry.pages)} pages"
                )

    def _close(self, draft: draft_.Draft) -> step_plan.StepPlan | None:
        """The plan, and what its decodes mean for the steps to come; None when it computes nothing."""
        decodes = self._decoding.slots
        if not decodes and draft.is_empty:
            return None
        in_flight = draft.in_flight(self._decoding.sequences, self._decoding.num_tokens_read(draft.step))
        self._results.wait_for(draft.step, in_flight)
        self._step = draft.step
        self._look_at_lines()
        for entry in self._decoding.ending(draft.step):
            self._decoding.leave(entry, draft.step)
        for entry in draft.chunk_samples:
            if entry.num_uncomputed:
                self._decoding.enter(entry, draft.step + 1)
        return draft.plan(decodes)

    def _look_at_lines(self) -> None:
        self._lines.look(self.num_pages_used, self.num_pages)
