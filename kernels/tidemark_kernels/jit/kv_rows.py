"""Rows of K and V into pages: elements as they are, or codes of 8 bits and a scale (`quantize`).

A tile of heads of one token goes to one page. Where each head's segment begins in it, and its dtype, is read from the
table of segments (`segments.py`); of the dtypes that occur, each is stored for the heads that have it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import kv_heads, quantize

K = tl.constexpr(0)
V = tl.constexpr(1)
_FIELDS = tl.constexpr(3)
"""Of a segment in the table: `layout.ELEMENTS`, `SCALES`, `CODE`."""


@triton.jit
def _largest_bits(first, second, others, REST: tl.constexpr):
    """Of the magnitudes of each head, [HEADS]: as whole numbers, in which a NaN is above all others."""
    largest = tl.max(tl.maximum(quantize.magnitude_bits(first), quantize.magnitude_bits(second)), axis=1)
    if REST > 1:
        largest = tl.maximum(largest, tl.max(quantize.magnitude_bits(others), axis=1))
    return largest


@triton.jit
def _write_numbers(
    page,
    elements,
    row,
    first,
    second,
    others,
    is_written,
    CODE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """Heads whose segments are of the dtype `CODE` of 16 or 32 bits."""
    dtype: tl.constexpr = tl.float32 if CODE == quantize.F32 else tl.float16 if CODE == quantize.F16 else tl.bfloat16
    ROW_BYTES: tl.constexpr = HEAD_DIM * (4 if CODE == quantize.F32 else 2)
    rows = (page + elements[:, None] + row * ROW_BYTES).to(tl.pointer_type(dtype))
    kv_heads.store(rows, first, second, others, is_written[:, None], HEAD_DIM, ROTARY_DIM, HALF, REST)


@triton.jit
def _write_codes(
    page,
    elements,
    scale_at,
    fixed,
    row,
    first,
    second,
    others,
    is_written,
    CODE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """Heads whose segments are of the 8-bit dtype `CODE`: elements, and a scale where it is in the page."""
    inverse, scale = quantize.scales_of(_largest_bits(first, second, others, REST), fixed, CODE)
    first = quantize.to_code(quantize.scaled(first, inverse, CODE), CODE)
    second = quantize.to_code(quantize.scaled(second, inverse, CODE), CODE)
    others = quantize.to_code(quantize.scaled(others, inverse, CODE), CODE)
    BROKEN: tl.constexpr = 0x80 if CODE == quantize.INT8 else 0xFF
    is_broken = ((fixed > 0) & (scale != scale))[:, None] & (tl.arange(0, HALF) == 0)[None, :]
    first = tl.where(is_broken, BROKEN, first.to(tl.int32)).to(tl.uint8)
    rows = page + elements[:, None] + row * HEAD_DIM
    kv_heads.store(rows, first, second, others, is_written[:, None], HEAD_DIM, ROTARY_DIM, HALF, REST)
    scales = (page + scale_at + row * 4).to(tl.pointer_type(tl.float32))
    tl.store(scales, scale, mask=is_written & (scale_at >= 0))


@triton.jit
def write(
    slab,
    table,
    all_fixed,
    token_page,
    token_row,
    token,
    head,
    first,
    second,
    others,
    num_pages,
    page_bytes,
    KIND: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CODES: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """`head` [HEADS] of one token into its page, each in the dtype of its segment."""
    at_page = tl.load(token_page + token)
    row = tl.load(token_row + token)
    is_there = (at_page >= 0) & (at_page < num_pages) & (row >= 0) & (row < BLOCK_SIZE)
    # (The interpreter does not spread a scalar truth value over a tile.)
    is_head = head < tl.where(is_there, NUM_KV_HEADS, 0)
    entry = table + (KIND * NUM_KV_HEADS + head) * _FIELDS
    # Checked where it is launched; a row's first byte is then as well aligned as its width allows.
    elements = tl.multiple_of(tl.load(entry, mask=is_head, other=0), [16])
    scale_at = tl.multiple_of(tl.load(entry + 1, mask=is_head, other=-1), [1])
    fixed = tl.load(all_fixed + KIND * NUM_KV_HEADS + head, mask=is_head, other=0.0)
    code = tl.load(entry + 2, mask=is_head, other=-1)
    page = slab + at_page.to(tl.int64) * page_bytes
    IS_ONE: tl.constexpr = (CODES & (CODES - 1)) == 0
    for CODE in tl.static_range(6):
        if (CODES >> CODE) & 1:
            is_written = is_head if IS_ONE else is_head & (code == CODE)
            if CODE < quantize.INT8:
                _write_numbers(
                    *(page, elements, row, first, second, others, is_written, CODE),
                    *(HEAD_DIM, ROTARY_DIM, HALF, REST),
                )
            else:
                _write_codes(
                    *(page, elements, scale_at, fixed, row, first, second, others, is_written),
                    *(CODE, HEAD_DIM, ROTARY_DIM, HALF, REST),
                )
