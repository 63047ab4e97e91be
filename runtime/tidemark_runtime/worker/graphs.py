"""Recorded decode steps, one for each of some sizes of the batch: a step of 33 runs the record of 48, 15 rows empty.

A step of a large model is some hundred kernels; launching them one by one takes the host longer than the device needs
for a small batch. A record is launched at once. It always works on the same memory: the step's tables are copied into
`Recorded.inputs`, what it computes is read from `Recorded.outputs`.

What a record's rows beyond the batch do is the business of whoever makes the step: here, they have page -1, context 0
and the spare slot, so that they write nothing that anybody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemark_runtime.worker import accelerators

_FINE_FROM = 16
"""From here on there is a size half way to the next power of two: at most a third of the rows are empty."""

T = TypeVar("T")


def sizes(max_num_seqs: int) -> tuple[int, ...]:
    """1, 2, 4, 8, 16, 24, 32, 48, 64, 96, ... and `max_num_seqs`."""
    found, size = [], 1
    while size < max_num_seqs:
        found.append(size)
        if size >= _FINE_FROM and size + size // 2 < max_num_seqs:
            found.append(size + size // 2)
        size *= 2
    return (*found, max_num_seqs)


def size_for(count: int, among: Sequence[int]) -> int | None:
    """The smallest of `among`, ascending, that `count` fits into."""
    return next((size for size in among if count <= size), None)


@dataclass(frozen=True, slots=True)
class Recorded(Generic[T]):
    """One size."""

    size: int
    graph: accelerators.Graph
    step: T
    """What it reads and writes, as whoever recorded it knows it."""


class Graphs(Generic[T]):
    """All sizes that were recorded."""

    def __init__(self, recorded: Sequence[Recorded[T]], num_bytes: int, seconds: float) -> None:
        self._by_size = {each.size: each for each in recorded}
        self.sizes = tuple(sorted(self._by_size))
        self.num_bytes = num_bytes
        """Of the device, by which recording them made this process grow."""
        self.seconds = seconds
        """That recording took."""

    def find(self, num_rows: int) -> Recorded[T] | None:
        """The smallest record that so many decodes fit into."""
        size = size_for(num_rows, self.sizes)
        return None if size is None else self._by_size[size]


def record(
    accelerator: accelerators.Accelerator,
    wanted: Sequence[int],
    prepare: Callable[[int], tuple[T, Callable[[], None]]],
    now: Callable[[], float],
    beside: Recorded[T] | None = None,
) -> Graphs[T]:
    """Record the sizes in `wanted`, the largest first: smaller ones then find its memory.

    `prepare(size)` returns the memory of a step and what runs it; that is run once as it is, because what happens at
    the first time (kernels are compiled, libraries allocate) cannot be recorded, and then once more to be recorded.
    `beside`: another record, whose memory is used, because it is never replayed at the same time.
    """
    started, before = now(), accelerator.reserved_bytes()
    found: list[Recorded[T]] = []
    for size in sorted(wanted, reverse=True):
        step, run = prepare(size)
        run()
        accelerator.give_back()
        shared = found[0] if found else beside
        found.append(Recorded(size, accelerator.record(run, None if shared is None else shared.graph), step))
    return Graphs(found, max(0, accelerator.reserved_bytes() - before), now() - started)
