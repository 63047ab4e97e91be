"""What runs in numpy on every machine: the sampler, and the copies between slab and swap space."""

from __future__ import annotations

import numpy as np
import torch

from tidemark_kernels.selftests import outcomes
from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import sampling_math, swap

SAMPLER, SWAP_COPY = "sampler", "swap_copy"
PATH = "numpy"
_SEED = 20_25
_VOCAB = 1_000
_PLACES = (0.0, 0.25, 0.5, 0.75, 0.999)
_BORDER = 1e-5
"""A place so near to the border of two tokens may fall to either: sums are float32."""


def sampler() -> list[outcomes.Outcome]:
    """Draws against the inverse of the cumulated softmax in float64; tokens are equal or they are not."""
    row = np.random.default_rng(_SEED).standard_normal(_VOCAB).astype(np.float32) * 3
    weights = np.exp(row.astype(np.float64) - row.max())
    cumulated = np.cumsum(weights) / weights.sum()
    found = []
    for place in _PLACES:
        have = sampling_math.draw(row, 1.0, 0, 1.0, 0.0, place)
        want = {int(np.searchsorted(cumulated, place + nudge, side="right")) for nudge in (-_BORDER, 0.0, _BORDER)}
        found.append(_equal(SAMPLER, "float32", have in want, f"the token drawn at {place}"))
    best = int(np.argmax(row))
    greedy = sampling_math.draw(row, 1.0, 1, 1.0, 0.0, 0.5)
    found.append(_equal(SAMPLER, "float32", greedy == best, "the only token of top_k 1"))
    return found


def swap_copy(page_bytes: int) -> list[outcomes.Outcome]:
    """Out, overwritten, and in to other pages: every byte."""
    seeded = torch.Generator().manual_seed(_SEED)
    slab = torch.randint(0, 256, (4, page_bytes), dtype=torch.uint8, generator=seeded)
    kept, space = slab.clone(), swap.SwapSpace(slab, 2)
    space.copy_out((step_plan.Copy(0, 1), step_plan.Copy(2, 0)))
    slab[[0, 2]] = 0
    space.copy_in((step_plan.Copy(3, 1), step_plan.Copy(0, 0)))
    same = torch.equal(slab[[3, 0, 1]], kept[[0, 2, 1]])
    return [_equal(SWAP_COPY, "uint8", same, "two pages out and back, and one that nobody moved")]


def _equal(op: str, dtype: str, same: bool, note: str) -> outcomes.Outcome:
    return outcomes.Outcome(op, dtype, 0.0 if same else float("inf"), 0.0, note)
