"""Whole pages on a device: every byte where it belongs, and no other byte touched."""

from __future__ import annotations

from collections.abc import Sequence

import kernel_case
import pytest
import torch

from tidemark_kernels import reference_pages
from tidemark_kernels.device import pages
from tidemark_kernels.tuning import pages as tuning

ALWAYS = frozenset({"poisoned output", "poisoned pages", "permuted pages", "every dtype", "precision map"})
"""Pages are taken in any order, all others and what is written to are 255 before, and bytes have no dtype."""
NUM_PAGES = 9


def slab_of(page_bytes: int, used: Sequence[int]) -> torch.Tensor:
    """Pages that are not used hold NaN of every dtype."""
    slab = torch.full((NUM_PAGES, page_bytes), 0xFF, dtype=torch.uint8)
    for page in used:
        generator = torch.Generator().manual_seed(page)
        slab[page] = torch.randint(0, 256, (page_bytes,), generator=generator, dtype=torch.uint8)
    return slab


def copied(page_bytes: int, pairs: Sequence[tuple[int, int]]) -> list[kernel_case.Compared]:
    sources, targets = (torch.tensor([pair[i] for pair in pairs], dtype=torch.int32) for i in (0, 1))
    slab = slab_of(page_bytes, [page for page in sources.tolist() if 0 <= page < NUM_PAGES])
    wanted = reference_pages.copy_pages(slab.clone(), sources, targets)
    return [kernel_case.Compared(pages.copy_pages(slab, sources, targets), wanted, 0.0)]


def gathered(page_bytes: int, listed: Sequence[int]) -> list[kernel_case.Compared]:
    numbers = torch.tensor(listed, dtype=torch.int32)
    slab = slab_of(page_bytes, range(0, NUM_PAGES, 2))
    before, poison = slab.clone(), torch.full((len(listed), page_bytes), 0xFF, dtype=torch.uint8)
    wanted = reference_pages.gather_pages(slab, numbers, poison.clone())
    fresh = reference_pages.gather_pages(slab, numbers)
    return [
        kernel_case.Compared(pages.gather_pages(slab, numbers, poison), wanted, 0.0),
        kernel_case.Compared(pages.gather_pages(slab, numbers), fresh, 0.0),
        kernel_case.Compared(slab, before, 0.0),
    ]


def scattered(page_bytes: int, listed: Sequence[int]) -> list[kernel_case.Compared]:
    numbers = torch.tensor(listed, dtype=torch.int32)
    slab = slab_of(page_bytes, [])
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(0, 256, (len(listed), page_bytes), generator=generator, dtype=torch.uint8)
    wanted = reference_pages.scatter_pages(slab.clone(), numbers, source)
    return [kernel_case.Compared(pages.scatter_pages(slab, numbers, source), wanted, 0.0)]


def cases(op: str, covers: set[str], page_bytes: int, listed: Sequence[int]) -> kernel_case.Case:
    name = f"{page_bytes} bytes, pages {list(listed)}"
    free = iter(page for page in range(NUM_PAGES) if page not in listed)
    run = {
        "copy_pages": lambda: copied(page_bytes, [(page, next(free)) for page in listed]),
        "gather_pages": lambda: gathered(page_bytes, listed),
        "scatter_pages": lambda: scattered(page_bytes, listed),
    }[op]
    return kernel_case.Case(op, name, ALWAYS | covers, run)


OPS = ("copy_pages", "gather_pages", "scatter_pages")
CASES: tuple[kernel_case.Case, ...] = (
    *(cases(op, {"odd shape"}, size, (7, 0, 4)) for op in OPS for size in (64, 192, 2048, 2112, 16448)),
    *(cases(op, {"page border"}, 8192, (0, NUM_PAGES - 1)) for op in OPS),
    *(cases(op, {"one token"}, 320, (5,)) for op in OPS),
    *(cases(op, {"empty"}, 320, ()) for op in OPS),
    *(cases(op, set(), 320, (-1, 3, NUM_PAGES, 1)) for op in OPS),
    kernel_case.Case(
        "copy_pages", "a target that is not there", ALWAYS, lambda: copied(320, [(1, -1), (2, 9), (3, 5)])
    ),
)
LACKS: dict[str, dict[str, str]] = {}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: kernel_case.Case) -> None:
    kernel_case.check(case)


SLAB = torch.zeros(4, 128, dtype=torch.uint8)
LIST = torch.zeros(2, dtype=torch.int32)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: pages.copy_pages(SLAB, LIST, LIST[:1]), r"targets is int32 \[1\]"),
        (lambda: pages.copy_pages(SLAB, LIST.long(), LIST), r"sources is int64 \[2\]"),
        (lambda: pages.copy_pages(SLAB[:, :64], LIST, LIST), "slab is non-contiguous uint8"),
        (
            lambda: pages.gather_pages(torch.zeros(4, 96, dtype=torch.uint8), LIST),
            "96 bytes, expected a multiple of 64",
        ),
        (lambda: pages.gather_pages(SLAB, LIST, SLAB), r"out is uint8 \[4, 128\]"),
        (lambda: pages.scatter_pages(SLAB, LIST, SLAB[1:2]), r"source is uint8 \[1, 128\]"),
        (lambda: pages.scatter_pages(SLAB, LIST, torch.zeros(2, 128)), r"source is float32 \[2, 128\]"),
        (
            lambda: pages.scatter_pages(SLAB, LIST[:1], torch.zeros(129, dtype=torch.uint8)[1:].view(1, 128)),
            "source begins at address .* expected a multiple of 16",
        ),
    ],
)
def test_wrong_arguments_are_refused(act: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()  # type: ignore[operator]


def test_every_page_has_a_form_that_is_compiled() -> None:
    compiled = {one.constants["BLOCK"] for one in tuning.variants()}
    assert {tuning.row(words).block for words in (16, 4096, 4112, 10**6)} == compiled
