"""Several pages that keep the same: found as long as one of them is held, and one stays when none is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime.core import block_pool


def held(pool: block_pool.BlockPool, count: int = 1) -> tuple[int, ...]:
    pages = pool.allocate(count)
    assert pages is not None
    return pages


def publish(pool: block_pool.BlockPool, pages: tuple[int, ...], text: bytes = b"text") -> block_pool.Block | None:
    """The last of a chain of blocks, one for each of `pages`."""
    parent, block = 0, None
    for index, page in enumerate(pages):
        block = pool.publish(page, parent, text[: index + 1], text[index : index + 1])
        if block is None:
            return None
        parent = block.serial
    return block


def found(pool: block_pool.BlockPool, text: bytes = b"text") -> list[int]:
    pages, parent = [], 0
    for index in range(len(text)):
        block = pool.find(parent, text[: index + 1], text[index : index + 1])
        if block is None:
            break
        pages.append(block.page)
        parent = block.serial
    return pages


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_a_held_copy_is_found_when_the_other_one_is_let_go(first_to_go: int) -> None:
    pool = block_pool.BlockPool(12)
    copies = [held(pool, 4), held(pool, 4)]
    for pages in copies:
        publish(pool, pages)
    pool.free(copies[first_to_go])
    assert found(pool) == list(copies[1 - first_to_go])
    assert (pool.num_cached, pool.num_used) == (0, 4)
    other = held(pool, 8)  # takes all that is free
    assert pool.num_evictions == 0
    assert found(pool) == list(copies[1 - first_to_go])
    pool.check_integrity((*copies[1 - first_to_go], *other))


def test_one_copy_stays_when_nobody_holds_any() -> None:
    pool = block_pool.BlockPool(12)
    copies = [held(pool, 4) for _ in range(3)]
    for pages in copies:
        publish(pool, pages)
    for pages in copies:
        pool.free(pages)
    assert (pool.num_cached, pool.num_free) == (4, 12)
    assert found(pool) == list(copies[2])
    pool.check_integrity(())


def test_a_copy_that_nobody_holds_gives_way_to_one_that_is_held() -> None:
    pool = block_pool.BlockPool(8)
    gone, going = held(pool, 4), held(pool, 4)
    publish(pool, gone)
    pool.free(gone)
    assert pool.num_cached == 4
    publish(pool, going)
    assert (pool.num_cached, pool.num_free) == (0, 4)
    assert found(pool) == list(going)
    pool.check_integrity(going)


def test_the_tail_goes_before_the_head_whoever_let_go_first() -> None:
    pool = block_pool.BlockPool(8)
    short, long = held(pool, 2), held(pool, 4)
    publish(pool, short)
    publish(pool, long)
    pool.free(long)
    assert found(pool) == [*short, *long[2:]]
    pool.free(short)
    for left in (3, 2, 1, 0):
        held(pool, pool.num_free - left)
        assert len(found(pool)) == left
        pool = block_pool.BlockPool(8)
        short, long = held(pool, 2), held(pool, 4)
        publish(pool, short)
        publish(pool, long)
        pool.free(long)
        pool.free(short)


def test_what_comes_after_a_copy_is_found_when_the_copy_published_first_is_gone() -> None:
    pool = block_pool.BlockPool(6)
    gone, going = held(pool, 2), held(pool, 3)
    publish(pool, gone)
    first = pool.publish(going[0], 0, b"t", b"t")
    assert first is not None
    pool.free(gone)
    held(pool, pool.num_free)
    second = pool.publish(going[1], first.serial, b"te", b"e")
    assert second is not None
    assert found(pool) == [going[0], going[1]]


def test_a_page_is_published_once() -> None:
    pool = block_pool.BlockPool(4)
    page = held(pool)
    publish(pool, page)
    with pytest.raises(block_pool.PoolCorrupted, match="before"):
        publish(pool, page)


def test_the_check_notices_a_copy_too_many() -> None:
    pool = block_pool.BlockPool(4)
    copies = held(pool), held(pool)
    for page in copies:
        publish(pool, page)
    pool._num_holders[copies[0][0]] = 0
    pool._cached[copies[0][0]] = None
    with pytest.raises(block_pool.PoolCorrupted, match="another copy"):
        pool.check_integrity()


OPERATIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 5)), max_size=60)
TEXTS = (b"aaaaa", b"aabbb", b"ccccc")


@given(OPERATIONS)
def test_whatever_a_holder_published_is_found_while_it_holds(operations: list[tuple[int, int, int]]) -> None:
    """Holders come as the scheduler lets them: with what is found, and with pages of their own for the rest."""
    pool = block_pool.BlockPool(20)
    holders: list[tuple[bytes, tuple[int, ...], int]] = []
    for what, first, second in operations:
        if what <= 1:
            text = TEXTS[first % len(TEXTS)]
            hits = found(pool, text)[:second]
            idle = pool.num_cached_among(hits)
            if pool.num_free >= 5 - len(hits) + idle:
                pool.share(hits)
                holders.append((text, (*hits, *held(pool, 5 - len(hits))), len(hits)))
        elif what == 2 and holders:
            text, pages, num_published = holders.pop(first % len(holders))
            last = publish_from(pool, text, pages, num_published, max(num_published, second))
            holders.append((text, pages, last))
        elif holders:
            pool.free(holders.pop(first % len(holders))[1])
        pool.check_integrity(page for _, pages, _ in holders for page in pages)
        for text, _, num_published in holders:
            assert len(found(pool, text)) >= num_published


def publish_from(pool: block_pool.BlockPool, text: bytes, pages: tuple[int, ...], start: int, end: int) -> int:
    parent = 0
    for index in range(end):
        key, tokens = text[: index + 1], text[index : index + 1]
        made = pool.find(parent, key, tokens) if index < start else pool.publish(pages[index], parent, key, tokens)
        assert made is not None
        parent = made.serial
    return end
