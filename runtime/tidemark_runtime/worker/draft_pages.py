"""How far a draft model has come in each page, and what it has to compute before it can guess.

Its KV lies in a slab of its own, under the page numbers of the first model's. A claim, that so many rows of a page hold
its KV, is made only after what computes them was done, or is queued on the device: a step that fails before leaves no
claim. What stays claimed of a page that nobody holds any more does no harm: whoever gets the page computes its rows
from the first on, and the claim ends there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import slots

CATCH_UP_TOKENS = 512
"""Most tokens that one step catches up, of all sequences: who lags further behind gets no guesses in it."""


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [start, start + count) of `slot`."""

    slot: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Work:
    """Before the guesses of a step."""

    ready: tuple[step_plan.Verification, ...]
    """Whose missing tokens fit into this step."""
    late: tuple[Span, ...]
    """Of the others, as many as fit."""


class DraftPages:
    """Of one draft model. `tables` are the first model's."""

    def __init__(self, tables: slots.SlotTables, num_pages: int, num_host_pages: int) -> None:
        self._tables = tables
        self._size = tables.block_size
        self._filled = np.zeros(num_pages, dtype=np.int64)
        """Rows of each page that hold its KV, from the first on."""
        self._host_filled = np.zeros(num_host_pages, dtype=np.int64)

    def copied(self, plan: step_plan.StepPlan) -> None:
        """Its pages went where those of the first model go."""
        for copy in plan.swaps_out:
            self._host_filled[copy.host_page] = self._filled[copy.page]
        for copy in plan.swaps_in:
            self._filled[copy.page] = self._host_filled[copy.host_page]

    def work(self, verifications: Sequence[step_plan.Verification]) -> Work:
        """What a step can catch up of their texts, but for the last token."""
        left = CATCH_UP_TOKENS
        ready: list[step_plan.Verification] = []
        late: list[Span] = []
        for each in verifications:
            end = int(self._tables.lengths[each.slot]) - 1
            start = self._num_computed(each.slot, end)
            if end - start <= left:
                ready.append(each)
                left -= end - start
            elif left:
                late.append(Span(each.slot, start, left))
                left = 0
        return Work(tuple(ready), tuple(late))

    def first(self, ready: Iterable[step_plan.Verification]) -> list[Span]:
        """What is missing, and the last known token."""
        spans = []
        for each in ready:
            end = int(self._tables.lengths[each.slot])
            start = self._num_computed(each.slot, end - 1)
            spans.append(Span(each.slot, start, end - start))
        return spans

    def next(self, asked: Iterable[step_plan.Verification], num_guesses: int) -> list[Span]:
        """The newest guess of each, which has so many."""
        return [Span(each.slot, int(self._tables.lengths[each.slot]) + num_guesses - 1, 1) for each in asked]

    def fill(self, spans: Iterable[Span]) -> None:
        """These are computed, and all before them."""
        for span in spans:
            end = span.start + span.count
            for index in range(span.start // self._size, -(-end // self._size)):
                self._filled[self._tables.pages[span.slot, index]] = min(self._size, end - index * self._size)

    def follow(self, plan: step_plan.StepPlan) -> list[Span]:
        """Notes what the first model computes of `plan` and this one does not, verifications left out. Returns what it
        should compute now, and then `fill`: the chunks before which nothing is missing."""
        if plan.decodes:
            self._decoded(np.array(plan.decodes, dtype=np.int64))
        followed = []
        for chunk in plan.chunks:
            if self._num_computed(chunk.slot, chunk.start) == chunk.start:
                followed.append(Span(chunk.slot, chunk.start, chunk.count))
            # Whatever becomes of this step: rows that the first model writes are another text's here until computed.
            self._keep(chunk.slot, chunk.start, chunk.start, chunk.start + chunk.count)
        return followed

    def settle(self, verifications: Sequence[step_plan.Verification], before: Sequence[int]) -> None:
        """After the check, with the tables as it left them: what was computed of wrong guesses is no KV of the text.
        `before`: the tokens that each verification's slot had."""
        for each, length in zip(verifications, before, strict=True):
            # Its inputs were the tokens up to the last guess but one, and right as far as they became the text.
            num_right = int(self._tables.lengths[each.slot]) - 1
            self._keep(each.slot, min(num_right, length + each.count - 1), length - 1, length + each.count)

    def _num_computed(self, slot: int, most: int) -> int:
        """Tokens of `slot`, of the first `most`, whose KV is there."""
        filled = self._filled[self._tables.pages[slot, : -(-most // self._size)]]
        behind = np.flatnonzero(filled < self._size)
        if behind.size == 0:
            return most
        first = int(behind[0])
        return min(most, first * self._size + int(filled[first]))

    def _keep(self, slot: int, end: int, first: int, last: int) -> None:
        """Of the tokens [first, last) of `slot`, which the first model computes, only those before `end` are there."""
        for index in range(first // self._size, -(-last // self._size)):
            page = self._tables.pages[slot, index]
            self._filled[page] = min(int(self._filled[page]), max(0, end - index * self._size))

    def _decoded(self, decoded: slots.Int64) -> None:
        """The first model computes the last known token of these slots, and this one does not."""
        last = self._tables.lengths[decoded] - 1
        pages = self._tables.pages[decoded, last // self._size]
        self._filled[pages] = np.minimum(self._filled[pages], last % self._size)


def rows(spans: Sequence[Span], *, samples: bool) -> slots.Rows:
    """As columns, one chunk a span."""
    columns = np.array([(span.slot, span.start, span.count) for span in spans], dtype=np.int64).reshape(-1, 3)
    return slots.Rows(columns[:, 0], columns[:, 1], columns[:, 2], np.full(len(spans), samples, dtype=np.bool_))
