"""What `device.sampling` must choose, by definition: whole sorts and float64, one row after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

LOGPROB_FLOOR = -9999.0
MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How the next token of one sequence is chosen. What is not named here is off."""

    temperature: float = 0.0
    """0 is greedy; the caller has turned what is too small to divide by into 0."""
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    """64 bits, signed."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Each token id once."""
    num_logprobs: int | None = None

    @property
    def adjusts(self) -> bool:
        penalizes = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)
        return penalizes or bool(self.logit_bias)


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row each."""

    token_ids: torch.Tensor
    """int64 [S]"""
    broken: torch.Tensor
    """int32 [S]: 0, or why the token, which then is 0, means nothing: MODEL, ADJUSTED, MISLAUNCHED."""
    logprobs: torch.Tensor | None = None
    """float32 [S], of the model's own distribution; NaN for rows that did not ask. None where none was to."""
    top_ids: torch.Tensor | None = None
    """int64 [S, num_top], best first; -1 beyond what a row asked for."""
    top_logprobs: torch.Tensor | None = None
    """float32 [S, num_top]; NaN beyond what a row asked for."""


MODEL = 1
"""The largest logit of the model is not a finite number, or one of them is NaN."""
ADJUSTED = 2
"""Bias and penalties leave no finite logit."""
MISLAUNCHED = 3
"""The row asks for sampling, bias or penalties, and the launch said that no row does."""


def uniform(seed: int, position: int) -> float:
    """In [0, 1): two rounds of SplitMix64 (Steele, Lea, Flood, 2014) over seed and position."""
    mixed = _splitmix64(_splitmix64(seed & MASK) ^ (position & MASK))
    return float(mixed >> 11) * 2.0**-53


def _splitmix64(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def sample(
    logits: torch.Tensor,
    slots: torch.Tensor,
    wanted: Sequence[Wanted],
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    num_prompt_tokens: torch.Tensor,
    num_top: int | None = None,
    behind: torch.Tensor | None = None,
    compute: torch.dtype = torch.float64,
) -> Sampled:
    """float32 `logits` [S, V] of the sequences in `slots` [S]; `wanted`, `tokens` [slots, any], `lengths` and
    `num_prompt_tokens` by slot, `behind` [S] more tokens, guessed ones, behind these.
    `num_top`: columns of log-probabilities, None for none."""
    num_rows = logits.shape[0]
    token_ids = torch.zeros(num_rows, dtype=torch.int64)
    broken = torch.zeros(num_rows, dtype=torch.int32)
    shape = (num_rows, num_top or 0)
    own, top_ids = torch.full((num_rows,), math.nan), torch.full(shape, -1, dtype=torch.int64)
    top = torch.full(shape, math.nan)
    for row, slot in enumerate(slots.tolist()):
        length = int(lengths[slot]) + (0 if behind is None else int(behind[row]))
        wish, known = wanted[slot], tokens[slot, :length].long()
        values = logits[row].to(compute)
        changed = adjusted(values, wish, known, int(num_prompt_tokens[slot]))
        broken[row] = _status(values, changed)
        if broken[row]:
            continue
        token_ids[row] = _first_largest(changed)
        if wish.temperature > 0.0:
            place = uniform(wish.seed, known.numel())
            token_ids[row] = drawn(changed, wish.temperature, wish.top_k, wish.top_p, wish.min_p, place)
        if num_top is not None and wish.num_logprobs is not None:
            logprobs = torch.log_softmax(values, dim=0).clamp(LOGPROB_FLOOR, 0.0)
            own[row] = logprobs[token_ids[row]]
            order = _by_size(values)[: min(num_top, wish.num_logprobs)]
            top_ids[row, : order.numel()], top[row, : order.numel()] = order, logprobs[order].float()
    return Sampled(token_ids, broken) if num_top is None else Sampled(token_ids, broken, own, top_ids, top)


def adjusted(values: torch.Tensor, wish: Wanted, known: torch.Tensor, num_prompt_tokens: int) -> torch.Tensor:
    """Bias, then penalties, on one row [V]."""
    changed = values.clone()
    for token, bias in wish.logit_bias:
        changed[token] += bias
    seen = changed[known]
    changed[known] = torch.where(seen > 0, seen / wish.repetition_penalty, seen * wish.repetition_penalty)
    counts = torch.bincount(known[num_prompt_tokens:], minlength=values.numel())
    return changed - counts * wish.frequency_penalty - (counts > 0) * wish.presence_penalty


def drawn(values: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, place: float) -> int:
    """One token of a row [V] with a finite maximum and no NaN."""
    order = _by_size(values)
    if top_k > 0:
        order = order[:top_k]
    weights = torch.exp((values - values.max()) / temperature)
    if top_p < 1.0:
        reached = weights[order].cumsum(0)
        order = order[: int((reached < top_p * reached[-1]).sum()) + 1]
    kept = torch.zeros_like(weights)
    kept[order] = weights[order]
    kept[weights < min_p] = 0.0
    cumulated = kept.cumsum(0)
    index = int((cumulated <= place * cumulated[-1]).sum())
    return min(index, int(kept.nonzero().max()))


def _by_size(values: torch.Tensor) -> torch.Tensor:
    """Ids, largest value first; of equal ones the lower id first."""
    return torch.sort(values, descending=True, stable=True).indices


def _first_largest(values: torch.Tensor) -> int:
    return int((values == values.max()).int().argmax())


def _status(values: torch.Tensor, changed: torch.Tensor) -> int:
    if not bool(values.max().isfinite()) or bool(values.isnan().any()):
        return MODEL
    return 0 if bool(changed.max().isfinite()) else ADJUSTED
