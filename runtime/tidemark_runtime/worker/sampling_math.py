"""The arithmetic of sampling on one row of logits; numpy only, no tables, no state.

One row at a time on purpose: vectorised loops over several rows split where rows happen to lie, and the last bits of
`exp` may differ there; a row's token must not depend on who shares the batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

LOGPROB_FLOOR = -9999.0
"""Reported instead of minus infinity, which JSON cannot hold (B021)."""


def uniform(seed: int, position: int) -> float:
    """In [0, 1): a hash of (seed, position), so the n-th token of a seed is always drawn at the same place.

    Two rounds of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    """
    mixed = _splitmix64(_splitmix64(seed & _MASK) ^ (position & _MASK))
    return float(mixed >> 11) * 2.0**-53


_MASK = (1 << 64) - 1


def _splitmix64(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def penalize(
    row: Float32, prompt_and_output: Int64, output: Int64, repetition: float, presence: float, frequency: float
) -> None:
    """Change `row` [V] in place.

    `repetition` divides positive and multiplies negative logits of every token seen (Keskar et al., CTRL, 2019, as
    Hugging Face does); `presence` and `frequency` are subtracted for generated tokens only (OpenAI's definition).
    """
    if repetition != 1.0:
        seen = row[prompt_and_output]
        factor = np.float32(repetition)
        # Repeated ids write the same value again: right without sorting them out.
        row[prompt_and_output] = np.where(seen > 0, seen / factor, seen * factor)
    if output.size == 0:
        return
    if frequency != 0.0:
        row -= np.bincount(output, minlength=row.size).astype(np.float32) * np.float32(frequency)
    if presence != 0.0:
        row[output] = row[output] - np.float32(presence)


def largest(row: Float32, count: int) -> Int64:
    """Ids of the `count` largest of `row` [V], best first; of equal ones the lower id comes first."""
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    if count >= row.size:
        candidates = np.arange(row.size)
    else:
        border = np.partition(row, row.size - count)[row.size - count]
        above = np.flatnonzero(row > border)
        candidates = np.sort(np.concatenate([above, np.flatnonzero(row == border)[: count - above.size]]))
    return candidates[np.argsort(-row[candidates], kind="stable")].astype(np.int64)


def draw(row: Float32, temperature: float, top_k: int, top_p: float, min_p: float, place: float) -> int:
    """One token id from the logits `row` [V]: temperature, then top-k, top-p, min-p, then the place in the rest.

    The order is Hugging Face's. `row` has at least one finite and no NaN or +inf logit; `place` is in [0, 1).
    """
    kept: Int64 | None = np.sort(largest(row, top_k)) if 0 < top_k < row.size else None
    scaled = row - row.max() if kept is None else row[kept] - row.max()
    with np.errstate(over="ignore", under="ignore"):
        scaled /= np.float32(temperature)
        weights = np.exp(scaled, out=scaled)  # the best token weighs exactly 1
    if top_p < 1.0:
        inside = _nucleus(row if kept is None else row[kept], weights, top_p)
        kept, weights = (inside if kept is None else kept[inside]), weights[inside]
    if min_p > 0.0:
        likely = np.flatnonzero(weights >= np.float32(min_p))
        kept, weights = (likely if kept is None else kept[likely]), weights[likely]
    index = _at(weights, place)
    return index if kept is None else int(kept[index])


def _nucleus(values: Float32, weights: Float32, top_p: float) -> Int64:
    """Indexes, ascending, of the smallest set of largest `values` whose share of the `weights` reaches `top_p`.

    By the values, since a high temperature makes different ones weigh the same: top-k orders by them too, and so do the
    kernels of devices, which must choose the same token.

    What weighs less than (1 - top_p) / n of the whole cannot be needed: all such together stay under 1 - top_p. So
    only the others are sorted, usually a few hundred of a vocabulary.
    """
    total = float(weights.sum(dtype=np.float64))
    slack = 1.0 - 1e-9
    candidates = np.flatnonzero(weights >= (1.0 - top_p) * total / weights.size * slack)
    order = candidates[np.argsort(-values[candidates], kind="stable")]
    reached = np.cumsum(weights[order], dtype=np.float64)
    count = int(np.searchsorted(reached, top_p * total, side="left")) + 1
    return np.sort(order[:count]).astype(np.int64)


_BLOCK = 128


def _at(weights: Float32, place: float) -> int:
    """Inverse of the cumulated weights; an index whose weight is not 0.

    Sums of blocks first, then inside one block: cumulating a whole vocabulary in float64 took twice as long as all
    the rest of a draw. A block's float32 sum is right to 1e-6 of itself.
    """
    num_blocks = weights.size // _BLOCK
    head = num_blocks * _BLOCK
    sums = np.append(weights[:head].reshape(num_blocks, _BLOCK).sum(axis=1), weights[head:].sum())
    cumulated = np.cumsum(sums, dtype=np.float64)
    target = place * float(cumulated[-1])
    block = _first_above(cumulated, target)
    before = float(cumulated[block - 1]) if block else 0.0
    start = block * _BLOCK
    inside = np.cumsum(weights[start : start + _BLOCK], dtype=np.float64)
    return start + _first_above(inside, target - before)


def _first_above(cumulated: Float64, target: float) -> int:
    """Index of the first value above `target`; rounding can bring `target` up to the last, then the last that rose."""
    index = int(np.searchsorted(cumulated, target, side="right"))
    return min(index, int(np.searchsorted(cumulated, cumulated[-1], side="left")))


def log_normalizer(row: Float32) -> float:
    """log(sum(exp(row))); the exponentials in float32, their sum in float64."""
    best = row.max()
    with np.errstate(under="ignore"):
        return float(best) + float(np.log(np.exp(row - best).sum(dtype=np.float64)))


def logprob(logit: float, normalizer: float) -> float:
    """Natural, at most 0, never under LOGPROB_FLOOR."""
    return max(LOGPROB_FLOOR, min(0.0, logit - normalizer))
