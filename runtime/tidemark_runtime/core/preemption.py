"""Who is preempted, at what price, and how it gets its pages back: by copies, or computed again.

Two ask for victims: a running sequence that needs a page (`for_page`), and one that waits for its turn and is of higher
priority (`for_turn`). What then happens to a victim is `transitions.preempt`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_runtime import config
from tidemark_runtime.core import memory, running, sequence, victims


class Preemption:
    """Judges by what copies and prompts were seen to cost, and changes nothing."""

    def __init__(self, memory_: memory.Memory, running_: running.Running, costs: victims.Costs) -> None:
        self._memory = memory_
        self._running = running_
        self._costs = costs

    def for_page(self, needy: sequence.Sequence, step: int, settings: config.SchedulerConfig) -> sequence.Sequence:
        """Of `needy`, those of lower priority, and those of its own that arrived later; `step` is the one being
        planned."""
        found = self._in_order(
            (
                entry
                for entry in self._running
                if entry.priority < needy.priority or (entry.priority == needy.priority and entry.order >= needy.order)
            ),
            step,
            settings,
        )
        return found[0].entry if found else needy

    def for_turn(
        self,
        newcomer: sequence.Sequence,
        num_pages: int,
        num_slots: int,
        joined: set[int],
        step: int,
        settings: config.SchedulerConfig,
    ) -> list[sequence.Sequence] | None:
        """Running ones of lower priority that together give `newcomer` so many pages and slots; None when all of them
        do not. Nobody whose slot is in `joined`, or who was a victim as often as is allowed."""
        found = self._in_order(
            (
                entry
                for entry in self._running
                if entry.priority < newcomer.priority
                and entry.num_preemptions < settings.max_preemptions_per_request
                and entry.slot not in joined
            ),
            step,
            settings,
        )
        chosen = victims.enough(found, num_pages, num_slots)
        return [item.entry for item in chosen] if chosen is not None else None

    def is_by_swap(self, entry: sequence.Sequence, settings: config.SchedulerConfig) -> bool:
        """Whether copying is the way back for `entry`."""
        count = self._memory.pages_for(entry.num_computed)
        if not count or not self._can_swap(count, settings):
            return False
        if settings.preemption_mode == "swap":
            return True
        return self._swap_seconds(count) <= self._costs.recompute_seconds(entry.num_computed)

    def _in_order(
        self, entries: Iterable[sequence.Sequence], step: int, settings: config.SchedulerConfig
    ) -> list[victims.Candidate]:
        """Those of `entries` that may be victims, the best one first."""
        return victims.order(
            self._candidate(entry, step, settings) for entry in entries if self._may_be_victim(entry, settings)
        )

    def _may_be_victim(self, entry: sequence.Sequence, settings: config.SchedulerConfig) -> bool:
        """Not who has all the pages it may ever need after its last preemption: it gives them back by itself."""
        if entry.state is not sequence.State.RUNNING or not (entry.decoding_since or entry.num_uncomputed):
            return False  # one whose last token is with the worker ends with it
        if entry.num_preemptions < settings.max_preemptions_per_request:
            return True
        return len(entry.pages) < self._memory.pages_for(entry.num_max_tokens)

    def _candidate(self, entry: sequence.Sequence, step: int, settings: config.SchedulerConfig) -> victims.Candidate:
        """`entry` as a victim in `step`."""
        num_computed = self._running.decoding.num_computed(entry, step - 1)
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
