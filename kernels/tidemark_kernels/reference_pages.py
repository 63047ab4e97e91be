"""What `device.pages` does, in plain torch: same names, same arguments."""

from __future__ import annotations

import torch


def copy_pages(slab: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Page `sources[i]` -> page `targets[i]` of slab `[num_pages, page_bytes]`; pairs with one that is not there are
    left out."""
    is_pair = _there(sources, len(slab)) & _there(targets, len(slab))
    slab[targets[is_pair].long()] = slab[sources[is_pair].long()]
    return slab


def gather_pages(slab: torch.Tensor, pages: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """pages `[num_gathered]` of slab -> `[num_gathered, page_bytes]`; where none is there, `out` stays as it is."""
    out = slab.new_zeros(len(pages), slab.shape[1]) if out is None else out
    is_page = _there(pages, len(slab))
    out[is_page] = slab[pages[is_page].long()]
    return out


def scatter_pages(slab: torch.Tensor, pages: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """source `[num_scattered, page_bytes]` -> pages `[num_scattered]` of slab."""
    is_page = _there(pages, len(slab))
    slab[pages[is_page].long()] = source[is_page]
    return slab


def _there(pages: torch.Tensor, num_pages: int) -> torch.Tensor:
    return (pages >= 0) & (pages < num_pages)
