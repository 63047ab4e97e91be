"""Checks guesses: samples after each of them, with the number that this position has anyway, as long as they are right.

Each row of logits was computed as if the guesses before it were the text. The first one, after the last known token, is
what a decode computes. As long as the token sampled equals the guess, the next row is what the next decode would have
computed, and its token is what that would have sampled: sampling depends on the text, the parameters and (seed,
position) alone. So no token differs from the text without guesses, and none is thrown away to make it so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tidemark_runtime.core import step_plan
from tidemark_runtime.model import parallel
from tidemark_runtime.worker import sampler, slots


@dataclass(slots=True)
class Found:
    """Of all verifications of a step, in the plan's order."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[step_plan.TokenLogprobs | None] = field(default_factory=list)
    verified: list[step_plan.Verified] = field(default_factory=list)


def check(
    logits: torch.Tensor,
    tables: slots.SlotTables,
    verifications: Sequence[step_plan.Verification],
    group: parallel.Group = parallel.ALONE,
) -> Found:
    """float32 logits [R, V], count + 1 rows for each verification; its tokens are the slot's afterwards. Of several
    ranks the first one samples, and the tables of all get its tokens.

    Raises EngineError as `sampler.sample`.
    """
    if not verifications:
        return Found()
    found = _sampled(logits, tables, verifications) if group.shard.is_first else Found()
    if group.shard.size > 1:
        _share(found, verifications, group)
    at = 0
    for each, outcome in zip(verifications, found.verified, strict=True):
        tables.accept(each.slot, found.token_ids[at : at + outcome.num_tokens])
        at += outcome.num_tokens
    return found


def _sampled(logits: torch.Tensor, tables: slots.SlotTables, verifications: Sequence[step_plan.Verification]) -> Found:
    values = logits.numpy()
    found = Found()
    first = 0
    for each in verifications:
        guesses = tables.guesses_of(each.slot, each.count).tolist()
        length = int(tables.lengths[each.slot])
        for index in range(each.count + 1):
            token, logprobs = sampler.sample_at(values[first + index], tables, each.slot, length + index)
            found.token_ids.append(token)
            found.logprobs.append(logprobs)
            if index == each.count or token != guesses[index]:
                break
        found.verified.append(step_plan.Verified(each.count, index + 1))
        first += each.count + 1
    return found


def _share(found: Found, verifications: Sequence[step_plan.Verification], group: parallel.Group) -> None:
    """Fills `found` of all ranks with that of the first one, without the log-probabilities."""
    num = len(verifications)
    message = torch.zeros(num + sum(each.count + 1 for each in verifications), dtype=torch.int64)
    counts = [outcome.num_tokens for outcome in found.verified]
    message[: len(counts)] = torch.tensor(counts, dtype=torch.int64)
    message[num : num + len(found.token_ids)] = torch.tensor(found.token_ids, dtype=torch.int64)
    group.broadcast(message)
    counts = message[:num].tolist()
    found.token_ids = message[num : num + sum(counts)].tolist()
    found.verified = [step_plan.Verified(each.count, count) for each, count in zip(verifications, counts, strict=True)]
    if not group.shard.is_first:
        found.logprobs = [None] * len(found.token_ids)
