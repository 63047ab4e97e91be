"""Who may be preempted, at what price, and how it gets its pages back: by copies, or computed again."""

from __future__ import annotations

from tidemark_runtime import config
from tidemark_runtime.core import decoding, memory, sequence, victims


class Preemption:
    """Judges by what copies and prompts were seen to cost."""

    def __init__(self, memory_: memory.Memory, costs: victims.Costs, decoding_: decoding.DecodeSet) -> None:
        self._memory = memory_
        self._costs = costs
        self._decoding = decoding_

    def is_by_swap(self, entry: sequence.Sequence, settings: config.SchedulerConfig) -> bool:
        """Whether copying is the way back for `entry`."""
        count = self._memory.pages_for(entry.num_computed)
        if not count or not self._can_swap(count, settings):
            return False
        if settings.preemption_mode == "swap":
            return True
        return self._swap_seconds(count) <= self._costs.recompute_seconds(entry.num_computed)

    def may_be_victim(self, entry: sequence.Sequence, settings: config.SchedulerConfig) -> bool:
        """Not who has all the pages it may ever need after its last preemption: it gives them back by itself."""
        if entry.state is not sequence.State.RUNNING or not (entry.decoding_since or entry.num_uncomputed):
            return False  # one whose last token is with the worker ends with it
        if entry.num_preemptions < settings.max_preemptions_per_request:
            return True
        return len(entry.pages) < self._memory.pages_for(entry.num_max_tokens)

    def candidate(self, entry: sequence.Sequence, step: int, settings: config.SchedulerConfig) -> victims.Candidate:
        """`entry` as a victim in the step after `step`."""
        num_computed = self._decoding.num_computed(entry, step)
        rebuild = self._costs.recompute_seconds(num_computed)
        num_copies = self._memory.pages_for(num_computed)
        if self._can_swap(num_copies, settings):
            rebuild = min(rebuild, self._swap_seconds(num_copies))
        to_go = entry.num_max_tokens - num_computed
        return victims.Candidate(entry, self._memory.num_freed_by(entry), rebuild, to_go)

    def _swap_seconds(self, count: int) -> float:
        return self._costs.swap_seconds(count, self._memory.num_first_copies(count))

    def _can_swap(self, count: int, settings: config.SchedulerConfig) -> bool:
        host = self._memory.host
        return settings.preemption_mode != "recompute" and host is not None and host.num_free >= count
