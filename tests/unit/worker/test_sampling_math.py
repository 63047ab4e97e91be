"""Filters against naive definitions, the drawn distribution, and the generator of places."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process

from tidemark_runtime.worker import sampling_math

FINE_PLACES = np.linspace(0.0, 1.0, 801)[:-1]


def reachable(row: np.ndarray, **options: float) -> set[int]:
    """Every token some place leads to; misses only tokens less likely than the grid is fine."""
    filters = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **options}
    return {sampling_math.draw(row, place=float(place), **filters) for place in FINE_PLACES}  # type: ignore[arg-type]


def naive_kept(row: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The three filters, each by its definition, in float64 and with full sorts."""
    scaled = (row.astype(np.float64) - row.max()) / temperature
    order = sorted(range(row.size), key=lambda token: (-scaled[token], token))
    if top_k > 0:
        order = order[:top_k]
    weights = np.exp(scaled[order])
    if top_p < 1.0:
        shares = np.cumsum(weights) / weights.sum()
        order = order[: int(np.sum(shares < top_p)) + 1]
    return {token for token in order if math.exp(scaled[token]) >= min_p and scaled[token] > -math.inf}


def spread_row(seed: int, size: int = 37) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * 2).astype(np.float32)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.7, 5, 1.0, 0.0),
        (1.3, 0, 0.6, 0.0),
        (1.0, 0, 1.0, 0.2),
        (0.9, 12, 0.8, 0.1),
        (1.0, 1, 1.0, 0.0),
        (1.0, 100, 0.999, 0.0),
        (1.0, 0, 1e-9, 0.0),
        (1.0, 0, 1.0, 1.0),
    ],
)
def test_only_and_all_tokens_that_pass_the_filters_are_drawn(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    row = spread_row(seed)
    kept = naive_kept(row, temperature, top_k, top_p, min_p)
    seen = reachable(row, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert seen <= kept
    weights = {token: math.exp((row[token] - row.max()) / temperature) for token in kept}
    likely = {token for token in kept if weights[token] / sum(weights.values()) > 1 / 400}
    assert likely <= seen


@pytest.mark.parametrize(("top_k", "top_p", "min_p"), [(7, 1.0, 0.0), (0, 0.75, 0.0), (0, 1.0, 0.15), (20, 0.9, 0.05)])
def test_filters_equal_hugging_face(top_k: int, top_p: float, min_p: float) -> None:
    row = spread_row(5, 64)
    scores = torch.from_numpy(row.copy()).unsqueeze(0)
    warpers: list[logits_process.LogitsProcessor] = [logits_process.TemperatureLogitsWarper(0.8)]
    if top_k:
        warpers.append(logits_process.TopKLogitsWarper(top_k))
    if top_p < 1.0:
        warpers.append(logits_process.TopPLogitsWarper(top_p))
    if min_p:
        warpers.append(logits_process.MinPLogitsWarper(min_p))
    for warper in warpers:
        scores = warper(torch.zeros(1, 1, dtype=torch.long), scores)
    kept = set(torch.isfinite(scores[0]).nonzero().flatten().tolist())
    assert naive_kept(row, 0.8, top_k, top_p, min_p) == kept


def test_repetition_penalty_equals_hugging_face() -> None:
    row, ids = spread_row(3), np.array([1, 4, 4, 9, 30], dtype=np.int64)
    processor = logits_process.RepetitionPenaltyLogitsProcessor(1.3)
    expected = processor(torch.from_numpy(ids).unsqueeze(0), torch.from_numpy(row.copy()).unsqueeze(0))[0]
    sampling_math.penalize(row, ids, ids[3:], 1.3, 0.0, 0.0)
    assert torch.equal(torch.from_numpy(row), expected)


def test_presence_and_frequency_count_the_output_only() -> None:
    row, output = np.zeros(6, dtype=np.float32), np.array([2, 2, 5], dtype=np.int64)
    sampling_math.penalize(row, np.array([0, 1, 2, 2, 5]), output, 1.0, 0.5, 0.25)
    assert row.tolist() == [0.0, 0.0, -1.0, 0.0, 0.0, -0.75]


@pytest.mark.parametrize("size", [9, 128, 300, 1000])
def test_drawn_frequencies_follow_the_distribution(size: int) -> None:
    """Chi-square over the tokens expected at least 5 times, at a limit that chance passes once in 10^6."""
    row = spread_row(11, size)
    num_draws = 10_000
    drawn = np.bincount(
        [sampling_math.draw(row, 0.8, 0, 1.0, 0.0, sampling_math.uniform(7, n)) for n in range(num_draws)],
        minlength=size,
    )
    weights = np.exp((row - row.max()).astype(np.float64) / 0.8)
    expected = weights / weights.sum() * num_draws
    common = expected >= 5
    statistic = float((((drawn - expected) ** 2) / expected)[common].sum())
    degrees = int(common.sum()) - 1
    assert statistic < degrees + 5 * math.sqrt(2 * degrees) + 15
    assert drawn[~common].sum() < 2 * expected[~common].sum() + 30


def test_places_are_even_and_neither_seed_nor_position_is_lost() -> None:
    places = [sampling_math.uniform(seed, position) for seed in range(100) for position in range(100)]
    counts, _ = np.histogram(places, bins=20, range=(0.0, 1.0))
    assert min(places) >= 0.0
    assert max(places) < 1.0
    assert len(set(places)) == len(places)
    assert np.abs(counts - 500).max() < 120
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.05


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1, 0])
def test_every_signed_seed_has_a_place(seed: int) -> None:
    """B017"""
    assert 0.0 <= sampling_math.uniform(seed, 5) < 1.0


