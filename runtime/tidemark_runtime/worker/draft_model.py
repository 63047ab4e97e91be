"""A second, small model of the same tokenizer that guesses what the first one will say.

Its KV lies in a slab of its own with as many pages, under the same numbers: page tables, shared prefixes and copies to
the swap space hold for both, and the scheduler knows of one set of pages only. What it has computed may lag behind: a
decode without guesses is not followed, which costs nothing where guessing is off. How many rows of each page are
computed is kept (`draft_pages`), and what is missing is caught up before the next guess.

Guesses are sampled as the text is: by the same parameters and the same number for (seed, position), only from the small
model's distribution. Where the two models agree the same place in [0, 1) falls on the same token, also at high
temperatures. Whatever it guesses, the text stays what it is (`verifying`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tidemark_runtime import errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.worker import batch, draft_pages, sampler, slots, swap


@dataclass(frozen=True, slots=True)
class Parts:
    """What was loaded of it."""

    model: batches.Model
    memory: batches.KVMemory
    """As many pages as the first model has, of the same size in tokens."""
    num_host_pages: int
    """As many as the swap space has."""


def named(told: str) -> str:
    """What is told of logits that are no numbers, where they are a draft model's: nobody should look at the model."""
    return f"the draft model: {told}; or name another speculative.draftModel, or choose the method ngram"


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
        self._pages = draft_pages.DraftPages(tables, parts.memory.slab.shape[0], parts.num_host_pages)

    @property
    def spec(self) -> model_spec.ModelSpec:
        return self._model.spec

    def copy(self, plan: step_plan.StepPlan) -> None:
        """Pages go where those of the first model go."""
        self._swap_space.copy_out(plan.swaps_out)
        self._swap_space.copy_in(plan.swaps_in)
        self._pages.copied(plan)

    def guess(self, verifications: Sequence[step_plan.Verification]) -> tuple[step_plan.Verification, ...]:
        """The same with guesses, none where the model lags too far behind. After `SlotTables.take_in`."""
        if not verifications:
            return ()
        work = self._pages.work(verifications)
        if work.late:
            self._compute(work.late, samples=False)
        guesses: dict[int, list[int]] = {each.slot: [] for each in verifications}
        asked, spans = work.ready, self._pages.first(work.ready)
        while asked:
            logits = self._logits(self._compute(spans, samples=True))
            for row, each in enumerate(asked):
                found = guesses[each.slot]
                length = int(self._tables.lengths[each.slot]) + len(found)
                token = self._token(logits[row], each.slot, length)
                self._tables.tokens[each.slot, length] = token
                found.append(token)
            num_guesses = len(guesses[asked[0].slot])
            asked = tuple(each for each in asked if num_guesses < each.count)
            spans = self._pages.next(asked, num_guesses)
        return tuple(
            step_plan.Verification(each.slot, len(guesses[each.slot]), tuple(guesses[each.slot]))
            for each in verifications
        )

    def follow(self, plan: step_plan.StepPlan) -> None:
        """Compute what the plan's chunks compute, where nothing is missing before it; note what decodes leave out."""
        followed = self._pages.follow(plan)
        if followed:
            self._compute(followed, samples=False)

    def settle(self, verifications: Sequence[step_plan.Verification], before: Sequence[int]) -> None:
        """After the check: what was computed of wrong guesses is no KV of the text. `before`: the tokens that each
        verification's slot had."""
        self._pages.settle(verifications, before)

    # ---- details -----------------------------------------------------------------------------------------------

    def _compute(self, spans: Sequence[draft_pages.Span], *, samples: bool) -> torch.Tensor:
        """Logits float32 [S, own vocab] after each span, or of none. Only what was computed counts as there: memory may
        run out in the middle."""
        made = batch.build(self._tables, draft_pages.rows(spans, samples=samples))
        # Only the first model's padding lies beyond this one's tokens: whatever stands there instead, guesses differ.
        made.token_ids.clamp_(max=self._own_vocab - 1)
        logits = self._model.forward(made, self._memory)
        self._pages.fill(spans)
        return logits

    def _token(self, row: np.ndarray[tuple[int], np.dtype[np.float32]], slot: int, length: int) -> int:
        """The guess for position `length`. Raises EngineError where this model computed no number, and says that it was
        this one: the text does not depend on it."""
        try:
            return sampler.sample_at(row, self._tables, slot, length)[0]
        except errors.EngineError as error:
            raise errors.EngineError(named(str(error))) from error

    def _logits(self, logits: torch.Tensor) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """float32 [S, vocab]; tokens that this model does not know are impossible."""
        own = logits.numpy()
        if self._own_vocab >= self._vocab:
            return np.ascontiguousarray(own[:, : self._vocab])
        padded = np.full((own.shape[0], self._vocab), -np.inf, dtype=np.float32)
        padded[:, : self._own_vocab] = own
        return padded
