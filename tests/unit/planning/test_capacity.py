"""The engine's arithmetic before there is an engine."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.planning import capacity

MIB = 1 << 20
SHAPE = capacity.KNOWN_SHAPES["smollm2-135m"]
PAGE_BYTES = 2 * 30 * 3 * 64 * 16 * 4


def wanted(**changes: Any) -> capacity.Wanted:
    terms: dict[str, Any] = {
        "kv_dtype": "float32",
        "block_size": 16,
        "memory_utilization": 0.9,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "max_context_tokens": None,
        "limit_bytes": 4096 * MIB,
    }
    return capacity.Wanted(**{**terms, **changes})


def test_swap_space_is_taken_from_the_slab_in_whole_pages() -> None:
    plain = capacity.plan(SHAPE, wanted())
    with_swap = capacity.plan(SHAPE, wanted(swap_bytes=10 * PAGE_BYTES + 5))
    assert plain.page_bytes == PAGE_BYTES
    assert plain.num_pages - with_swap.num_pages == 10
    assert with_swap.parts_bytes == {
        **plain.parts_bytes,
        "kv": plain.kv_bytes - 10 * PAGE_BYTES,
        "swap": 10 * PAGE_BYTES,
    }


@pytest.mark.parametrize(
    ("swap_bytes", "message"),
    [
        (1024, r"kvCache\.swapSpace: got 1024, expected 0 or at least one page of 16 tokens, 737280 bytes"),
        (8192 * MIB, r"swap space 8,19\d MiB .* Lower kvCache\.swapSpace to at most"),
    ],
)
def test_swap_space_that_cannot_be_is_a_capacity_error(swap_bytes: int, message: str) -> None:
    with pytest.raises(errors.CapacityError, match=message):
        capacity.plan(SHAPE, wanted(swap_bytes=swap_bytes))
