"""Who starts in a step: `admission` names the next, again and again until nobody may, and each gets its slot and pages
here. Where one of higher priority does not fit, enough of those below it give way first, or nobody does."""

from __future__ import annotations

from tidemark_runtime import config
from tidemark_runtime.core import (
    admission,
    lines,
    memory,
    preemption,
    running,
    sequence,
    transitions,
    waiting_queue,
)
from tidemark_runtime.core import draft as draft_


class Starting:
    """Keeps what `admission` asks about (`admission.State`) true while one after the other starts."""

    def __init__(
        self,
        memory_: memory.Memory,
        running_: running.Running,
        waiting: waiting_queue.WaitingQueue,
        *,
        lines_: lines.Lines,
        preemption_: preemption.Preemption,
        transitions_: transitions.Transitions,
    ) -> None:
        self._memory = memory_
        self._running = running_
        self._waiting = waiting
        self._lines = lines_
        self._preemption = preemption_
        self._transitions = transitions_
        self._admission = admission.Admission(memory_, waiting)

    def start(self, draft: draft_.Draft, budget: int, now: float, settings: config.SchedulerConfig) -> None:
        """`budget`: tokens of prompts that the step may hold; those that compute prompts already come first."""
        self._look_at_lines()
        highest = self._waiting.highest()
        if draft.had_to_preempt or highest is None:
            return
        least_priority = self._running.least_priority
        if not self._memory.num_free_slots and least_priority is not None and highest.priority <= least_priority:
            return  # the steady state of a full batch: nobody can start, and it must cost nothing to find out
        state = admission.State(
            settings=settings,
            now=now,
            step=draft.step,
            num_running=len(self._running),
            least_priority=least_priority,
            queue_line_crossed=self._lines.is_above(lines.Level.QUEUE),
            tokens=self._token_shares(budget, settings),
        )
        while (turn := self._admission.next(state)) is not None:
            if not turn.displaces:
                self._transitions.start(turn, draft, settings)
                self._look_at_lines()  # a burst in one step stops at the line, too
                state.queue_line_crossed = self._lines.is_above(lines.Level.QUEUE)
                state.tokens = self._token_shares(budget, settings)
            elif not self._displace(turn, draft, settings):
                return
            # After victims it is asked again: pages that it shared with one are not where they were.
            state.num_running = len(self._running)
            state.least_priority = self._running.least_priority

    def _look_at_lines(self) -> None:
        self._lines.look(self._memory.pool.num_used, self._memory.pool.num_pages)

    def _token_shares(self, budget: int, settings: config.SchedulerConfig) -> admission.TokenShares:
        """For those who wait with the highest priority: prompts in progress count from that priority on."""
        highest = self._waiting.highest()
        demand = dict.fromkeys(sequence.Lane, 0)
        for entry in self._running.prompting:
            if highest is not None and entry.priority >= highest.priority:
                demand[entry.lane] += entry.num_uncomputed
        return admission.TokenShares(budget, settings.long_request_share, demand)

    def _displace(self, turn: admission.Turn, draft: draft_.Draft, settings: config.SchedulerConfig) -> bool:
        """Preempt running ones of lower priority until there is room for `turn`; nobody when that is not enough."""
        joined = {join.slot for join in draft.joins}
        found = self._preemption.for_turn(
            turn.entry, turn.num_pages_missing, turn.num_slots_missing, joined, draft.step, settings
        )
        if found is None:
            return False
        for victim in found:
            draft.forget_slot(victim.slot)
            self._transitions.preempt(victim, draft, settings)
        return True
