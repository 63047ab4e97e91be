"""Whole pages of KV memory: copied within the slab, and swapped to and from a contiguous buffer."""

from __future__ import annotations

import torch

from tidemark_kernels.device import arguments
from tidemark_kernels.jit import pages as jit
from tidemark_kernels.tuning import pages as tuning

_INT32 = (torch.int32,)
_PAGE_MULTIPLE = 64
"""Of a page's bytes: `planning.page_layout` aligns pages to it."""


def copy_pages(slab: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Page `sources[i]` -> page `targets[i]`, both int32 `[num_pages_copied]`, within slab uint8 `[num_pages,
    page_bytes]`, which is returned. A pair of which one is not there (-1) is left out.

    No target may be a source, nor a target twice: copies have no order. The caller sees to it.
    """
    _check_slab(slab)
    arguments.tensor("sources", sources, _INT32, (-1,), slab.device)
    arguments.tensor("targets", targets, _INT32, (sources.shape[0],), slab.device)
    _move(slab, slab, sources, targets, sources.shape[0])
    return slab


def gather_pages(slab: torch.Tensor, pages: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """pages int32 `[num_gathered]` of slab uint8 `[num_pages, page_bytes]` -> uint8 `[num_gathered, page_bytes]`.

    `out` may be pinned memory of the host, which the device then writes to. Where a page is not there (-1), `out` stays
    as it is; without `out` there are zeros.
    """
    _check_slab(slab)
    arguments.tensor("pages", pages, _INT32, (-1,), slab.device)
    if out is None:
        out = slab.new_zeros(pages.shape[0], slab.shape[1])
    else:
        _check_buffer("out", out, slab, pages.shape[0])
    _move(slab, out, pages, None, pages.shape[0])
    return out


def scatter_pages(slab: torch.Tensor, pages: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """source uint8 `[num_scattered, page_bytes]`, on the device or pinned, -> pages int32 `[num_scattered]` of slab
    uint8 `[num_pages, page_bytes]`, which is returned. A page that is not there (-1) is left out; none may occur twice.
    """
    _check_slab(slab)
    arguments.tensor("pages", pages, _INT32, (-1,), slab.device)
    _check_buffer("source", source, slab, pages.shape[0])
    _move(source, slab, None, pages, pages.shape[0])
    return slab


def _check_slab(slab: torch.Tensor) -> None:
    arguments.pages(slab)
    if slab.shape[1] % _PAGE_MULTIPLE:
        raise ValueError(f"slab has pages of {slab.shape[1]} bytes, expected a multiple of {_PAGE_MULTIPLE}")


def _check_buffer(name: str, buffer: torch.Tensor, slab: torch.Tensor, num_pages: int) -> None:
    device = None if buffer.is_pinned() else slab.device
    arguments.tensor(name, buffer, (torch.uint8,), (num_pages, slab.shape[1]), device)
    if buffer.data_ptr() % arguments.ACCESS_BYTES:
        raise ValueError(
            f"{name} begins at address {buffer.data_ptr():#x}, expected a multiple of {arguments.ACCESS_BYTES}"
        )


def _move(
    source: torch.Tensor,
    target: torch.Tensor,
    source_pages: torch.Tensor | None,
    target_pages: torch.Tensor | None,
    num_moved: int,
) -> None:
    words = source.shape[1] // 4
    form = tuning.row(words)
    num_programs = num_moved * -(-words // form.block)
    if not num_programs:
        return
    jit.move_pages[(num_programs,)](
        *(source.view(torch.int32), target.view(torch.int32), source_pages, target_pages),
        *(source.shape[0], target.shape[0], words),
        BLOCK=form.block,
        num_warps=form.num_warps,
    )
