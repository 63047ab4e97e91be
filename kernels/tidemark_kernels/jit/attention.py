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

Scales never touch an element: a key's multiplies its score, a value's its weight. A row that was broken when it was
written (scale NaN, or a first code that no number becomes) makes NaN of those who see it.

Pipeline. The page of a key is loaded STAGES - 1 tiles ahead, K and V half as far: their addresses need it.

Bytes moved, of an item: its keys' K, V and scales once, 4 bytes a key of the page table, its rows of q and of out; if
keys are split, rows * (head_dim + 2) * 4 twice, of which the work list sees that they are few. Keys that no row sees
are not read. Unused rows of pages may hold anything: masked lanes load zeros.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import attention_tiles as tiles
from tidemark_kernels.jit import numbers

CHUNK = tl.constexpr(0)
"""Columns of an item, `work_list.ITEM_COLUMNS`."""
FIRST_ROW = tl.constexpr(1)
NUM_ROWS = tl.constexpr(2)
FIRST_KEY = tl.constexpr(3)
STOP_KEY = tl.constexpr(4)
PARTIAL = tl.constexpr(5)
FIRST_TOKEN = tl.constexpr(6)
POSITION = tl.constexpr(7)
ITEM_COLUMNS = tl.constexpr(8)

_LOG2_E = tl.constexpr(1.4426950408889634)
_HALF_BITS = tl.constexpr(14)
"""Weights that become halves are multiplied by 2^14: small ones keep their bits, the largest (below 2 there) are not
infinite."""
_NO_SCALE = tl.constexpr(2.0**-100)
"""Less than the scale of any row but one of zeros."""


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
    K_PLANES: tl.constexpr = tiles.planes(K_CODE)
    V_PLANES: tl.constexpr = tiles.planes(V_CODE)
    K_COLUMNS: tl.constexpr = HEAD_DIM // K_PLANES
    V_COLUMNS: tl.constexpr = HEAD_DIM // V_PLANES
    K_FIRST: tl.constexpr = tiles.first_part(K_COLUMNS)
    K_SECOND: tl.constexpr = tiles.second_part(K_COLUMNS)
    V_FIRST: tl.constexpr = tiles.first_part(V_COLUMNS)
    V_SECOND: tl.constexpr = tiles.second_part(V_COLUMNS)
    K_SCALED: tl.constexpr = K_CODE >= numbers.INT8 and not K_FIXED
    V_SCALED: tl.constexpr = V_CODE >= numbers.INT8 and not V_FIXED
    K_ROW: tl.constexpr = K_COLUMNS * tiles.unit_bytes(K_CODE)
    V_ROW: tl.constexpr = V_COLUMNS * tiles.unit_bytes(V_CODE)

    # ---- where the rows are
    first_row, num_rows = tl.load(item + FIRST_ROW), tl.load(item + NUM_ROWS)
    first_key, stop_key = tl.load(item + FIRST_KEY), tl.load(item + STOP_KEY)
    partial = tl.load(item + PARTIAL)
    index = tl.arange(0, ROWS)
    valid = index < num_rows
    query = (first_row + index) // group
    position = tl.load(item + POSITION) + query
    token = (tl.load(item + FIRST_TOKEN) + query).to(tl.int64)
    row = (token * num_kv_heads + head) * group + (first_row + index) % group

    # ---- their queries, by part and plane of K
    at = q + row * HEAD_DIM
    q00 = tiles.queries(at, valid, HEAD_DIM, 0, K_FIRST, 0, K_PLANES)
    q01, q10, q11 = q00, q00, q00
    if K_PLANES == 2:
        q01 = tiles.queries(at, valid, HEAD_DIM, 0, K_FIRST, 1, K_PLANES)
    if K_SECOND > 0:
        q10 = tiles.queries(at, valid, HEAD_DIM, K_FIRST, K_SECOND, 0, K_PLANES)
        q11 = q10
        if K_PLANES == 2:
            q11 = tiles.queries(at, valid, HEAD_DIM, K_FIRST, K_SECOND, 1, K_PLANES)
    factor = scale
    if K_CODE >= numbers.INT8 and tl.float16 == K_TYPE:
        largest_q = tl.maximum(
            tl.maximum(tiles.largest(q00), tiles.largest(q01)), tl.maximum(tiles.largest(q10), tiles.largest(q11))
        )
        power, inverse = tiles.power_of_two(largest_q, 0)
        factor = factor * power
        q00, q01 = tiles.scaled(q00, inverse, K_TYPE), tiles.scaled(q01, inverse, K_TYPE)
        q10, q11 = tiles.scaled(q10, inverse, K_TYPE), tiles.scaled(q11, inverse, K_TYPE)
    else:
        q00, q01, q10, q11 = q00.to(K_TYPE), q01.to(K_TYPE), q10.to(K_TYPE), q11.to(K_TYPE)
    if K_CODE == numbers.E4M3:
        factor = factor * 256.0
    if K_CODE >= numbers.INT8 and K_FIXED:
        factor = factor * tl.load(fixed + head)
    if not CAPPED:
        factor = factor * _LOG2_E

    # ---- what a row sees: keys from `low` on, `length` of them; tiles from `all_from` to `all_to` are seen by all rows
    low = tl.maximum(position - window + 1, first_key)
    length = tl.maximum(tl.minimum(position + 1, stop_key) - low, 0)
    first_position = tl.load(item + POSITION) + first_row // group
    last_position = tl.load(item + POSITION) + (first_row + num_rows - 1) // group
    all_from = tl.maximum(last_position - window + 1, first_key)
    all_to = tl.minimum(first_position + 1, stop_key)

    # ---- where the keys are
    k_table = table + head * 3
    v_table = table + (num_kv_heads + head) * 3
    k_rows = slab + tl.multiple_of(tl.load(k_table), 16)
    v_rows = slab + tl.multiple_of(tl.load(v_table), 16)
    k_scale_rows, v_scale_rows = slab + tl.load(k_table + 1), slab + tl.load(v_table + 1)
    page_mask = (1 << block_bits) - 1

    # ---- all tiles of keys
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    largest = tl.full((ROWS,), _NO_SCALE if V_SCALED else 1.0, tl.float32)
    unit, _ = tiles.power_of_two(largest, -_HALF_BITS)
    sum00 = tl.zeros((ROWS, V_FIRST), tl.float32)
    sum01, sum10, sum11 = sum00, sum00, sum00
    if V_SECOND > 0:
        sum10 = tl.zeros((ROWS, V_SECOND), tl.float32)
        sum11 = sum10
    for start in tl.range(first_key // KEYS * KEYS, stop_key, KEYS, num_stages=STAGES):
        key = start + tl.arange(0, KEYS)
        live = (key - first_key).to(tl.uint32) < (stop_key - first_key).to(tl.uint32)
        page = tl.load(pages + (key >> block_bits), mask=live, other=0)
        # Of whole numbers without a sign, 32 bits wide: one instruction multiplies them.
        page = (page.to(tl.uint32).to(tl.uint64) * page_bytes.to(tl.uint32).to(tl.uint64)).to(tl.int64)
        in_page = key & page_mask
        scores = tiles.scores(
            q00, q01, q10, q11, k_rows + page + in_page * K_ROW, live,
            HEAD_DIM, K_CODE, K_FIXED, K_TYPE, tiles.product_precision(Q_TYPE, K_CODE), DIALECT,
        )  # fmt: skip
        key_factor = tl.full((KEYS,), factor, tl.float32)
        if K_SCALED:
            k_scales = (k_scale_rows + page + in_page * 4).to(tl.pointer_type(tl.float32))
            key_factor = tl.load(k_scales, mask=live, other=0) * factor
        if V_SCALED:
            v_scales = (v_scale_rows + page + in_page * 4).to(tl.pointer_type(tl.float32))
            v_scale = tl.load(v_scales, mask=live, other=0)
            # A broken value breaks its key's score: so it is seen by all who see it, and by nobody else.
            key_factor = tl.where(v_scale == v_scale, key_factor, float("nan"))
            v_scale = tl.where(v_scale == v_scale, v_scale, 0.0)
        scores = scores * key_factor[None, :]
        if CAPPED:
            scores = tiles.capped(scores, softcap) * _LOG2_E
        if (start < all_from) | (start + KEYS > all_to):
            visible = (key[None, :] - low[:, None]).to(tl.uint32) < length.to(tl.uint32)[:, None]
            scores = tl.where(visible, scores, float("-inf"))
        if V_SCALED:
            highest, most = tiles.tops(scores, v_scale, DIALECT)
            largest = tl.maximum(largest, most)
        else:
            highest = tl.max(scores, 1)
        highest = tl.maximum(top, highest)
        against = tl.where(highest == float("-inf"), 0.0, highest)
        keep = tl.exp2(top - against)
        top = highest
        total = total * keep
        if tl.float16 == V_TYPE:
            now, one_by = tiles.power_of_two(largest, -_HALF_BITS)
            weights = tl.exp2(scores - (against + tl.log2(now))[:, None])
            total += tl.sum(weights, 1) * now
            keep = keep * (unit * one_by)
            unit = now
        else:
            weights = tl.exp2(scores - against[:, None])
            total += tl.sum(weights, 1)
        if V_SCALED:
            weights = weights * v_scale[None, :]
        sum00 = sum00 * keep[:, None]
        if V_PLANES == 2:
            sum01 = sum01 * keep[:, None]
        if V_SECOND > 0:
            sum10 = sum10 * keep[:, None]
            if V_PLANES == 2:
                sum11 = sum11 * keep[:, None]
        sum00, sum01, sum10, sum11 = tiles.add(
            weights.to(V_TYPE), sum00, sum01, sum10, sum11, v_rows + page + in_page * V_ROW, live,
            HEAD_DIM, V_CODE, V_FIXED, V_TYPE, DIALECT,
        )  # fmt: skip

    # ---- what they come to
    factor = tl.full((ROWS,), 1.0, tl.float32)
    if tl.float16 == V_TYPE:
        factor = factor * unit
    if V_CODE == numbers.E4M3:
        factor = factor * 256.0
    if V_CODE >= numbers.INT8 and V_FIXED:
        # A broken value has made a NaN of the first column alone.
        column = tl.arange(0, V_FIRST)
        first = tl.sum(tl.where((column == 0)[None, :], sum00, 0.0), 1)
        factor = tl.where(first == first, factor * tl.load(fixed + num_kv_heads + head), float("nan"))
    if partial < 0:
        to = out + row * HEAD_DIM
        all_of_it = factor / tl.where(valid, total, 1.0)
        tiles.store(to, valid, all_of_it, sum00, sum01, 0, HEAD_DIM, V_PLANES)
        if V_SECOND > 0:
            tiles.store(to, valid, all_of_it, sum10, sum11, V_FIRST, HEAD_DIM, V_PLANES)
    else:
        place = (partial + index).to(tl.int64) * num_kv_heads + head
        part = partials + place * HEAD_DIM
        tiles.store(part, valid, factor, sum00, sum01, 0, HEAD_DIM, V_PLANES)
        if V_SECOND > 0:
            tiles.store(part, valid, factor, sum10, sum11, V_FIRST, HEAD_DIM, V_PLANES)
        tl.store(stats + place * 2, top, mask=valid)
        tl.store(stats + place * 2 + 1, total, mask=valid)


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
        item = items + task // num_kv_heads * ITEM_COLUMNS
        head = task % num_kv_heads
        pages = page_table + tl.load(item + CHUNK).to(tl.int64) * pages_a_chunk
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
