"""The sum that decides how many pages there are, and what it says when it does not work out."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.planning import page_layout, pool_size

MIB = pool_size.MIB_BYTES
LAYOUT = page_layout.PageLayout(page_layout.KVShape(num_layers=4, num_kv_heads=2, head_dim=64), 16, "float32")
"""64 KiB a page."""


def decide(
    *, num_pages: int | None = None, memory: int | None = None, utilization: float = 0.9, **demand: Any
) -> pool_size.PoolSize:
    terms = {
        "limit_bytes": 1000 * MIB,
        "weights_bytes": 300 * MIB,
        "workspace_bytes": 100 * MIB,
        "overhead_bytes": 200 * MIB,
        "max_num_seqs": 1000,
        "max_context_tokens": 4096,
    }
    wishes = pool_size.Wishes(memory_utilization=utilization, num_pages=num_pages, memory_bytes=memory)
    return pool_size.decide(LAYOUT, wishes, pool_size.Demand(**{**terms, **demand}))


def test_the_rest_of_the_usable_share_is_the_slab() -> None:
    size = decide()
    assert LAYOUT.page_bytes == 65536
    assert size.num_pages == (900 - 600) * 16
    assert size.decided_by == "memoryUtilization"
    assert size.parts_bytes == {"weights": 300 * MIB, "kv": 300 * MIB, "workspace": 100 * MIB, "overhead": 200 * MIB}


def test_never_more_than_all_requests_at_full_context_can_use() -> None:
    size = decide(max_num_seqs=3, max_context_tokens=100)
    assert size.num_pages == size.useful_pages == 3 * 7
    assert size.decided_by == "maxNumSeqs"
    assert decide(num_pages=50, max_num_seqs=3, max_context_tokens=100).num_pages == 21


@pytest.mark.parametrize(
    ("wish", "num_pages", "decided_by"),
    [({"num_pages": 7}, 7, "numPages"), ({"memory": 10 * MIB + 1}, 160, "memory"), ({"memory": 65536}, 1, "memory")],
)
def test_what_is_asked_for_is_taken(wish: dict[str, int], num_pages: int, decided_by: str) -> None:
    size = decide(**wish)
    assert (size.num_pages, size.decided_by) == (num_pages, decided_by)


@pytest.mark.parametrize("utilization", [0.05, 0.3, 0.6, 0.601, 0.75, 0.9, 1.0])
def test_the_sum_never_exceeds_the_usable_share(utilization: float) -> None:
    if utilization <= 0.6:
        with pytest.raises(errors.CapacityError):
            decide(utilization=utilization)
        return
    size = decide(utilization=utilization)
    assert sum(size.parts_bytes.values()) <= size.usable_bytes
    assert sum(size.parts_bytes.values()) + size.page_bytes > size.usable_bytes


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (
            {"utilization": 0.5},
            "the model does not fit: weights 300 MiB + workspace 100 MiB + overhead 200 MiB + KV 0.1 MiB (1 pages of "
            "0.1 MiB) = 600 MiB, but 500 MiB usable (1,000 MiB x memoryUtilization 0.5); 100 MiB too much. "
            "Raise kvCache.memoryUtilization to at least 0.61",
        ),
        (
            {"limit_bytes": 400 * MIB},
            "the model does not fit: weights 300 MiB + workspace 100 MiB + overhead 200 MiB + KV 0.1 MiB (1 pages of "
            "0.1 MiB) = 600 MiB, but 360 MiB usable (400 MiB x memoryUtilization 0.9); 240 MiB too much. "
            "Give the service at least 667 MiB, or choose a smaller model or quantization",
        ),
        (
            {"num_pages": 8000},
            "the model does not fit: weights 300 MiB + workspace 100 MiB + overhead 200 MiB + KV 500 MiB (8000 pages "
            "of 0.1 MiB) = 1,100 MiB, but 1,000 MiB usable; 100 MiB too much. "
            "Lower kvCache.numPages to at most 6400, or give the service more memory",
        ),
        (
            {"memory": 500 * MIB},
            "the model does not fit: weights 300 MiB + workspace 100 MiB + overhead 200 MiB + KV 500 MiB (8000 pages "
            "of 0.1 MiB) = 1,100 MiB, but 1,000 MiB usable; 100 MiB too much. "
            f"Lower kvCache.memory to at most {400 * MIB} bytes, or give more memory",
        ),
        (
            {"memory": 1000},
            "kvCache.memory: got 1000 bytes, but one page of 16 tokens takes 65536 bytes. "
            "Set kvCache.memory to at least 65536, or leave it out",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_sum(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.CapacityError) as caught:
        decide(**wish)
    assert str(caught.value) == message


def test_swap_space_takes_its_part() -> None:
    size = decide(swap_bytes=50 * MIB)
    assert size.num_pages == (900 - 650) * 16
    assert size.parts_bytes["swap"] == 50 * MIB
    assert sum(size.parts_bytes.values()) == size.usable_bytes


@pytest.mark.parametrize(
    ("wish", "end"),
    [
        (
            {"swap_bytes": 400 * MIB},
            "swap space 400 MiB + KV 0.1 MiB (1 pages of 0.1 MiB) = 1,000 MiB, but 900 MiB usable (1,000 MiB x "
            "memoryUtilization 0.9); 100 MiB too much. "
            f"Lower kvCache.swapSpace to at most {300 * MIB - 65536} bytes, or give the service more memory",
        ),
        (
            {"swap_bytes": 500 * MIB, "num_pages": 160},
            "swap space 500 MiB + KV 10.0 MiB (160 pages of 0.1 MiB) = 1,110 MiB, but 1,000 MiB usable; 110 MiB too "
            f"much. Lower kvCache.swapSpace to at most {390 * MIB} bytes, or give the service more memory",
        ),
        (
            {"swap_bytes": 500 * MIB, "memory": 400 * MIB},
            "swap space 500 MiB + KV 400 MiB (6400 pages of 0.1 MiB) = 1,500 MiB, but 1,000 MiB usable; 500 MiB too "
            "much. Set kvCache.swapSpace to 0, or give the service more memory",
        ),
        (
            {"swap_bytes": 100 * MIB, "num_pages": 8000},
            "swap space 100 MiB + KV 500 MiB (8000 pages of 0.1 MiB) = 1,200 MiB, but 1,000 MiB usable; 200 MiB too "
            "much. Lower kvCache.numPages to at most 4800, lower kvCache.swapSpace, or give the service more memory",
        ),
        (
            {"swap_bytes": 100 * MIB, "memory": 350 * MIB},
            "swap space 100 MiB + KV 350 MiB (5600 pages of 0.1 MiB) = 1,050 MiB, but 1,000 MiB usable; 50.0 MiB too "
            f"much. Lower kvCache.memory to at most {300 * MIB} bytes, lower kvCache.swapSpace, or give more memory",
        ),
        (
            {"swap_bytes": 500 * MIB, "num_pages": 8000},
            "swap space 500 MiB + KV 500 MiB (8000 pages of 0.1 MiB) = 1,600 MiB, but 1,000 MiB usable; 600 MiB too "
            "much. Give the service at least 1,600 MiB, or choose a smaller model or quantization",
        ),
    ],
)
def test_swap_space_that_does_not_fit_is_refused_with_the_sum(wish: dict[str, Any], end: str) -> None:
    with pytest.raises(errors.CapacityError) as caught:
        decide(**wish)
    assert str(caught.value) == (
        f"the model does not fit: weights 300 MiB + workspace 100 MiB + overhead 200 MiB + {end}"
    )


def test_swap_space_is_whole_pages() -> None:
    page_bytes = LAYOUT.page_bytes
    sizes = (0, page_bytes, 2 * page_bytes - 1, 2 * page_bytes)
    assert [pool_size.num_swap_pages(LAYOUT, size) for size in sizes] == [0, 1, 1, 2]
    for size in (1, page_bytes - 1):
        with pytest.raises(errors.ConfigError) as caught:
            pool_size.num_swap_pages(LAYOUT, size)
        assert str(caught.value) == (
            f"kvCache.swapSpace: got {size}, expected 0 or at least one page of 16 tokens, 65536 bytes. "
            "Raise it, or set it to 0: pages of preempted requests are then computed again"
        )


def test_following_the_advice_makes_it_fit() -> None:
    assert decide(utilization=0.61).num_pages >= 1
    assert decide(limit_bytes=667 * MIB).num_pages >= 1
    assert decide(limit_bytes=400 * MIB, utilization=1.0, weights_bytes=99 * MIB).num_pages >= 1
    assert decide(num_pages=6400).num_pages == 6400
    assert decide(memory=400 * MIB).num_pages == 6400
    assert decide(swap_bytes=300 * MIB - 65536).num_pages == 1
    assert decide(swap_bytes=390 * MIB, num_pages=160).num_pages == 160
    assert decide(swap_bytes=0, memory=400 * MIB).num_pages == 6400
    assert decide(swap_bytes=100 * MIB, num_pages=4800).num_pages == 4800
    assert decide(swap_bytes=500 * MIB, num_pages=8000, limit_bytes=1600 * MIB).num_pages == 8000
