"""What becomes of a sequence: one method for each arrow between the states of `sequence.State`.

    add        -> WAITING
    start      WAITING -> RUNNING, or RESTORING as long as its pages are copied back
    join       it takes part in steps from now on; RESTORING -> RUNNING
    preempt    RUNNING -> WAITING, for its old turn
    finish     any -> FINISHED
    give_up    WAITING -> WAITING: what it waited for will not come

Who decides that an arrow is taken: `starting`, `growth`, `restoring`, and for `add` and `finish` the engine. Everybody
who counts those that wait or run is told here and nowhere else, so that no count can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_runtime import config
from tidemark_runtime.core import (
    admission,
    counters,
    memory,
    outlook,
    overload,
    preemption,
    running,
    sequence,
    waiting_queue,
)
from tidemark_runtime.core import draft as draft_

_LEAST_TURNS = 0.01


class Transitions:
    """Owns who waits with pages in the swap space, and who had a first turn that nobody was told of."""

    def __init__(
        self,
        memory_: memory.Memory,
        running_: running.Running,
        waiting: waiting_queue.WaitingQueue,
        *,
        losable: overload.Losable,
        outlook_: outlook.Outlook,
        preemption_: preemption.Preemption,
        counters_: counters.Counters,
    ) -> None:
        self._memory = memory_
        self._running = running_
        self._waiting = waiting
        self._losable = losable
        self._outlook = outlook_
        self._preemption = preemption_
        self._counters = counters_
        self._parked: dict[str, sequence.Sequence] = {}
        """Waiting ones with pages in the swap space."""
        self._first_turns: list[sequence.Sequence] = []

    @property
    def parked(self) -> list[sequence.Sequence]:
        """Waiting ones with pages in the swap space."""
        return list(self._parked.values())

    def take_first_turns(self) -> list[sequence.Sequence]:
        """Those that had their first turn since the last call."""
        taken, self._first_turns = self._first_turns, []
        return taken

    def add(self, entry: sequence.Sequence, settings: config.SchedulerConfig) -> None:
        """`entry`, whose lane is known, waits for its first turn."""
        self._outlook.waiting.add(entry)
        self._losable.add(entry)
        self._waiting.add(entry, by_tenant=settings.fairness == "apiKey")

    def start(self, turn: admission.Turn, draft: draft_.Draft, settings: config.SchedulerConfig) -> None:
        """Whose turn it is gets slot and pages. Its pages in the swap space, if any, are copied from this very step on
        (`restoring`), once everybody has started."""
        entry = turn.entry
        self._waiting.taken(entry, _turns_of(entry.lane, settings))
        self._outlook.waiting.remove(entry)
        self._losable.discard(entry)
        self._memory.take(entry, turn.need)
        if entry.started:
            self._counters.resumes["swap" if entry.host_pages else "recompute"] += 1
        else:
            self._first_turns.append(entry)
            entry.num_cached_tokens = entry.num_computed
        entry.started = True
        entry.first_step = draft.step
        self._running.add(entry)
        if entry.host_pages:
            self._parked.pop(entry.id)
            self._running.restore(entry)
        else:
            self.join(entry, draft)

    def join(self, entry: sequence.Sequence, draft: draft_.Draft) -> None:
        """All that `entry` had computed is in its pages: it takes part from this step on."""
        draft.join(entry)
        self._running.join(entry, draft.step)

    def preempt(self, entry: sequence.Sequence, draft: draft_.Draft, settings: config.SchedulerConfig) -> None:
        """Take pages and slot from `entry`, which takes no part in the step being planned."""
        self._running.leave(entry, draft.step - 1)
        swaps = self._preemption.is_by_swap(entry, settings)
        if swaps:
            copies = self._memory.swap_out(entry)
            draft.swaps_out.extend(copies)
            self._counters.swapped_out_pages += len(copies)
            self._parked[entry.id] = entry
        else:
            self._memory.release(entry)
            entry.num_computed = 0
        entry.state = sequence.State.WAITING
        entry.num_preemptions += 1
        self._counters.preemptions["swap" if swaps else "recompute"] += 1
        self._waiting.add_preempted(entry)
        self._outlook.waiting.add(entry)

    def finish(self, entry: sequence.Sequence, last_step: int) -> None:
        """Take everything from `entry`, wherever it is; the last step it takes part in is `last_step`. Idempotent."""
        if entry.started and entry.state is not sequence.State.FINISHED:
            self._outlook.use.note(entry.num_known - entry.num_prompt_tokens, entry.params.max_tokens)
        if entry.state is sequence.State.WAITING:
            self._waiting.left(entry)
            self._outlook.waiting.remove(entry)
            self._losable.discard(entry)
            self._parked.pop(entry.id, None)
        elif entry.state is not sequence.State.FINISHED:
            self._running.leave(entry, last_step)
            self._memory.release(entry)
        self._memory.forget_host(entry)
        entry.state = sequence.State.FINISHED

    def give_up(self, sampled: Iterable[sequence.Sequence]) -> None:
        """Steps that would have sampled a token of each of `sampled` have come to nothing. Who waits goes on waiting,
        and computes anew what it has in the swap space: copies may be among what was lost."""
        over = (sequence.State.RUNNING, sequence.State.FINISHED)
        # Who was preempted in one of these steps waits for a token of it, which will never come.
        for entry in dict.fromkeys([*self.parked, *(entry for entry in sampled if entry.state not in over)]):
            self._outlook.waiting.remove(entry)
            if entry.id in self._parked:
                self._memory.forget_host(entry)
                entry.num_computed = 0
            entry.num_sampled = len(entry.token_ids) - entry.num_prompt_tokens
            self._outlook.waiting.add(entry)
        self._parked.clear()


def _turns_of(lane: sequence.Lane, settings: config.SchedulerConfig) -> float:
    """The share of turns that `lane` is to have; one without a guarantee still comes to its turn when it ages."""
    share = settings.long_request_share
    return max(_LEAST_TURNS, share if lane is sequence.Lane.SLOW else 1.0 - share)
