"""How many requests fit, and what so many need; the two agree."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.planning import capacity, concurrency, footprint, known_models, rule_of_thumb

GIB = 1 << 30
SHAPE = known_models.MODELS["qwen2.5-0.5b"].shape(1_000_000_000)
ROOM = concurrency.Room(num_pages=1000, block_size=16, max_num_seqs=64, max_context_tokens=8192, queue_watermark=0.7)


def wanted(**changes: Any) -> capacity.Wanted:
    terms: dict[str, Any] = {
        "kv_dtype": "float32",
        "block_size": 16,
        "memory_utilization": 0.9,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "max_context_tokens": None,
        "limit_bytes": 4 * GIB,
    }
    return capacity.Wanted(**{**terms, **changes})


def test_a_length_takes_whole_pages() -> None:
    found = concurrency.of_length(ROOM, concurrency.Length(512, 257))
    assert (found.pages, found.by_memory, found.before_line) == (49, 20, 14)
    assert (found.num_requests, found.bound_by) == (20, "memory")


def test_places_bound_short_requests_and_the_context_long_ones() -> None:
    short = concurrency.of_length(ROOM, concurrency.Length(16, 16))
    assert (short.by_memory, short.num_requests, short.bound_by) == (500, 64, "maxNumSeqs")
    long = concurrency.of_length(ROOM, concurrency.Length(8192, 1))
    assert (long.num_requests, long.bound_by) == (0, "maxContextTokens")


def test_a_mix_counts_its_mean() -> None:
    found = concurrency.of_mix(ROOM, [concurrency.Length(100, 60), concurrency.Length(1000, 600)])
    assert (found.pages, found.by_memory) == (55, 18)
    assert found.num_tokens == 880


@pytest.mark.parametrize("text", ["2048", "0+5", "5+0", "a+b", "1+2+3", "-1+5", "", "9" * 40 + "+1", "٣+٤"])
def test_a_length_that_is_none(text: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"--length: got .* such as 2048\+512"):
        concurrency.parse_length(text, "--length")


@given(
    users=st.integers(1, 300),
    prompt=st.integers(1, 4000),
    output=st.integers(1, 500),
    dtype=st.sampled_from(["float32", "bfloat16", "int8"]),
)
def test_what_so_many_need_is_what_holds_so_many(users: int, prompt: int, output: int, dtype: str) -> None:
    length = concurrency.Length(prompt, output)
    asked = wanted(max_num_seqs=users)
    (need,) = concurrency.needs(SHAPE, asked, users, length, [dtype])
    exact = dataclasses.replace(asked, kv_dtype=dtype, limit_bytes=need.limit_bytes)
    plan = footprint.of(SHAPE, exact)
    room = concurrency.Room(
        num_pages=plan.num_pages, block_size=16, max_num_seqs=users, max_context_tokens=32_768, queue_watermark=1.0
    )
    assert concurrency.of_length(room, length).by_memory >= users
    smaller = footprint.of(SHAPE, dataclasses.replace(exact, limit_bytes=need.limit_bytes - 2 * plan.layout.page_bytes))
    fewer = dataclasses.replace(room, num_pages=smaller.num_pages)
    assert concurrency.of_length(fewer, length).by_memory < users
    assert need.fits == (need.limit_bytes <= 4 * GIB)


def test_more_users_than_places_need_their_places_too() -> None:
    few, many = (concurrency.needs(SHAPE, wanted(), users, concurrency.Length(10, 6), ["int8"]) for users in (64, 65))
    assert many[0].kv_bytes - few[0].kv_bytes < many[0].limit_bytes - few[0].limit_bytes


def test_the_rule_by_hand() -> None:
    token = 2 * 24 * 2 * 64 * 2
    found = rule_of_thumb.promise(SHAPE, "bfloat16", 10 * GIB, 1000)
    assert found.request_kv_bytes == token * 1000
    assert found.num_requests == int((0.8 * 10 * GIB / 1.2 - 1_000_000_000) / (token * 1000))
    assert found.num_requests < found.num_requests_most
    assert found.needed_bytes(SHAPE.weights_bytes, found.num_requests) <= 10 * GIB
    assert found.needed_bytes(SHAPE.weights_bytes, found.num_requests + 1) > 10 * GIB


def test_the_rule_promises_nothing_where_the_weights_are_too_much() -> None:
    assert rule_of_thumb.promise(SHAPE, "bfloat16", GIB, 1000).num_requests == 0


@pytest.mark.parametrize(
    ("promised", "ours", "bound_by", "words"),
    [
        (20, 10, "memory", "Ours (10) is safer: the rule (20) counts no framework"),
        (20, 10, "maxNumSeqs", "Ours (10) is safer: it stops at maxNumSeqs"),
        (10, 20, "memory", "Both hold; the rule (10) is more careful"),
        (10, 10, "memory", "Both say 10."),
    ],
)
def test_one_sentence_says_which_is_safer(promised: int, ours: int, bound_by: str, words: str) -> None:
    assert rule_of_thumb.verdict(promised, ours, bound_by).startswith(words)
