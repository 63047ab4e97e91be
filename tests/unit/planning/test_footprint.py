"""The whole plan of a pod: parts by hand, several devices, what fits and what is said where it does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tidemark_runtime import config, errors
from tidemark_runtime.planning import capacity, footprint, known_models

GIB = 1 << 30
SHAPE = known_models.MODELS["qwen2.5-7b"].shape(15_000_000_000)


def wanted(**changes: Any) -> capacity.Wanted:
    terms: dict[str, Any] = {
        "kv_dtype": "bfloat16",
        "block_size": 16,
        "memory_utilization": 0.9,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "max_context_tokens": None,
        "limit_bytes": 24 * GIB,
        "overhead_bytes": GIB,
    }
    return capacity.Wanted(**{**terms, **changes})


def test_every_part_by_hand() -> None:
    plan = footprint.of(SHAPE, wanted(graphs_bytes=7))
    hidden, inner, heads, kv_heads, head_dim, vocab = 3584, 18_944, 28, 4, 128, 152_064
    standing = 4 * (3 * hidden + heads * head_dim + head_dim) + 24
    activations = 2048 * (standing + 4 * 3 * inner)
    assert activations > 2048 * standing + 64 * 4 * (vocab + 2 * hidden) + 24 * vocab
    tables = 64 * 4 * (32_768 + 1 + 32_768 // 16)
    page = 28 * kv_heads * 2 * 16 * head_dim * 2
    assert plan.parts_bytes == {
        "weights": 15_000_000_000,
        "kv": plan.num_pages * page,
        "activations": activations,
        "graphs": 7,
        "workspace": tables + int(capacity.HEAP_SHARE * activations),
        "overhead": GIB,
        "swap": 0,
        "speculation": 0,
    }
    assert set(plan.parts_bytes) == set(footprint.PARTS)
    assert 0 <= plan.free_bytes < page
    assert plan.total_bytes + plan.free_bytes + plan.reserve_bytes == 24 * GIB


def test_a_wide_head_of_many_sequences_is_the_peak_of_a_small_step() -> None:
    own = capacity.activations_bytes(SHAPE, 64, 64)
    standing = 4 * (2 * 3584 + 28 * 128 + 128) + 24
    assert own == 64 * standing + 64 * 4 * (152_064 + 2 * 3584) + 24 * 152_064


def test_an_attention_wider_than_the_mlp_is_the_peak() -> None:
    narrow = dataclasses.replace(SHAPE, intermediate_size=8, vocab_size=8)
    assert capacity.step_token_bytes(narrow) == 4 * (3 * 3584 + 28 * 128 + 128) + 24 + 4 * 2 * (28 + 4) * 128


@pytest.mark.parametrize(
    ("num_devices", "kv_heads", "weights"), [(2, 2, 7_500_000_000), (4, 1, 3_750_000_000), (28, 1, 535_714_286)]
)
def test_devices_divide_matrices_and_kv_heads(num_devices: int, kv_heads: int, weights: int) -> None:
    own = capacity.divided(dataclasses.replace(SHAPE, intermediate_size=28 * 512), num_devices)
    assert (own.num_kv_heads, own.weights_bytes) == (kv_heads, weights)
    assert own.num_heads == 28 // num_devices
    assert (own.hidden_size, own.vocab_size, own.num_layers) == (3584, 152_064, 28)  # in full on each


def test_two_devices_hold_more_than_twice_as_many_pages_as_one() -> None:
    one, two = (footprint.of(SHAPE, wanted(num_devices=count)) for count in (1, 2))
    assert two.layout.page_bytes * 2 == one.layout.page_bytes
    assert two.num_pages > 2 * one.num_pages


def test_what_does_not_divide_is_refused_with_what_does() -> None:
    with pytest.raises(errors.CapacityError, match=r"among 3 devices: 28 query heads; 4 KV heads; an MLP 18944 wide"):
        footprint.of(SHAPE, wanted(num_devices=3))


def test_of_a_map_the_device_with_the_dearest_heads_counts() -> None:
    rule = config.PrecisionRule(layers="0-27", heads="3", kind="both", dtype="auto")
    mapped = wanted(kv_dtype="int8", num_devices=2, precision=(rule,))
    one_head = footprint.of(SHAPE, mapped).layout.page_bytes
    plain = footprint.of(SHAPE, wanted(kv_dtype="int8", num_devices=2)).layout.page_bytes
    assert one_head - plain == 28 * 2 * 16 * (128 * 2 - 128 - 4)  # layers, K and V, tokens; a scale less


def test_where_nothing_fits_the_plan_still_has_its_parts() -> None:
    plan = footprint.of(SHAPE, wanted(limit_bytes=12 * GIB))
    assert not plan.fits
    assert plan.num_pages == 0
    assert plan.free_bytes < 0
    assert "Give the service at least" in plan.refusal


def test_calibrated_scales_take_no_room() -> None:
    at_write, fixed = (
        footprint.of(SHAPE, wanted(kv_dtype="int8", fixed_scales=each)).layout.page_bytes for each in (False, True)
    )
    assert at_write - fixed == 28 * 4 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        ({"weights": 103, "kv": 97, "activations": 110}, {}),
        ({"weights": 104, "kv": 96, "activations": 89}, {"weights": 1.04, "kv": 0.96, "activations": 0.89}),
        ({"weights": 100}, {}),
        ({"workspace": 900, "overhead": 1}, {}),
    ],
)
def test_what_is_further_off_than_it_may_be(measured: dict[str, int], missed: dict[str, float]) -> None:
    planned = dict.fromkeys(footprint.PARTS, 100)
    assert footprint.misses(planned, measured) == pytest.approx(missed)
    assert footprint.misses({}, measured) == {}


def test_guesses_take_rows_of_logits_and_a_draft_model_its_part_of_every_page() -> None:
    plain = footprint.of(SHAPE, wanted(swap_bytes=GIB))
    page = plain.parts_bytes["kv"] // plain.num_pages
    draft = capacity.Speculation(num_guesses=4, draft_weights_bytes=10**9, draft_page_bytes=page // 8)
    plan = footprint.of(SHAPE, wanted(swap_bytes=GIB, speculation=draft))
    rows = min(64 * 4, 2048 - 64)
    fixed = 4 * rows * SHAPE.vocab_size + 10**9 + GIB // page * (page // 8)
    assert plan.parts_bytes["speculation"] == fixed + plan.num_pages * (page // 8)
    assert plan.num_pages < plain.num_pages
    assert plan.fits
    assert plan.total_bytes <= plan.usable_bytes


def test_a_draft_model_has_a_step_of_its_own_and_an_index_is_counted_for_every_place() -> None:
    small = known_models.MODELS["qwen2.5-0.5b"].shape(10**9)
    guesses = capacity.guessing(4, draft=small, draft_page_bytes=1000)
    found = footprint.of(SHAPE, wanted(speculation=guesses))
    standing = 4 * (3 * 896 + 14 * 64 + 64) + 24
    logits, step = 4 * 256 * 152_064, 2048 * (standing + 4 * 3 * 4864)
    assert found.parts_bytes["speculation"] == logits + 10**9 + step + found.num_pages * 1000
    on_device = footprint.of(SHAPE, wanted(speculation=capacity.guessing(4, draft=small, item_bytes=2)))
    assert on_device.parts_bytes["speculation"] < logits + 10**9 + step

    index = footprint.of(SHAPE, wanted(speculation=capacity.guessing(4, has_index=True)))
    assert index.parts_bytes["speculation"] == logits + 64 * capacity.guess_index_bytes(32_768)
    short = wanted(speculation=capacity.guessing(4, has_index=True), max_context_tokens=4096)
    assert footprint.of(SHAPE, short).parts_bytes["speculation"] == logits + 64 * capacity.guess_index_bytes(4096)
