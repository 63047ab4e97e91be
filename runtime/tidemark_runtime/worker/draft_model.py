"""A second, small model of the same tokenizer that guesses what the first one will say.

Its KV lies in a slab of its own with as many pages, under the same numbers: page tables, shared prefixes and copies to
the swap space hold for both, and the scheduler knows of one set of pages only. What it has computed may lag behind: a
decode without guesses is not followed, which costs nothing where guessing is off. How many rows of each page are
computed is kept (`_filled`), and what is missing is caught up before the next guess.

Guesses are sampled as the text is: by the same parameters and the same number for (seed, position), only from the small
model's distribution. Where the two models agree the same place in [0, 1) falls on the same token, also at high
temperatures. Whatever it guesses, the text stays what it is (`verifying`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tidemark_runtime.core import step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.worker import batch, sampler, slots, swap

CATCH_UP_TOKENS = 512
"""Most tokens that one step catches up, of all sequences: who lags further behind gets no guesses in it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What was loaded of it."""

    model: batches.Model
    memory: batches.KVMemory
    """As many pages as the first model has, of the same size in tokens."""
    num_host_pages: int
    """As many as the swap space has."""


class DraftModel:
    """Of one worker; called in this order in each step: `copy`, `guess`, `follow`, `settle`."""

    def __init__(self, parts: Parts, tables: slots.SlotTables, vocab: int) -> None:
        """`vocab`: width of the first model's logits. Raises CapacityError where the system refuses the swap space."""
        self._model = parts.model
        self._memory = parts.memory
        self._swap_space = swap.SwapSpace(parts.memory.slab, parts.num_host_pages)
        self._tables = tables
        self._vocab = vocab
        self._own_vocab = parts.model.spec.vocab_size
        self._filled = np.zeros(parts.memory.slab.shape[0], dtype=np.int64)
        """Rows of each page that hold its KV, from the first on."""
        self._host_filled = np.zeros(parts.num_host_pages, dtype=np.int64)

    def copy(self, plan: step_plan.StepPlan) -> None:
        """Pages go where those of the first model go."""
        self._swap_space.copy_out(plan.swaps_out)
        for copy in plan.swaps_out:
            self._host_filled[copy.host_page] = self._filled[copy.page]
        self._swap_space.copy_in(plan.swaps_in)
        for copy in plan.swaps_in:
            self._filled[copy.page] = self._host_filled[copy.host_page]

    def guess(self, verifications: Sequence[step_plan.Verification]) -> tuple[step_plan.Verification, ...]:
        """The same with guesses, none where the model lags too far behind. After `SlotTables.take_in`."""
        if not verifications:
            return ()
        ready = self._caught_up(verifications)
        guesses: dict[int, list[int]] = {each.slot: [] for each in verifications}
        asked, rows = ready, self._first_rows(ready)
        while asked:
            logits = self._logits(rows)
            for row, each in enumerate(asked):
                found = guesses[each.slot]
                length = int(self._tables.lengths[each.slot]) + len(found)
                token, _ = sampler.sample_at(logits[row], self._tables, each.slot, length)
                self._tables.tokens[each.slot, length] = token
                found.append(token)
            asked = [each for each in asked if len(guesses[each.slot]) < each.count]
            rows = self._next_rows(asked, guesses)
        return tuple(
            step_plan.Verification(each.slot, len(guesses[each.slot]), tuple(guesses[each.slot]))
            for each in verifications
        )

    def follow(self, plan: step_plan.StepPlan) -> None:
        """Compute what the plan's chunks compute, where nothing is missing before it; note what decodes leave out."""
        if plan.decodes:
            self._decoded(np.array(plan.decodes, dtype=np.int64))
        followed = []
        for chunk in plan.chunks:
            if self._num_computed(chunk.slot, chunk.start) == chunk.start:
                followed.append(chunk)
            else:
                self._keep(chunk.slot, chunk.start, chunk.start, chunk.start + chunk.count)
        if followed:
            self._forward(_rows([(chunk.slot, chunk.start, chunk.count) for chunk in followed], samples=False))
            for chunk in followed:
                self._fill(chunk.slot, chunk.start, chunk.start + chunk.count)

    def settle(self, verifications: Sequence[step_plan.Verification], before: Sequence[int]) -> None:
        """After the check: what was computed of wrong guesses is no KV of the text. `before`: the tokens that each
        verification's slot had."""
        for each, length in zip(verifications, before, strict=True):
            # Its inputs were the tokens up to the last guess but one, and right as far as they became the text.
            num_right = int(self._tables.lengths[each.slot]) - 1
            self._keep(each.slot, min(num_right, length + each.count - 1), length - 1, length + each.count)

    # ---- details -----------------------------------------------------------------------------------------------

    def _caught_up(self, verifications: Sequence[step_plan.Verification]) -> list[step_plan.Verification]:
        """Those whose missing tokens fit into this step; of the others as many are computed as fit."""
        left = CATCH_UP_TOKENS
        ready: list[step_plan.Verification] = []
        late: list[tuple[int, int, int]] = []
        for each in verifications:
            end = int(self._tables.lengths[each.slot]) - 1
            start = self._num_computed(each.slot, end)
            if end - start <= left:
                ready.append(each)
                left -= end - start
            elif left:
                late.append((each.slot, start, left))
                left = 0
        if late:
            self._forward(_rows(late, samples=False))
            for slot, start, count in late:
                self._fill(slot, start, start + count)
        return ready

    def _first_rows(self, ready: Sequence[step_plan.Verification]) -> slots.Rows:
        """What is missing, and the last known token."""
        spans = []
        for each in ready:
            end = int(self._tables.lengths[each.slot])
            start = self._num_computed(each.slot, end - 1)
            spans.append((each.slot, start, end - start))
            self._fill(each.slot, start, end)
        return _rows(spans, samples=True)

    def _next_rows(self, asked: Sequence[step_plan.Verification], guesses: dict[int, list[int]]) -> slots.Rows:
        """The newest guess of each."""
        spans = []
        for each in asked:
            position = int(self._tables.lengths[each.slot]) + len(guesses[each.slot]) - 1
            spans.append((each.slot, position, 1))
            self._fill(each.slot, position, position + 1)
        return _rows(spans, samples=True)

    def _logits(self, rows: slots.Rows) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """float32 [S, vocab]; tokens that this model does not know are impossible."""
        own = self._forward(rows).numpy()
        if self._own_vocab >= self._vocab:
            return np.ascontiguousarray(own[:, : self._vocab])
        padded = np.full((own.shape[0], self._vocab), -np.inf, dtype=np.float32)
        padded[:, : self._own_vocab] = own
        return padded

    def _forward(self, rows: slots.Rows) -> torch.Tensor:
        made = batch.build(self._tables, rows)
        # Only the first model's padding lies beyond this one's tokens: whatever stands there instead, guesses differ.
        made.token_ids.clamp_(max=self._own_vocab - 1)
        return self._model.forward(made, self._memory)

    def _num_computed(self, slot: int, most: int) -> int:
        """Tokens of `slot`, of the first `most`, whose KV is there."""
        size = self._memory.block_size
        filled = self._filled[self._tables.pages[slot, : -(-most // size)]]
        behind = np.flatnonzero(filled < size)
        if behind.size == 0:
            return most
        first = int(behind[0])
        return min(most, first * size + int(filled[first]))

    def _fill(self, slot: int, start: int, end: int) -> None:
        """Tokens [start, end) of `slot` are computed, and all before them."""
        size = self._memory.block_size
        for index in range(start // size, -(-end // size)):
            self._filled[self._tables.pages[slot, index]] = min(size, end - index * size)

    def _keep(self, slot: int, end: int, first: int, last: int) -> None:
        """Of the tokens [first, last) of `slot`, which the first model computes, only those before `end` are there."""
        size = self._memory.block_size
        for index in range(first // size, -(-last // size)):
            page = self._tables.pages[slot, index]
            self._filled[page] = min(int(self._filled[page]), max(0, end - index * size))

    def _decoded(self, decoded: slots.Int64) -> None:
        """The first model computes the last known token of these slots, and this one does not."""
        size = self._memory.block_size
        last = self._tables.lengths[decoded] - 1
        pages = self._tables.pages[decoded, last // size]
        self._filled[pages] = np.minimum(self._filled[pages], last % size)


def _rows(spans: Sequence[tuple[int, int, int]], *, samples: bool) -> slots.Rows:
    columns = np.array(spans, dtype=np.int64).reshape(-1, 3)
    return slots.Rows(columns[:, 0], columns[:, 1], columns[:, 2], np.full(len(spans), samples, dtype=np.bool_))
