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

**Programs.** One for `HEADS` heads of one token, all of Q, of K or of V: `kv_heads` reads and turns them, `kv_rows`
puts K and V into their page. The tile does not depend on the number of tokens, and so neither do the bits of a token.

**Bytes.** Each element is read once and written once: for a token `(NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM` elements
in, `NUM_HEADS * HEAD_DIM` out, and `2 * NUM_KV_HEADS` rows with their scales into the page. Angles (`2 * ROTARY_DIM`
bytes each), the table and the norms' weights are shared by programs and come from the cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import kv_heads, kv_rows

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
    first, second, others = kv_heads.turned(
        *(queries + offsets, is_head, weight, eps, cos, sin, positions, token, num_positions),
        *(HEAD_DIM, ROTARY_DIM, HALF, REST),
    )
    kv_heads.store(out + offsets, first, second, others, is_head, HEAD_DIM, ROTARY_DIM, HALF, REST)


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
    first, second, others = kv_heads.turned(
        *(keys + (head * HEAD_DIM)[:, None], (head < NUM_KV_HEADS)[:, None], weight, eps, cos, sin, positions, token),
        *(num_positions, HEAD_DIM, ROTARY_DIM, HALF, REST),
    )
    kv_rows.write(
        *(slab, table, fixed, token_page, token_row, token, head, first, second, others, num_pages, page_bytes),
        *(kv_rows.K, NUM_KV_HEADS, HEAD_DIM, ROTARY_DIM, BLOCK_SIZE, CODES, HALF, REST),
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
    first, second, others = kv_heads.load(rows, is_head, HEAD_DIM, ROTARY_DIM, HALF, REST)
    kv_rows.write(
        *(slab, table, fixed, token_page, token_row, token, head, first, second, others, num_pages, page_bytes),
        *(kv_rows.V, NUM_KV_HEADS, HEAD_DIM, ROTARY_DIM, BLOCK_SIZE, CODES, HALF, REST),
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
