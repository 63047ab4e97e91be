"""Pages for who decodes: one at a time, in the step whose token has no place yet. Where none is free, somebody gives
way, maybe the one that asks."""

from __future__ import annotations

from tidemark_runtime import config
from tidemark_runtime.core import draft as draft_
from tidemark_runtime.core import memory, preemption, results, running, step_plan, transitions


class Growth:
    """Asked first in a step: a running answer comes before whoever wants to start."""

    def __init__(
        self,
        memory_: memory.Memory,
        running_: running.Running,
        preemption_: preemption.Preemption,
        transitions_: transitions.Transitions,
        results_: results.Results,
    ) -> None:
        self._memory = memory_
        self._decoding = running_.decoding
        self._preemption = preemption_
        self._transitions = transitions_
        self._results = results_

    def grow(self, draft: draft_.Draft, settings: config.SchedulerConfig) -> None:
        """Who found none free, and had to take another's or give up its own, is noted in `draft.had_to_preempt`."""
        for entry in self._decoding.needing_a_page(draft.step):
            if not entry.decoding_since:
                continue  # one before it in this loop has taken its pages
            num_filled = len(entry.pages) * self._memory.block_size
            while (pages := self._memory.grow(entry)) is None:
                victim = self._preemption.for_page(entry, draft.step, settings)
                self._transitions.preempt(victim, draft, settings)
                draft.had_to_preempt = True
                if victim is entry:
                    break
            if pages is not None:
                draft.new_pages.append(step_plan.NewPages(entry.slot, pages))
                self._decoding.grown(entry)
                self._results.note_filled(entry, num_filled, draft.step - 1)
