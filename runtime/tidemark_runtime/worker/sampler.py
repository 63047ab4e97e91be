"""Chooses the next token of each row of logits. Rows that want only the most likely token are done all at once."""

from __future__ import annotations

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
        raise errors.EngineError(
            f"the model computed {best[broken]} as largest logit of the sequence in slot {slot_of_row[broken]}, "
            "expected a finite number: its weights are damaged or overflow in this dtype; try dtype float32"
        )
    logprobs: list[step_plan.TokenLogprobs | None] = [None] * values.shape[0]
    for row in np.flatnonzero(~tables.is_plain_greedy[slot_of_row]).tolist():
        slot = int(slot_of_row[row])
        params = tables.params_of(slot)
        token = _choose(values[row], int(token_ids[row]), params, tables, slot)
        token_ids[row] = token
        if params.num_logprobs is not None:
            logprobs[row] = _logprobs(values[row], token, params.num_logprobs)
    return token_ids, tuple(logprobs)


def _choose(
    row: sampling_math.Float32, best: int, params: sampling.SamplingParams, tables: slots.SlotTables, slot: int
) -> int:
    length = int(tables.lengths[slot])
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
    place = sampling_math.uniform(params.seed, length)
    return sampling_math.draw(row, params.temperature, params.top_k, params.top_p, params.min_p, place)


def _logprobs(row: sampling_math.Float32, token: int, count: int) -> step_plan.TokenLogprobs:
    """From the model's own distribution: before bias, penalties, temperature and filters."""
    normalizer = sampling_math.log_normalizer(row)
    top_ids = sampling_math.largest(row, count).tolist()
    return step_plan.TokenLogprobs(
        chosen=sampling_math.logprob(float(row[token]), normalizer),
        top_ids=tuple(top_ids),
        top=tuple(sampling_math.logprob(float(row[top_id]), normalizer) for top_id in top_ids),
    )
