"""Norms and rotary embedding of Q and K, and the write of K and V into pages: one launch a layer.

A head x of Q or K becomes `x / sqrt(mean(x^2) + eps) * weight` where the model norms heads; then its first `ROTARY_DIM`
elements turn, element i with j = i + ROTARY_DIM / 2 (the half-split form): `x_i cos - x_j sin`, `x_j cos + x_i sin`.
All of it in float32; what is written is rounded once.

**Layout.** qkv is `[num_tokens, NUM_HEADS + 2 * NUM_KV_HEADS, HEAD_DIM]`. K and V of a token go to row `token_row` of
page `token_page` of the slab, head h's to the segment at byte `table[K or V, h, 0]` of that page: `[BLOCK_SIZE,
HEAD_DIM]` of the dtype `table[.., 2]`. A row of 8 bits has a float32 scale at byte `table[.., 1]` + 4 * row, or
`fixed[K or V, h]`, one for all rows, which is not in the page. Heads of one launch may differ in dtype: `CODES` has a
bit for each that occurs, and what is stored is chosen by head. A token whose page or row is not there (-1: it fills up
a captured graph) writes nothing.

**Programs.** One for `HEADS` heads of one token, all of Q, of K or of V. A head is read as two halves of what turns,
and a rest: partners then sit in the same lane, and the largest magnitude of a row is found by shuffles. The tile does
not depend on the number of tokens, and so neither do the bits of a token.

**Bytes.** Each element is read once and written once: for a token `(NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM` elements
in, `NUM_HEADS * HEAD_DIM` out, and `2 * NUM_KV_HEADS` rows with their scales into the page. Angles (`2 * ROTARY_DIM`
bytes each), the table and the norms' weights are shared by programs and come from the cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import quantize, rounding

_K = tl.constexpr(0)
_V = tl.constexpr(1)
_FIELDS = tl.constexpr(3)
"""Of a segment in the table: `layout.ELEMENTS`, `SCALES`, `CODE`."""

# ------------------------------------------------------------------------------------------- heads as three parts


@triton.jit
def _columns(HEAD_DIM: tl.constexpr, ROTARY_DIM: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr):
    """First columns of a row of a tile [1, HALF] and [1, REST], which of them exist, and the width of a half."""
    TURNED: tl.constexpr = ROTARY_DIM if ROTARY_DIM > 0 else HEAD_DIM
    half = tl.arange(0, HALF)[None, :]
    rest = tl.arange(0, REST)[None, :]
    return half, half < TURNED // 2, rest, rest < HEAD_DIM - TURNED


@triton.jit
def _load_heads(
    rows,
    is_head,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """rows: pointers to the first elements of heads [HEADS, 1] -> float32 first and second half [HEADS, HALF] and rest
    [HEADS, REST]; what does not exist is 0."""
    TURNED: tl.constexpr = ROTARY_DIM if ROTARY_DIM > 0 else HEAD_DIM
    half, in_half, rest, in_rest = _columns(HEAD_DIM, ROTARY_DIM, HALF, REST)
    first = tl.load(rows + half, mask=is_head & in_half, other=0.0).to(tl.float32)
    second = tl.load(rows + TURNED // 2 + half, mask=is_head & in_half, other=0.0).to(tl.float32)
    if TURNED < HEAD_DIM:
        others = tl.load(rows + TURNED + rest, mask=is_head & in_rest, other=0.0).to(tl.float32)
    else:
        others = tl.zeros([first.shape[0], REST], tl.float32)
    return first, second, others


@triton.jit
def _store_heads(
    rows,
    first,
    second,
    others,
    is_head,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """What `_load_heads` reads, in the dtype that `rows` point to."""
    TURNED: tl.constexpr = ROTARY_DIM if ROTARY_DIM > 0 else HEAD_DIM
    half, in_half, rest, in_rest = _columns(HEAD_DIM, ROTARY_DIM, HALF, REST)
    dtype = rows.dtype.element_ty
    tl.store(rows + half, rounding.rounded(first, dtype), mask=is_head & in_half)
    tl.store(rows + TURNED // 2 + half, rounding.rounded(second, dtype), mask=is_head & in_half)
    if TURNED < HEAD_DIM:
        tl.store(rows + TURNED + rest, rounding.rounded(others, dtype), mask=is_head & in_rest)


# ----------------------------------------------------------------------------------------------- norms and rotary


@triton.jit
def _normed(
    first,
    second,
    others,
    weight,
    eps,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """RMS norm of each head (Zhang & Sennrich, arXiv 1910.07467); `weight` [HEAD_DIM]."""
    squares = tl.sum(first * first + second * second, axis=1)
    if REST > 1:
        squares += tl.sum(others * others, axis=1)
    inverse = tl.math.rsqrt(squares / HEAD_DIM + eps)[:, None]
    is_head = tl.full([1, 1], 1, tl.int1)
    by_first, by_second, by_others = _load_heads(weight, is_head, HEAD_DIM, ROTARY_DIM, HALF, REST)
    return first * inverse * by_first, second * inverse * by_second, others * inverse * by_others


@triton.jit
def _angles(cos, sin, positions, token, num_positions, ROTARY_DIM: tl.constexpr, HALF: tl.constexpr):
    """Cosines and sines of a token, [1, HALF]: row `token` of the tables, or row `positions[token]`; NaN for a row that
    is not there."""
    half = tl.arange(0, HALF)[None, :]
    in_half = half < ROTARY_DIM // 2
    at, num_known = token, ROTARY_DIM // 2
    if positions is not None:
        at = tl.load(positions + token).to(tl.int64)
        num_known = tl.where((at >= 0) & (at < num_positions), ROTARY_DIM // 2, 0)
    offsets = at * (ROTARY_DIM // 2) + half
    other = tl.where(in_half, float("nan"), 0.0)
    c = tl.load(cos + offsets, mask=half < num_known, other=other)
    return c, tl.load(sin + offsets, mask=half < num_known, other=other)


@triton.jit
def _turned_heads(
    rows,
    is_head,
    weight,
    eps,
    cos,
    sin,
    positions,
    token,
    num_positions,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """Heads of Q or K, [HEADS, HALF] twice and [HEADS, REST], as attention needs them."""
    first, second, others = _load_heads(rows, is_head, HEAD_DIM, ROTARY_DIM, HALF, REST)
    if weight is not None:
        first, second, others = _normed(first, second, others, weight, eps, HEAD_DIM, ROTARY_DIM, HALF, REST)
    if ROTARY_DIM > 0:
        c, s = _angles(cos, sin, positions, token, num_positions, ROTARY_DIM, HALF)
        first, second = first * c - second * s, second * c + first * s
    return first, second, others


# ------------------------------------------------------------------------------------------------ rows into pages


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
    _store_heads(rows, first, second, others, is_written[:, None], HEAD_DIM, ROTARY_DIM, HALF, REST)


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
    _store_heads(rows, first, second, others, is_written[:, None], HEAD_DIM, ROTARY_DIM, HALF, REST)
    scales = (page + scale_at + row * 4).to(tl.pointer_type(tl.float32))
    tl.store(scales, scale, mask=is_written & (scale_at >= 0))


@triton.jit
def _write_rows(
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


# ------------------------------------------------------------------------------------------- what a program does


@triton.jit
def _turn_queries(
    queries,
    out,
    weight,
    eps,
    cos,
    sin,
    positions,
    token,
    num_positions,
    head,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """Heads `head` [HEADS] of a token's Q, from where `queries` begin to where `out` begins."""
    is_head = (head < NUM_HEADS)[:, None]
    offsets = (head * HEAD_DIM)[:, None]
    first, second, others = _turned_heads(
        *(queries + offsets, is_head, weight, eps, cos, sin, positions, token, num_positions),
        *(HEAD_DIM, ROTARY_DIM, HALF, REST),
    )
    _store_heads(out + offsets, first, second, others, is_head, HEAD_DIM, ROTARY_DIM, HALF, REST)


