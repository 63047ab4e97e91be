"""Who waits, in which turn. First come, first served; whoever was preempted keeps the turn of its arrival."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator

from tidemark_runtime.core import sequence


class WaitingQueue:
    """Sequences that hold no pages, in the order in which they get their next turn.

    Preempted ones stand before all that never ran: they arrived earlier, since turns are given in order of arrival.
    Leaving from the middle (abort, timeout) is lazy: the entry is skipped when it comes up.
    """

    def __init__(self) -> None:
        self._fresh: deque[sequence.Sequence] = deque()
        self._preempted: list[sequence.Sequence] = []
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[sequence.Sequence]:
        for entry in (*self._preempted, *self._fresh):
            if entry.state is sequence.State.WAITING:
                yield entry

    def add(self, entry: sequence.Sequence) -> None:
        """At the end, for a first turn."""
        self._fresh.append(entry)
        self._num_waiting += 1

    def add_preempted(self, entry: sequence.Sequence) -> None:
        """In its old turn."""
        bisect.insort(self._preempted, entry, key=lambda item: item.order)
        self._num_waiting += 1

    def head(self) -> sequence.Sequence | None:
        """Whose turn is next; None when nobody waits."""
        while self._preempted and self._preempted[0].state is not sequence.State.WAITING:
            del self._preempted[0]
        if self._preempted:
            return self._preempted[0]
        return self.oldest_fresh()

    def pop(self) -> sequence.Sequence:
        """Take the head out. The caller has looked at it with `head` just before."""
        self._num_waiting -= 1
        return self._preempted.pop(0) if self._preempted else self._fresh.popleft()

    def left(self) -> None:
        """A waiting sequence has just been marked finished."""
        self._num_waiting -= 1

    def oldest_fresh(self) -> sequence.Sequence | None:
        """Of those that never ran, the one that waits longest."""
        while self._fresh and self._fresh[0].state is not sequence.State.WAITING:
            self._fresh.popleft()
        return self._fresh[0] if self._fresh else None
