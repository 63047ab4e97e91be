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
    """What a plan computes as columns, [num_sequences] each: its decodes, then its chunks, then its verifications."""

    slots: Int64
    starts: Int64
    counts: Int64
    samples: npt.NDArray[np.bool_]
    guesses: Int64 | None = None
    """Of a verification: tokens at its end that are guessed, whose rows and the one before are all sampled; -1 for the
    others. None without verifications."""

    @property
    def plain(self) -> npt.NDArray[np.bool_]:
        """Which of them sample one token: all that sample and are no verifications."""
        return self.samples if self.guesses is None else self.samples & (self.guesses < 0)


class SlotTables:
    """Rows are slots, 0 <= slot < max_num_seqs. Changed by their own methods only."""

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
        self._decodes: tuple[int, ...] | None = None
        """Of the newest plan."""
        self._decode_columns: tuple[Int64, Int64, npt.NDArray[np.bool_]]
        """Made of `_decodes`: slots, counts, samples."""

    @property
    def num_bytes(self) -> int:
        """Of tokens and pages, as mapped."""
        return self.tokens.nbytes + self.pages.nbytes

    def apply(self, plan: step_plan.StepPlan) -> Rows:
        """Take in the plan's joins and new pages; returns what it computes as columns.

        Raises ValueError for a plan that contradicts what the tables hold.
        """
        self.take_in(plan)
        return self.rows(plan, plan.verifications)

    def take_in(self, plan: step_plan.StepPlan) -> None:
        """The first half of `apply`: joins and new pages. Raises as it does."""
        for join in plan.joins:
            self._join(join)
        for added in plan.new_pages:
            self._append_pages(added.slot, added.pages)

    def rows(self, plan: step_plan.StepPlan, verifications: tuple[step_plan.Verification, ...]) -> Rows:
        """The second half; `verifications` are those of the plan, with the guesses. Raises as `apply`."""
        rows = self._decode_rows(plan.decodes)
        if plan.chunks:
            rows = _followed_by(rows, plan.chunks)
        if verifications:
            rows = self._with_guesses(rows, verifications)
        self._check(rows)
        return rows

    def append(self, slots: Int64, token_ids: Int64) -> None:
        """The tokens just sampled become the last known ones of their slots."""
        self.tokens[slots, self.lengths[slots]] = token_ids
        self.lengths[slots] += 1

    def accept(self, slot: int, token_ids: list[int]) -> None:
        """The tokens that a verification has found become the last known ones of `slot`."""
        length = int(self.lengths[slot])
        self.tokens[slot, length : length + len(token_ids)] = token_ids
        self.lengths[slot] += len(token_ids)

    def guesses_of(self, slot: int, count: int) -> Int32:
        """The tokens behind the known ones: those of the verification in this step."""
        length = int(self.lengths[slot])
        return self.tokens[slot, length : length + count]

    def params_of(self, slot: int) -> sampling.SamplingParams:
        params = self.params[slot]
        if params is None:
            raise ValueError(f"slot {slot} holds no sequence")
        return params

    def _decode_rows(self, decodes: tuple[int, ...]) -> Rows:
        # The plans of a steady batch bring the same tuple again: it is turned into columns once.
        if decodes is not self._decodes:
            count = len(decodes)
            self._decodes = decodes
            self._decode_columns = (
                np.array(decodes, dtype=np.int64),
                np.ones(count, dtype=np.int64),
                np.ones(count, dtype=np.bool_),
            )
        slots, ones, samples = self._decode_columns
        return Rows(slots, self.lengths[slots] - 1, ones, samples)

    def _with_guesses(self, rows: Rows, verifications: tuple[step_plan.Verification, ...]) -> Rows:
        """Guesses are put behind the known tokens; `lengths` do not count them."""
        for each in verifications:
            length = int(self.lengths[each.slot])
            # The token after the last guess needs a place, too.
            if len(each.guesses) != each.count or length + each.count >= self.tokens.shape[1]:
                raise ValueError(f"slot {each.slot}: {each} behind {length} tokens")
            self.tokens[each.slot, length : length + each.count] = each.guesses
        slots = np.array([each.slot for each in verifications], dtype=np.int64)
        guesses = np.array([each.count for each in verifications], dtype=np.int64)
        return Rows(
            np.concatenate((rows.slots, slots)),
            np.concatenate((rows.starts, self.lengths[slots] - 1)),
            np.concatenate((rows.counts, guesses + 1)),
            np.concatenate((rows.samples, np.ones(len(verifications), dtype=np.bool_))),
            np.concatenate((np.full(rows.slots.size, -1, dtype=np.int64), guesses)),
        )

    def _join(self, join: step_plan.Join) -> None:
        slot, length = join.slot, len(join.token_ids)
        if length > self.tokens.shape[1]:
            raise ValueError(f"slot {slot}: {length} tokens, but a row holds {self.tokens.shape[1]}")
        self.tokens[slot, :length] = join.token_ids
        self.lengths[slot] = length
        self.pages[slot, : self.num_pages[slot]] = 0
        self.num_pages[slot] = 0
        self._append_pages(slot, join.pages)
        self.num_prompt_tokens[slot] = join.num_prompt_tokens
        self.params[slot] = join.params
        self.is_plain_greedy[slot] = (
            join.params.is_greedy
            and not join.params.has_penalties
            and not join.params.logit_bias
            and join.params.num_logprobs is None
        )

    def _append_pages(self, slot: int, pages: tuple[int, ...]) -> None:
        first = int(self.num_pages[slot])
        last = first + len(pages)
        if last > self.pages.shape[1]:
            raise ValueError(f"slot {slot}: {last} pages, but a sequence has at most {self.pages.shape[1]}")
        self.pages[slot, first:last] = pages
        self.num_pages[slot] = last

    def _check(self, rows: Rows) -> None:
        """A plan that contradicts the tables is a mistake of ours: better to stop than to read another's pages."""
        if rows.slots.size == 0:
            return
        if rows.slots.min() < 0 or np.bincount(rows.slots).max() > 1:
            raise ValueError(f"a plan computes in each slot once, counted from 0, got {rows.slots.tolist()}")
        ends = rows.starts + rows.counts
        known = self.lengths[rows.slots]
        if rows.guesses is not None:
            known = known + np.maximum(rows.guesses, 0)
        wrong = (ends > known) | (ends > self.num_pages[rows.slots] * self.block_size)
        wrong |= rows.samples & (ends != known)
        wrong |= (rows.counts < 1) | (rows.starts < 0)
        if wrong.any():
            index = int(np.flatnonzero(wrong)[0])
            slot = int(rows.slots[index])
            raise ValueError(
                f"slot {slot}: computing [{rows.starts[index]}, {ends[index]}) contradicts its {self.lengths[slot]} "
                f"tokens and {self.num_pages[slot]} pages of {self.block_size}"
            )


def _followed_by(rows: Rows, chunks: tuple[step_plan.Chunk, ...]) -> Rows:
    columns = np.array([(chunk.slot, chunk.start, chunk.count, chunk.samples) for chunk in chunks], dtype=np.int64)
    return Rows(
        np.concatenate((rows.slots, columns[:, 0])),
        np.concatenate((rows.starts, columns[:, 1])),
        np.concatenate((rows.counts, columns[:, 2])),
        np.concatenate((rows.samples, columns[:, 3].astype(np.bool_))),
    )