@given(
    logits=st.lists(st.floats(-50, 50, width=32) | st.just(-math.inf), min_size=1, max_size=300),
    temperature=st.floats(1e-5, 100),
    top_k=st.integers(0, 310),
    top_p=st.floats(1e-6, 1.0),
    min_p=st.floats(0.0, 1.0),
    place=st.floats(0.0, 1.0, exclude_max=True),
)
@settings(deadline=None, max_examples=300)
def test_never_a_token_without_weight(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, place: float
) -> None:
    row = np.array([*logits, 3.0], dtype=np.float32)
    token = sampling_math.draw(row, temperature, top_k, top_p, min_p, place)
    assert row[token] > -math.inf
    assert top_k == 0 or token in sampling_math.largest(row, top_k)


def test_all_but_one_filtered_leaves_that_one() -> None:
    row = np.full(500, -np.inf, dtype=np.float32)
    row[417] = -3.0
    assert reachable(row, top_p=0.5, min_p=0.3) == {417}


def test_the_last_place_is_still_a_token_with_weight() -> None:
    row = np.full(300, -np.inf, dtype=np.float32)
    row[3:7] = 0.0
    assert sampling_math.draw(row, 1.0, 0, 1.0, 0.0, math.nextafter(1.0, 0.0)) == 6
    assert sampling_math.draw(row, 1.0, 0, 1.0, 0.0, 0.0) == 3


def test_of_equal_logits_the_lower_ids_are_largest() -> None:
    row = np.array([1.0, 2.0, 2.0, 2.0, 0.0], dtype=np.float32)
    assert sampling_math.largest(row, 2).tolist() == [1, 2]
    assert sampling_math.largest(row, 4).tolist() == [1, 2, 3, 0]
    assert sampling_math.largest(row, 0).tolist() == []
    assert sampling_math.largest(row, 99).tolist() == [1, 2, 3, 0, 4]


def test_top_p_orders_by_logits_where_their_weights_are_equal() -> None:
    row = np.array([1.0, np.nextafter(np.float32(1.0), np.float32(2.0)), -5.0], dtype=np.float32)
    assert {sampling_math.draw(row, 100.0, 0, 1e-9, 0.0, place) for place in (0.0, 0.5, 0.99)} == {1}


def test_logprobs_are_the_natural_log_of_softmax_and_finite() -> None:
    row = spread_row(1, 200)
    row[7] = -np.inf
    normalizer = sampling_math.log_normalizer(row)
    expected = torch.log_softmax(torch.from_numpy(row).double(), dim=0)
    seen = [sampling_math.logprob(float(logit), normalizer) for logit in row]
    assert seen[7] == sampling_math.LOGPROB_FLOOR
    finite = [index for index in range(200) if index != 7]
    assert np.allclose([seen[index] for index in finite], expected.numpy()[finite], atol=1e-5)
