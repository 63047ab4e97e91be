"""Who gets its pages back from the swap space in a step, and how many: beside the batch, no more copies than take as
long as the step does without them."""

from __future__ import annotations

import math

from tidemark_runtime.core import counters, memory, running, step_time, transitions, victims
from tidemark_runtime.core import draft as draft_


class Restoring:
    """In the order of their turns; whoever has all its pages joins the batch."""

    def __init__(
        self,
        memory_: memory.Memory,
        running_: running.Running,
        *,
        times: step_time.StepTime,
        costs: victims.Costs,
        transitions_: transitions.Transitions,
        counters_: counters.Counters,
    ) -> None:
        self._memory = memory_
        self._running = running_
        self._times = times
        self._costs = costs
        self._transitions = transitions_
        self._counters = counters_

    def restore(self, draft: draft_.Draft) -> None:
        """Called after everything that swaps out: places in the swap space that this gives back are read in this very
        step, after the copies out."""
        if not self._running.restoring:
            return
        left = self._copies_in(draft.step)
        for entry in list(self._running.restoring):
            if left <= 0:
                return
            copies = self._memory.swap_in(entry, left)
            draft.swaps_in.extend(copies)
            self._counters.swapped_in_pages += len(copies)
            left -= len(copies)
            if not entry.host_pages:
                self._transitions.join(entry, draft)
                draft.filled.append((entry, entry.num_computed))  # in other pages than those that were published

    def _copies_in(self, step: int) -> int:
        decoding = self._running.decoding
        work = step_time.Work(decodes=len(decoding), tokens_read=decoding.num_tokens_read(step))
        seconds = self._times.seconds(work)
        if not self._costs.page_copy_seconds or not seconds:
            return self._memory.pool.num_pages
        return max(1, math.floor(seconds / self._costs.page_copy_seconds))
