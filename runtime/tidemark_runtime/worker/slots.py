"""What the worker keeps of each running sequence, as rows of tables: tokens, pages, how to sample.

Tables are numpy arrays of fixed size, so that a step is built from them by indexing alone: no object per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemark_runtime.core import sampling, step_plan

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """The chunks of a plan as columns, [num_chunks] each."""

    slots: Int64
    starts: Int64
    counts: Int64
    samples: npt.NDArray[np.bool_]


class SlotTables:
    """Rows are slots, 0 <= slot < max_num_seqs. Only `apply` and `append` change them."""

    def __init__(self, max_num_seqs: int, max_context_tokens: int, block_size: int) -> None:
        self.block_size = block_size
        max_pages = -(-max_context_tokens // block_size)
        self.tokens: Int32 = np.zeros((max_num_seqs, max_context_tokens + 1), dtype=np.int32)
        """Token ids known so far, `lengths` of them; one more than the context, for a token that is never computed."""
        self.lengths: Int64 = np.zeros(max_num_seqs, dtype=np.int64)
        self.pages: Int32 = np.zeros((max_num_seqs, max_pages), dtype=np.int32)
        """Pages in the order of their tokens, `num_pages` of them; what follows is 0."""
        self.num_pages: Int64 = np.zeros(max_num_seqs, dtype=np.int64)
        self.num_prompt_tokens: Int64 = np.zeros(max_num_seqs, dtype=np.int64)
        self.params: list[sampling.SamplingParams | None] = [None] * max_num_seqs
        self.is_plain_greedy: npt.NDArray[np.bool_] = np.zeros(max_num_seqs, dtype=np.bool_)
        """True where the most likely token is all that is asked for: no penalty, no bias, no log-probabilities."""

    def apply(self, plan: step_plan.StepPlan) -> Rows:
        """Take in the plan's joins and new pages; returns its chunks as columns."""
        for join in plan.joins:
            self._join(join)
        num_chunks = len(plan.chunks)
        columns = np.array(
            [(chunk.slot, chunk.start, chunk.count, chunk.samples) for chunk in plan.chunks], dtype=np.int64
        ).reshape(num_chunks, 4)
        for chunk in plan.chunks:
            if chunk.new_pages:
                self._append_pages(chunk.slot, chunk.new_pages)
        rows = Rows(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3].astype(np.bool_))
        self._check(rows)
        return rows

    def append(self, slots: Int64, token_ids: Int64) -> None:
        """The tokens just sampled become the last known ones of their slots."""
        self.tokens[slots, self.lengths[slots]] = token_ids
        self.lengths[slots] += 1

    def params_of(self, slot: int) -> sampling.SamplingParams:
        params = self.params[slot]
        if params is None:
            raise ValueError(f"slot {slot} holds no sequence")
        return params

    def _join(self, join: step_plan.Join) -> None:
        slot, length = join.slot, len(join.token_ids)
        if length > self.tokens.shape[1]:
            raise ValueError(f"slot {slot}: {length} tokens, but a row holds {self.tokens.shape[1]}")
        self.tokens[slot, :length] = join.token_ids
        self.lengths[slot] = length
        self.pages[slot, : self.num_pages[slot]] = 0
        self.num_pages[slot] = 0
        self.num_prompt_tokens[slot] = join.num_prompt_tokens
        self.params[slot] = join.params
        self.is_plain_greedy[slot] = (
            join.params.is_greedy
            and not join.params.has_penalties
            and not join.params.logit_bias
            and join.params.num_logprobs is None
        )

    def _append_pages(self, slot: int, new_pages: tuple[int, ...]) -> None:
        first = int(self.num_pages[slot])
        last = first + len(new_pages)
        if last > self.pages.shape[1]:
            raise ValueError(f"slot {slot}: {last} pages, but a sequence has at most {self.pages.shape[1]}")
        self.pages[slot, first:last] = new_pages
        self.num_pages[slot] = last

    def _check(self, rows: Rows) -> None:
        """A plan that contradicts the tables is a mistake of ours: better to stop than to read another's pages."""
        ends = rows.starts + rows.counts
        wrong = (ends > self.lengths[rows.slots]) | (ends > self.num_pages[rows.slots] * self.block_size)
        wrong |= rows.samples & (ends != self.lengths[rows.slots])
        wrong |= rows.counts < 1
        if wrong.any():
            index = int(np.flatnonzero(wrong)[0])
            slot = int(rows.slots[index])
            raise ValueError(
                f"slot {slot}: chunk [{rows.starts[index]}, {ends[index]}) contradicts its {self.lengths[slot]} tokens "
                f"and {self.num_pages[slot]} pages of {self.block_size}"
            )
