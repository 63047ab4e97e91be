"""Whose prompts a step computes, and how many tokens of each: higher priorities first, and within one the slow lane
gets the share it is guaranteed. What is computed again after a preemption is shared in the same way."""

from __future__ import annotations

import itertools
import math

from tidemark_runtime import config
from tidemark_runtime.core import budget as budget_
from tidemark_runtime.core import counters, running, sequence
from tidemark_runtime.core import draft as draft_


class Prompts:
    """Of those that run and have more than one token to compute."""

    def __init__(
        self, running_: running.Running, budget: budget_.Budget, block_size: int, counters_: counters.Counters
    ) -> None:
        self._running = running_
        self._budget = budget
        self._block_size = block_size
        self._counters = counters_

    def compute(self, draft: draft_.Draft, budget: int, settings: config.SchedulerConfig) -> None:
        """Chunks of at most `budget` tokens together. Who has no other token to compute prompts no more."""
        share = settings.long_request_share
        for _, group in itertools.groupby(self._running.prompting, key=lambda entry: entry.priority):
            entries = list(group)
            express = [entry for entry in entries if entry.lane is sequence.Lane.EXPRESS]
            slow = [entry for entry in entries if entry.lane is sequence.Lane.SLOW]
            kept = min(math.ceil(share * budget), sum(entry.num_uncomputed for entry in slow))
            # What is computed whatever the target time says: a page's, shared in the same way.
            least = max(0, min(budget, self._block_size) - draft.num_prompt_tokens)
            least_of_slow = min(math.ceil(share * least), kept)
            budget -= self._chunks(draft, express, budget - kept, least - least_of_slow, settings)
            budget -= self._chunks(draft, slow, budget, least_of_slow if draft.num_prompt_tokens else least, settings)
        for entry in draft.chunk_samples:
            self._running.prompting.remove(entry)

    def _chunks(
        self,
        draft: draft_.Draft,
        entries: list[sequence.Sequence],
        budget: int,
        least: int,
        settings: config.SchedulerConfig,
    ) -> int:
        """For `entries` in turn, of at most `budget` tokens together, `least` even where the step takes longer than its
        target; how many it became."""
        left = budget
        for entry in entries:
            if left <= 0:
                break
            in_time = self._budget.prompt_tokens_in_time(draft, entry.num_computed, settings)
            count = min(entry.num_uncomputed, left, max(in_time, least - (budget - left)))
            if count > 0:
                computed = min(entry.num_computed, entry.num_prompt_tokens)
                draft.add_chunk(entry, count)
                self._counters.prompt_tokens += min(entry.num_computed, entry.num_prompt_tokens) - computed
                left -= count
        return budget - left
