from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.core import block_pool


def test_an_empty_slab_is_refused() -> None:
    with pytest.raises(errors.CapacityError, match="0 pages"):
        block_pool.BlockPool(0)


def test_allocation_is_all_or_nothing() -> None:
    pool = block_pool.BlockPool(4)
    assert pool.allocate(5) is None
    assert pool.num_free == 4
    pages = pool.allocate(4)
    assert pages is not None
    assert sorted(pages) == [0, 1, 2, 3]
    assert pool.allocate(1) is None
    assert pool.allocate(0) == ()


def test_pages_given_back_last_are_handed_out_first() -> None:
    pool = block_pool.BlockPool(100)
    pages = pool.allocate(3)
    assert pages == (0, 1, 2)
    pool.free(pages)
    assert pool.allocate(3) == (0, 1, 2)


@pytest.mark.parametrize("page", [-1, 0, 4])
def test_a_page_that_is_not_held_cannot_be_given_back(page: int) -> None:
    pool = block_pool.BlockPool(4)
    with pytest.raises(block_pool.PoolCorrupted, match=str(page)):
        pool.free([page])


def test_the_sum_is_checked_against_what_the_sequences_believe() -> None:
    pool = block_pool.BlockPool(4)
    pages = pool.allocate(2)
    assert pages is not None
    pool.check_integrity(pages)
    with pytest.raises(block_pool.PoolCorrupted):
        pool.check_integrity(pages[:1])
    with pytest.raises(block_pool.PoolCorrupted):
        pool.check_integrity((*pages, pages[0]))


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_free_and_held_pages_are_always_the_whole_slab(num_pages: int, operations: list[tuple[bool, int]]) -> None:
    pool = block_pool.BlockPool(num_pages)
    held: list[tuple[int, ...]] = []
    for is_allocation, count in operations:
        if is_allocation:
            pages = pool.allocate(count)
            if pages is not None:
                held.append(pages)
        elif held:
            pool.free(held.pop(count % len(held)))
        pool.check_integrity(page for pages in held for page in pages)
        assert pool.num_used == sum(map(len, held))
