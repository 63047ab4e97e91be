"""Guesses on a device: their rows for the step, and, when it is over, which of them were right.

A verification of k guesses is k + 1 rows of one token each: what the next k + 1 decodes of its sequence would be if the
guesses came true. So attention computes each of them exactly as a decode (how its keys are split depends on a row's own
count and context), a recorded step does them like other decodes, and the sampler draws each with the number of its own
position. Read as one chunk, the sequence's keys and values would be read once instead of k + 1 times; but sums would
be in another order than a decode's, and a text could differ by its guesses. While a layer's part of a context fits the
device's cache, reading it again costs little; where it does not, the price of a guess is measured with it.

The device draws all rows. Which ones count is found out from what it returns, as on a processor (`verifying`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import slots


def in_single_tokens(rows: slots.Rows, of: npt.NDArray[np.bool_], *, all_sample: bool) -> slots.Rows:
    """`rows` with those in `of` cut into rows of one token; of these all sample, or the last one where its row did."""
    parts = np.where(of, rows.counts, 1)
    index = np.repeat(np.arange(len(parts)), parts)
    offset = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    is_last = offset == parts[index] - 1
    return slots.Rows(
        rows.slots[index],
        rows.starts[index] + offset,
        np.where(of[index], 1, rows.counts[index]),
        rows.samples[index] & (is_last | all_sample),
    )


def as_decodes(rows: slots.Rows) -> slots.Rows:
    """With each verification as one row for its last known token, and one for each guess."""
    return rows if rows.guesses is None else in_single_tokens(rows, rows.guesses >= 0, all_sample=True)


@dataclass(slots=True)
class Outcome:
    """Of the verifications of a step."""

    rows: list[int] = field(default_factory=list)
    """Whose tokens belong to the texts, counted from the first row of the first verification."""
    verified: list[step_plan.Verified] = field(default_factory=list)


def outcome(
    verifications: Sequence[step_plan.Verification], guesses: Sequence[int], token_ids: Sequence[int]
) -> Outcome:
    """`guesses`: of all verifications, one after the other; `token_ids`: what was drawn, `count` + 1 rows for each."""
    found = Outcome()
    first = at = 0
    for each in verifications:
        num_right = 0
        while num_right < each.count and token_ids[first + num_right] == guesses[at + num_right]:
            num_right += 1
        found.rows += range(first, first + num_right + 1)
        found.verified.append(step_plan.Verified(each.count, num_right + 1))
        first += each.count + 1
        at += each.count
    return found
