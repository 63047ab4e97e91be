"""Causal attention over paged keys and values: one tile function for decode steps, prompt chunks and drafts.

A row is one (query, head) of the heads that share a KV head: row r of a chunk is query r // group, head r % group. An
item of the work list is up to ROWS rows of one chunk and the keys from first to stop. Rows are packed, so that heads of
a group, and queries, share every load of K and V and fill matrix instructions of 16 rows. For a tile of KEYS keys:

    s = q k * scale                       m' = max(m, max s)
    p = 2^(s log2(e) - m')                l' = l 2^(m - m') + sum p            acc' = acc 2^(m - m') + p v

(online softmax, Milakov and Gimelshein 2018, arXiv:1805.02867; Dao 2023, arXiv:2307.08691). Tiles begin at multiples of
KEYS, so that a query's result does not depend on where chunks were cut, as long as keys are not split. An item that has
all keys of its rows writes out = acc / l; one of a part writes acc, m and l to the workspace (`attention_merge`).

Layout. A page holds all layers; K of one KV head is `[block_size, head_dim]` at `table[0, head, 0]` in each page, its
scales float32 `[block_size]` at `table[0, head, 1]`, or one scale for all rows in `fixed[0, head]`; V likewise.

`attention_rows` has the rows of an item, `attention_tiles` tiles of K and V and products with them, `attention_weights`
what lies between products with K and those with V.

Pipeline. The page of a key is loaded STAGES - 1 tiles ahead, K and V half as far: their addresses need it.

Bytes moved, of an item: its keys' K, V and scales once, 4 bytes a key of the page table, its rows of q and of out; if
keys are split, rows * (head_dim + 2) * 4 twice, of which the work list sees that they are few. Keys that no row sees
are not read. Unused rows of pages may hold anything: masked lanes load zeros.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import attention_rows as rows
from tidemark_kernels.jit import attention_tiles as tiles
from tidemark_kernels.jit import attention_weights as weights

# -------------------------------------------------------------------------------------------------------- an item


@triton.jit
def _item(
    q, slab, pages, table, fixed, out, partials, stats,
    item, head, page_bytes, num_kv_heads, group, block_bits, scale, softcap, window,
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr, CAPPED: tl.constexpr,
    K_CODE: tl.constexpr, V_CODE: tl.constexpr, K_FIXED: tl.constexpr, V_FIXED: tl.constexpr, DIALECT: tl.constexpr,
):  # fmt: skip
    """One item for one KV head; `pages`: the chunk's row of the page table."""
    Q_TYPE: tl.constexpr = q.dtype.element_ty
    K_TYPE: tl.constexpr = tiles.product_type(Q_TYPE, K_CODE)
    V_TYPE: tl.constexpr = tiles.weight_type(Q_TYPE, V_CODE)
    PRECISION: tl.constexpr = tiles.product_precision(Q_TYPE, K_CODE)
    K_SCALED: tl.constexpr = weights.is_scaled(K_CODE, K_FIXED)
    V_SCALED: tl.constexpr = weights.is_scaled(V_CODE, V_FIXED)
    K_ROW: tl.constexpr = HEAD_DIM * tiles.unit_bytes(K_CODE) // tiles.planes(K_CODE)
    V_ROW: tl.constexpr = HEAD_DIM * tiles.unit_bytes(V_CODE) // tiles.planes(V_CODE)

    # ---- the rows
    partial = tl.load(item + rows.PARTIAL)
    valid, position, row = rows.places(item, head, num_kv_heads, group, ROWS)
    q00, q01, q10, q11, factor = rows.queries(q + row * HEAD_DIM, valid, scale, HEAD_DIM, K_CODE)
    factor = weights.key_factor(factor, fixed + head, K_CODE, K_FIXED, CAPPED)
    low, length, all_from, all_to = rows.seen(item, position, group, window)

    # ---- where the keys are
    first_key, stop_key = tl.load(item + rows.FIRST_KEY), tl.load(item + rows.STOP_KEY)
    k_table = table + head * 3
    v_table = table + (num_kv_heads + head) * 3
    k_rows = slab + tl.multiple_of(tl.load(k_table), 16)
    v_rows = slab + tl.multiple_of(tl.load(v_table), 16)
    k_scale_rows, v_scale_rows = slab + tl.load(k_table + 1), slab + tl.load(v_table + 1)

    # ---- all tiles of keys
    top, total, largest, unit = weights.first(ROWS, V_SCALED)
    sum00, sum01, sum10, sum11 = tiles.no_sums(ROWS, HEAD_DIM, V_CODE)
    for start in tl.range(first_key // KEYS * KEYS, stop_key, KEYS, num_stages=STAGES):
        key = start + tl.arange(0, KEYS)
        live = (key - first_key).to(tl.uint32) < (stop_key - first_key).to(tl.uint32)
        page = tl.load(pages + (key >> block_bits), mask=live, other=0)
        # Of whole numbers without a sign, 32 bits wide: one instruction multiplies them.
        page = (page.to(tl.uint32).to(tl.uint64) * page_bytes.to(tl.uint32).to(tl.uint64)).to(tl.int64)
        in_page = key & ((1 << block_bits) - 1)
        products = tiles.products(
            q00, q01, q10, q11, k_rows + page + in_page * K_ROW, live,
            HEAD_DIM, K_CODE, K_FIXED, K_TYPE, PRECISION, DIALECT,
        )  # fmt: skip
        by_key, by_value = weights.scales(
            k_scale_rows + page + in_page * 4, v_scale_rows + page + in_page * 4, factor, live, K_SCALED, V_SCALED
        )
        scores = weights.scored(products, by_key, softcap, CAPPED)
        scores = rows.hidden(scores, key, start, low, length, all_from, all_to)
        weight, keep, top, total, largest, unit = weights.weighed(
            scores, by_value, top, total, largest, unit, V_TYPE, V_SCALED, DIALECT
        )
        sum00, sum01, sum10, sum11 = tiles.add(
            weight, keep, sum00, sum01, sum10, sum11, v_rows + page + in_page * V_ROW, live,
            HEAD_DIM, V_CODE, V_FIXED, V_TYPE, DIALECT,
        )  # fmt: skip

    # ---- what they come to
    factor = weights.sum_factor(sum00, unit, fixed + num_kv_heads + head, V_CODE, V_FIXED, V_TYPE)
    rows.store(
        out, partials, stats, partial, head, num_kv_heads, row, valid, factor, top, total, sum00, sum01, sum10, sum11,
        HEAD_DIM, V_CODE,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------ the kernels


@triton.jit
def _is(FORM: tl.constexpr, k_code, v_code, k_fixed, v_fixed):
    return (k_code == FORM[0]) & (v_code == FORM[1]) & (k_fixed == FORM[2]) & (v_fixed == FORM[3])


@triton.jit(do_not_specialize=["pages_a_chunk", "num_kv_heads", "group", "block_bits", "window"])
def attend(
    # pointers
    q, slab, page_table, table, fixed, items, num_items, out, partials, stats,
    # sizes
    page_bytes, pages_a_chunk, num_kv_heads, group, block_bits, scale, softcap, window,
    # meta
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr, CAPPED: tl.constexpr,
    FORMS: tl.constexpr, DIALECT: tl.constexpr,
):  # fmt: skip
    """Every program takes each num_programs-th pair of item and KV head; items beyond `num_items` are not there.

    FORMS: (code of K, code of V, K's scale is fixed, V's is fixed) of all heads, each once.
    """
    for task in range(tl.program_id(0), tl.load(num_items) * num_kv_heads, tl.num_programs(0)):
        item = items + task // num_kv_heads * rows.ITEM_COLUMNS
        head = task % num_kv_heads
        pages = page_table + tl.load(item + rows.CHUNK).to(tl.int64) * pages_a_chunk
        k_code, v_code = tl.load(table + head * 3 + 2), tl.load(table + (num_kv_heads + head) * 3 + 2)
        k_fixed, v_fixed = tl.load(fixed + head) > 0, tl.load(fixed + num_kv_heads + head) > 0
        for form in tl.static_range(len(FORMS)):
            if len(FORMS) == 1 or _is(FORMS[form], k_code, v_code, k_fixed, v_fixed):
                _item(
                    q, slab, pages, table, fixed, out, partials, stats,
                    item, head, page_bytes, num_kv_heads, group, block_bits, scale, softcap, window,
                    HEAD_DIM, ROWS, KEYS, STAGES, CAPPED,
                    FORMS[form][0], FORMS[form][1], FORMS[form][2], FORMS[form][3], DIALECT,
                )  # fmt: skip