@triton.jit
def _write_keys(
    keys,
    weight,
    eps,
    cos,
    sin,
    positions,
    token,
    num_positions,
    slab,
    table,
    fixed,
    token_page,
    token_row,
    num_pages,
    page_bytes,
    head,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CODES: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """Heads `head` [HEADS] of a token's K into its page."""
    first, second, others = _turned_heads(
        *(keys + (head * HEAD_DIM)[:, None], (head < NUM_KV_HEADS)[:, None], weight, eps, cos, sin, positions, token),
        *(num_positions, HEAD_DIM, ROTARY_DIM, HALF, REST),
    )
    _write_rows(
        *(slab, table, fixed, token_page, token_row, token, head, first, second, others, num_pages, page_bytes),
        *(_K, NUM_KV_HEADS, HEAD_DIM, ROTARY_DIM, BLOCK_SIZE, CODES, HALF, REST),
    )


@triton.jit
def _write_values(
    values,
    token,
    slab,
    table,
    fixed,
    token_page,
    token_row,
    num_pages,
    page_bytes,
    head,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CODES: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """Heads `head` [HEADS] of a token's V into its page, as they are."""
    rows, is_head = values + (head * HEAD_DIM)[:, None], (head < NUM_KV_HEADS)[:, None]
    first, second, others = _load_heads(rows, is_head, HEAD_DIM, ROTARY_DIM, HALF, REST)
    _write_rows(
        *(slab, table, fixed, token_page, token_row, token, head, first, second, others, num_pages, page_bytes),
        *(_V, NUM_KV_HEADS, HEAD_DIM, ROTARY_DIM, BLOCK_SIZE, CODES, HALF, REST),
    )


# -------------------------------------------------------------------------------------------------------- kernel


@triton.jit(do_not_specialize=["num_pages", "num_positions"])
def rope_and_write(
    # pointers
    qkv,
    cos,
    sin,
    positions,
    q_norm,
    k_norm,
    out,
    slab,
    table,
    fixed,
    token_page,
    token_row,
    # sizes
    num_pages,
    num_positions,
    page_bytes,
    eps,
    # meta
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CODES: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    Q_PARTS: tl.constexpr = (NUM_HEADS + HEADS - 1) // HEADS
    KV_PARTS: tl.constexpr = (NUM_KV_HEADS + HEADS - 1) // HEADS
    PARTS: tl.constexpr = Q_PARTS + 2 * KV_PARTS
    token = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    queries = qkv + token * ((NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM)
    lane = tl.arange(0, HEADS)
    if part < Q_PARTS:
        _turn_queries(
            *(queries, out + token * (NUM_HEADS * HEAD_DIM), q_norm, eps, cos, sin, positions, token, num_positions),
            *(part * HEADS + lane, NUM_HEADS, HEAD_DIM, ROTARY_DIM, HALF, REST),
        )
    elif part < Q_PARTS + KV_PARTS:
        _write_keys(
            *(queries + NUM_HEADS * HEAD_DIM, k_norm, eps, cos, sin, positions, token, num_positions),
            *(slab, table, fixed, token_page, token_row, num_pages, page_bytes, (part - Q_PARTS) * HEADS + lane),
            *(NUM_KV_HEADS, HEAD_DIM, ROTARY_DIM, BLOCK_SIZE, CODES, HALF, REST),
        )
    else:
        _write_values(
            *(queries + (NUM_HEADS + NUM_KV_HEADS) * HEAD_DIM, token, slab, table, fixed, token_page, token_row),
            *(num_pages, page_bytes, (part - Q_PARTS - KV_PARTS) * HEADS + lane),
            *(NUM_KV_HEADS, HEAD_DIM, ROTARY_DIM, BLOCK_SIZE, CODES, HALF, REST),
        )
