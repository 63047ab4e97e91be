"""Chooses the next token of each row of logits. Rows that want only the most likely token are done all at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tidemark_runtime import errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.worker import sampling_math, slots


def sample(
    logits: torch.Tensor, tables: slots.SlotTables, slot_of_row: slots.Int64
) -> tuple[slots.Int64, tuple[step_plan.TokenLogprobs | None, ...]]:
    """One token a row: float32 logits [S, V] and the slot of each row [S] -> (token ids [S], log-probabilities [S]).

    A row's result depends on its logits, its slot's parameters and tokens, and nothing else.
    Raises EngineError where a row's logits are not numbers: the model or its weights are broken.
    """
    values = logits.numpy()
    token_ids = np.argmax(values, axis=1).astype(np.int64)  # the first of equal ones; NaN, if there is one
    best = values[np.arange(values.shape[0]), token_ids]
    if not np.isfinite(best).all():
        broken = int(np.flatnonzero(~np.isfinite(best))[0])
        raise _broken(float(best[broken]), int(slot_of_row[broken]))
    logprobs: list[step_plan.TokenLogprobs | None] = [None] * values.shape[0]
    for row in np.flatnonzero(~tables.is_plain_greedy[slot_of_row]).tolist():
        slot = int(slot_of_row[row])
        params = tables.params_of(slot)
        place = _Place(tables, slot, int(tables.lengths[slot]))
        token_ids[row], logprobs[row] = _sampled(values[row], int(token_ids[row]), params, place)
    return token_ids, tuple(logprobs)


def sample_at(
    row: sampling_math.Float32, tables: slots.SlotTables, slot: int, length: int
) -> tuple[int, step_plan.TokenLogprobs | None]:
    """The token at position `length` of `slot`, from the logits [V] after the tokens before it: the very token that
    `sample` gives for these once they are known. Raises as `sample`."""
    best = int(np.argmax(row))
    if not np.isfinite(row[best]):
        raise _broken(float(row[best]), slot)
    if tables.is_plain_greedy[slot]:
        return best, None
    return _sampled(row, best, tables.params_of(slot), _Place(tables, slot, length))


@dataclass(frozen=True, slots=True)
class _Place:
    """Of the token that is wanted."""

    tables: slots.SlotTables
    slot: int
    length: int
    """Tokens before it."""


def _broken(best: float, slot: int) -> errors.EngineError:
    return errors.EngineError(
        f"the model computed {best} as largest logit of the sequence in slot {slot}, "
        "expected a finite number: its weights are damaged or overflow in this dtype; try dtype float32"
    )


def _sampled(
    row: sampling_math.Float32, best: int, params: sampling.SamplingParams, place: _Place
) -> tuple[int, step_plan.TokenLogprobs | None]:
    token = _choose(row, best, params, place)
    return token, None if params.num_logprobs is None else _logprobs(row, token, params.num_logprobs)


def _choose(row: sampling_math.Float32, best: int, params: sampling.SamplingParams, place: _Place) -> int:
    tables, slot, length = place.tables, place.slot, place.length
    if params.logit_bias or params.has_penalties:
        row = row.copy()
        for token_id, bias in params.logit_bias:
            row[token_id] += np.float32(bias)
        if params.has_penalties:
            known = tables.tokens[slot, :length].astype(np.int64)
            sampling_math.penalize(
                row,
                known,
                known[int(tables.num_prompt_tokens[slot]) :],
                params.repetition_penalty,
                params.presence_penalty,
                params.frequency_penalty,
            )
        best = int(np.argmax(row))
        if not np.isfinite(row[best]):
            raise errors.EngineError(f"penalties and bias of the sequence in slot {slot} leave no finite logit")
    if params.is_greedy:
        return best
    number = sampling_math.uniform(params.seed, length)
    return sampling_math.draw(row, params.temperature, params.top_k, params.top_p, params.min_p, number)


def _logprobs(row: sampling_math.Float32, token: int, count: int) -> step_plan.TokenLogprobs:
    """From the model's own distribution: before bias, penalties, temperature and filters."""
    normalizer = sampling_math.log_normalizer(row)
    top_ids = sampling_math.largest(row, count).tolist()
    return step_plan.TokenLogprobs(
        chosen=sampling_math.logprob(float(row[token]), normalizer),
        top_ids=tuple(top_ids),
        top=tuple(sampling_math.logprob(float(row[top_id]), normalizer) for top_id in top_ids),
    )
