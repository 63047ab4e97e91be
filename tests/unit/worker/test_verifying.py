"""Checked guesses do not change what is drawn: neither the token of a seed, nor the distribution over seeds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from tidemark_runtime import errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.worker import sampler, slots, verifying

VOCAB = 6
NUM_SEEDS = 4000
GUESSES = (2, 4)


def logits(number: int) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(number))


def tables(params: sampling.SamplingParams, guesses: tuple[int, ...] = GUESSES) -> slots.SlotTables:
    made = slots.SlotTables(2, 16, 16)
    join = step_plan.Join(1, (3, 1, 5), 2, params, pages=(0,))
    plan = step_plan.StepPlan(step=1, joins=(join,), verifications=(step_plan.Verification(1, len(guesses), guesses),))
    made.apply(plan)
    return made


def check(params: sampling.SamplingParams, rows: torch.Tensor, guesses: tuple[int, ...] = GUESSES) -> verifying.Found:
    return verifying.check(rows, tables(params, guesses), (step_plan.Verification(1, len(guesses), guesses),))


def test_over_many_seeds_the_tokens_have_the_models_own_distribution() -> None:
    """Pearson's chi-square of pairs against softmax(first) x softmax(second); 10 degrees of freedom."""
    first, second = logits(1), logits(2)
    found: Counter[tuple[int, int]] = Counter()
    for seed in range(NUM_SEEDS):
        params = sampling.SamplingParams(max_tokens=9, temperature=1.0, seed=seed)
        ids = check(params, torch.stack((first, second, logits(3)))).token_ids
        if len(ids) > 1:
            found[ids[0], ids[1]] += 1
        else:
            found[ids[0], -1] += 1
    p, q = (torch.softmax(row.double(), 0).tolist() for row in (first, second))
    expected = {(token, -1): p[token] for token in range(VOCAB) if token != GUESSES[0]}
    expected |= {(GUESSES[0], token): p[GUESSES[0]] * q[token] for token in range(VOCAB)}
    statistic = sum((found[key] - NUM_SEEDS * chance) ** 2 / (NUM_SEEDS * chance) for key, chance in expected.items())
    assert sum(found.values()) == NUM_SEEDS
    assert statistic < 29.6, "a chance of 0.001 with 10 degrees of freedom"


@pytest.mark.parametrize("seed", range(20))
def test_each_token_is_the_one_that_is_sampled_without_guesses(seed: int) -> None:
    params = sampling.SamplingParams(
        max_tokens=9, temperature=0.9, seed=seed, frequency_penalty=0.7, repetition_penalty=1.3, num_logprobs=2
    )
    rows = torch.stack((logits(1), logits(2), logits(3)))
    found = check(params, rows)
    plain = tables(params)
    for row, token, logprobs in zip(rows, found.token_ids, found.logprobs, strict=False):
        ids, told = sampler.sample(row.unsqueeze(0), plain, np.array([1]))
        assert (int(ids[0]), told[0]) == (token, logprobs)
        plain.append(np.array([1]), ids)


def test_what_is_right_is_taken_and_the_token_after_it() -> None:
    greedy = sampling.SamplingParams(max_tokens=9, temperature=0.0)
    rows = torch.full((3, VOCAB), -1.0)
    for row, token in enumerate((2, 4, 0)):
        rows[row, token] = 1.0
    for guesses, expected in (((2, 4), [2, 4, 0]), ((2, 5), [2, 4]), ((1, 4), [2])):
        known = tables(greedy, guesses)
        found = verifying.check(rows, known, (step_plan.Verification(1, 2, guesses),))
        assert found.token_ids == expected
        assert found.verified == [step_plan.Verified(2, len(expected))]
        assert known.tokens[1, : known.lengths[1]].tolist() == [3, 1, 5, *expected]


def test_logits_that_are_no_numbers_are_refused() -> None:
    greedy = sampling.SamplingParams(max_tokens=9, temperature=0.0)
    with pytest.raises(errors.EngineError, match="slot 1, expected a finite number"):
        check(greedy, torch.full((3, VOCAB), float("nan")))


def test_a_plan_without_room_for_its_guesses_is_refused() -> None:
    params = sampling.SamplingParams(max_tokens=9)
    with pytest.raises(ValueError, match="behind 3 tokens"):
        tables(params, tuple(range(15)))
