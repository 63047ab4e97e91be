"""Whole pages from one place to another: copies within the slab, and to and from a buffer beside it.

A page is one contiguous piece of all layers, so that nothing here knows what is in it. Pages are words of 4 bytes,
four of them a lane: 16 bytes an access. **Bytes:** each page is read once and written once, nothing else.

One program moves `BLOCK` words of one page. A page numbered -1, or any that is not there, is left out: neither read nor
written. What is read and written in one launch must not overlap; nothing here could put it in an order.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _page_of(pages, index, num_pages):
    """Page `index` of a list, int64, and whether it is there; without a list page `index` itself."""
    page = index if pages is None else tl.load(pages + index).to(tl.int64)
    return page, (page >= 0) & (page < num_pages)


@triton.jit(do_not_specialize=["num_sources", "num_targets"])
def move_pages(
    # pointers
    source,
    target,
    source_pages,
    target_pages,
    # sizes
    num_sources,
    num_targets,
    page_words,
    # meta
    BLOCK: tl.constexpr,
):
    """Page `source_pages[i]` of `source` -> page `target_pages[i]` of `target`; without a list, page i."""
    parts = tl.cdiv(page_words, BLOCK)
    index = (tl.program_id(0) // parts).to(tl.int64)
    words = (tl.program_id(0) % parts) * BLOCK + tl.arange(0, BLOCK)
    from_page, is_source = _page_of(source_pages, index, num_sources)
    to_page, is_target = _page_of(target_pages, index, num_targets)
    in_page = words < tl.where(is_source & is_target, page_words, 0)
    moved = tl.load(source + from_page * page_words + words, mask=in_page)
    tl.store(target + to_page * page_words + words, moved, mask=in_page)
