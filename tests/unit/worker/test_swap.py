"""Whole pages between slab and swap space."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import slab, swap

PAGE_BYTES = 24
NUM_PAGES = 5
NUM_HOST_PAGES = 3


def new_slab() -> torch.Tensor:
    """Every byte of every page differs from its neighbours."""
    pages = slab.allocate(NUM_PAGES, PAGE_BYTES)
    pages[:] = torch.arange(NUM_PAGES * PAGE_BYTES, dtype=torch.uint8).view(NUM_PAGES, PAGE_BYTES)
    return pages


PAIRS = st.lists(
    st.tuples(st.booleans(), st.integers(0, NUM_PAGES - 1), st.integers(0, NUM_HOST_PAGES - 1)), max_size=20
)


@given(PAIRS)
def test_copies_equal_a_loop_over_bytes(pairs: list[tuple[bool, int, int]]) -> None:
    pages = new_slab()
    space = swap.SwapSpace(pages, NUM_HOST_PAGES)
    expected, host = pages.numpy().copy(), np.zeros((NUM_HOST_PAGES, PAGE_BYTES), dtype=np.uint8)
    for out, page, host_page in pairs:
        (space.copy_out if out else space.copy_in)([step_plan.Copy(page, host_page)])
        for place in range(PAGE_BYTES):
            if out:
                host[host_page, place] = expected[page, place]
            else:
                expected[page, place] = host[host_page, place]
    assert np.array_equal(pages.numpy(), expected)


def test_a_round_trip_to_other_pages_is_equal_byte_for_byte() -> None:
    pages = new_slab()
    kept = pages.clone()
    space = swap.SwapSpace(pages, NUM_HOST_PAGES)
    space.copy_out([step_plan.Copy(4, 1), step_plan.Copy(0, 2), step_plan.Copy(3, 0)])
    pages.zero_()
    space.copy_in([step_plan.Copy(1, 0), step_plan.Copy(2, 1), step_plan.Copy(3, 2)])
    assert torch.equal(pages[1:4], kept[[3, 4, 0]])
    assert not pages[[0, 4]].any()


@pytest.mark.parametrize("copy", [(-1, 0), (NUM_PAGES, 0), (0, -1), (0, NUM_HOST_PAGES)])
def test_pages_that_there_are_not_stop_and_nothing_is_copied(copy: tuple[int, int]) -> None:
    pages = new_slab()
    space = swap.SwapSpace(pages, NUM_HOST_PAGES)
    copies = [step_plan.Copy(1, 1), step_plan.Copy(*copy)]
    kept = pages.clone()
    for move in (space.copy_out, space.copy_in):
        with pytest.raises(ValueError, match="the slab has 5 pages, the swap space has 3"):
            move(copies)
    assert torch.equal(pages, kept)


def test_two_copies_to_one_page_stop_and_from_one_page_do_not() -> None:
    pages = new_slab()
    space = swap.SwapSpace(pages, NUM_HOST_PAGES)
    to_one_host_page = [step_plan.Copy(0, 1), step_plan.Copy(1, 1)]
    to_one_page = [step_plan.Copy(1, 0), step_plan.Copy(1, 1)]
    with pytest.raises(ValueError, match="write to the same page"):
        space.copy_out(to_one_host_page)
    with pytest.raises(ValueError, match="write to the same page"):
        space.copy_in(to_one_page)
    space.copy_out(to_one_page)
    space.copy_in(to_one_host_page)
    assert torch.equal(pages[0], pages[1])


def test_measuring_takes_time_and_changes_nothing() -> None:
    pages = new_slab()
    kept = pages.clone()
    assert 0 < swap.SwapSpace(pages, NUM_HOST_PAGES).measure() < 1
    assert torch.equal(pages, kept)


def test_without_pages_there_is_nothing_to_measure() -> None:
    space = swap.SwapSpace(new_slab(), 0)
    assert (space.num_pages, space.measure()) == (0, 0.0)


def test_an_address_space_that_the_system_refuses_names_the_setting() -> None:
    with pytest.raises(errors.CapacityError, match=r"Lower kvCache\.swapSpace"):
        swap.SwapSpace(new_slab(), 1 << 58)
