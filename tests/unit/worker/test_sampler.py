"""A batch of rows: each as if it were alone, and only as much work as it asks for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tidemark_runtime import errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.worker import sampler, slots

VOCAB = 300
PARAMS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 0.8, "seed": 4, "top_p": 0.9},
    {"temperature": 1.2, "seed": 5, "top_k": 20, "min_p": 0.05},
    {"temperature": 0.0, "repetition_penalty": 1.5},
    {"temperature": 0.0, "num_logprobs": 3},
    {"temperature": 1.0, "seed": 6, "presence_penalty": 1.0, "frequency_penalty": 0.5, "num_logprobs": 0},
    {"temperature": 0.0, "logit_bias": ((17, 40.0), (3, -100.0))},
)


def make_tables(all_params: tuple[dict[str, Any], ...], prompt: tuple[int, ...] = (1, 2, 3)) -> slots.SlotTables:
    tables = slots.SlotTables(len(all_params), 64, 4)
    joins = tuple(
        step_plan.Join(slot, (*prompt, 7, 7), len(prompt), sampling.SamplingParams(max_tokens=9, **params))
        for slot, params in enumerate(all_params)
    )
    tables.apply(step_plan.StepPlan(step=0, joins=joins))
    return tables


def logits_for(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def sample_one(tables: slots.SlotTables, logits: torch.Tensor, slot: int) -> tuple[int, step_plan.TokenLogprobs | None]:
    token_ids, logprobs = sampler.sample(logits, tables, np.array([slot]))
    return int(token_ids[0]), logprobs[0]


def test_a_row_gets_the_same_whoever_shares_the_batch() -> None:
    tables = make_tables(PARAMS)
    logits = logits_for(len(PARAMS))
    order = np.random.default_rng(0).permutation(len(PARAMS))
    together, logprobs = sampler.sample(logits[order], tables, order)
    for place, slot in enumerate(order.tolist()):
        assert sample_one(tables, logits[slot : slot + 1], slot) == (int(together[place]), logprobs[place])


def test_greedy_takes_the_first_of_equal_largest() -> None:
    tables = make_tables(({"temperature": 0.0},))
    logits = torch.zeros(1, VOCAB)
    logits[0, [40, 41, 250]] = 5.0
    assert sample_one(tables, logits, 0)[0] == 40


@pytest.mark.parametrize("temperature", [1e-40, 1e-6, 0.0])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    """B015"""
    tables = make_tables(({"temperature": temperature, "seed": 1},))
    logits = logits_for(1)
    assert sample_one(tables, logits, 0)[0] == int(logits.argmax())


def test_temperature_one_samples_and_seeds_differ() -> None:
    """B019"""
    tables = make_tables(tuple({"temperature": 1.0, "seed": seed} for seed in range(20)))
    logits = (logits_for(1) / 3).expand(20, VOCAB)
    token_ids, _ = sampler.sample(logits, tables, np.arange(20))
    assert len(set(token_ids.tolist())) > 5
    assert sampler.sample(logits, tables, np.arange(20))[0].tolist() == token_ids.tolist()


def test_bias_and_penalties_move_the_choice() -> None:
    biased, penalized = {"logit_bias": ((17, 90.0),)}, {"frequency_penalty": 2.0}
    tables = make_tables(({"temperature": 0.0, **biased}, {"temperature": 0.0, **penalized}))
    logits = torch.zeros(2, VOCAB)
    logits[:, 7] = 3.0  # twice in the output: 3 - 2 * 2 < 0
    token_ids, _ = sampler.sample(logits, tables, np.arange(2))
    assert token_ids.tolist() == [17, 0]


def test_the_batch_of_logits_is_left_as_it_was() -> None:
    tables = make_tables(PARAMS)
    logits = logits_for(len(PARAMS))
    before = logits.clone()
    sampler.sample(logits, tables, np.arange(len(PARAMS)))
    assert torch.equal(logits, before)


def test_logprobs_come_from_the_models_own_distribution() -> None:
    """B021: temperature, filters, bias and penalties do not show, and nothing is infinite."""
    filters: dict[str, Any] = {"top_k": 1, "top_p": 0.3, "temperature": 0.01}
    tables = make_tables(({**filters, "logit_bias": ((5, -100.0),), "num_logprobs": 5},))
    logits = logits_for(1)
    logits[0, 9] = -math.inf
    token, found = sample_one(tables, logits, 0)
    expected = torch.log_softmax(logits[0].double(), dim=0)
    assert found is not None
    assert found.chosen == pytest.approx(float(expected[token]), abs=1e-5)
    assert list(found.top_ids) == expected.topk(5).indices.tolist()
    assert found.top == pytest.approx(expected.topk(5).values.tolist(), abs=1e-5)
    assert all(math.isfinite(value) for value in (found.chosen, *found.top))


def test_no_top_tokens_when_none_are_asked_for() -> None:
    found = sample_one(make_tables(({"num_logprobs": 0},)), logits_for(1), 0)[1]
    assert found is not None
    assert found.top == found.top_ids == ()


@pytest.mark.parametrize("damage", [math.nan, math.inf])
def test_logits_that_are_no_numbers_stop_the_engine(damage: float) -> None:
    tables = make_tables(PARAMS[:2])
    logits = logits_for(2)
    logits[1, 100] = damage
    with pytest.raises(errors.EngineError, match=r"slot 1.*try dtype float32"):
        sampler.sample(logits, tables, np.arange(2))


def test_no_rows_no_tokens() -> None:
    token_ids, logprobs = sampler.sample(torch.empty(0, VOCAB), make_tables(PARAMS), np.zeros(0, dtype=np.int64))
    assert token_ids.size == 0
    assert logprobs == ()
