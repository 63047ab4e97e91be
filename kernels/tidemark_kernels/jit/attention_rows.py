"""The rows of an item of attention: where they are, their queries, which keys they see, and where their results go.

Row r of a chunk is query r // group, head r % group of the heads that share a KV head (`attention`).
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


@triton.jit
def places(item, head, num_kv_heads, group, ROWS: tl.constexpr):
    """Which lanes are rows, their positions in the sequence, and their places among rows of q and of out; `[ROWS]`."""
    first_row = tl.load(item + FIRST_ROW)
    index = tl.arange(0, ROWS)
    query = (first_row + index) // group
    token = (tl.load(item + FIRST_TOKEN) + query).to(tl.int64)
    row = (token * num_kv_heads + head) * group + (first_row + index) % group
    return index < tl.load(item + NUM_ROWS), tl.load(item + POSITION) + query, row


# ---------------------------------------------------------------------------------------------------------- queries


@triton.jit
def _part(
    at, valid, HEAD_DIM: tl.constexpr, START: tl.constexpr, PART: tl.constexpr, PLANE: tl.constexpr,
    PLANES: tl.constexpr,
):  # fmt: skip
    """q `[ROWS, PART]` that belongs to one plane of a tile of K; `at`: pointers to rows."""
    element = (START + tl.arange(0, PART)) * PLANES + PLANE
    return tl.load(at[:, None] + element[None, :], mask=valid[:, None] & (element < HEAD_DIM)[None, :], other=0)


@triton.jit
def _parts(at, valid, HEAD_DIM: tl.constexpr, CODE: tl.constexpr):
    """q by part and plane of K; what does not occur is the first."""
    PLANES: tl.constexpr = tiles.planes(CODE)
    FIRST: tl.constexpr = tiles.first_part(HEAD_DIM // PLANES)
    SECOND: tl.constexpr = tiles.second_part(HEAD_DIM // PLANES)
    q00 = _part(at, valid, HEAD_DIM, 0, FIRST, 0, PLANES)
    q01, q10, q11 = q00, q00, q00
    if PLANES == 2:
        q01 = _part(at, valid, HEAD_DIM, 0, FIRST, 1, PLANES)
    if SECOND > 0:
        q10 = _part(at, valid, HEAD_DIM, FIRST, SECOND, 0, PLANES)
        q11 = q10
        if PLANES == 2:
            q11 = _part(at, valid, HEAD_DIM, FIRST, SECOND, 1, PLANES)
    return q00, q01, q10, q11


@triton.jit
def _largest(q):
    """Of the finite magnitudes of a tile."""
    magnitude = tl.abs(q.to(tl.float32))
    return tl.max(tl.max(tl.where(magnitude < float("inf"), magnitude, 0.0), 1), 0)


@triton.jit
def _scaled(q, inverse, TYPE: tl.constexpr):
    return (q.to(tl.float32) * inverse).to(TYPE)


@triton.jit
def queries(at, valid, scale, HEAD_DIM: tl.constexpr, CODE: tl.constexpr):
    """q by part and plane of K, in the type of the products, and `scale` times what is missing in these; `at`: pointers
    to rows."""
    TYPE: tl.constexpr = tiles.product_type(at.dtype.element_ty, CODE)
    q00, q01, q10, q11 = _parts(at, valid, HEAD_DIM, CODE)
    if CODE >= numbers.INT8 and tl.float16 == TYPE:
        largest = tl.maximum(tl.maximum(_largest(q00), _largest(q01)), tl.maximum(_largest(q10), _largest(q11)))
        power, inverse = tiles.power_of_two(largest, 0)
        scale = scale * power
        q00, q01 = _scaled(q00, inverse, TYPE), _scaled(q01, inverse, TYPE)
        q10, q11 = _scaled(q10, inverse, TYPE), _scaled(q11, inverse, TYPE)
    else:
        q00, q01, q10, q11 = q00.to(TYPE), q01.to(TYPE), q10.to(TYPE), q11.to(TYPE)
    if CODE == numbers.E4M3:
        scale = scale * 256.0
    return q00, q01, q10, q11, scale


# ------------------------------------------------------------------------------------------------------ what is seen


@triton.jit
def seen(item, position, group, window):
    """What a row sees: keys from `low` on, `length` of them, both `[ROWS]`; and tiles from and to which all see."""
    first_row, first_key, stop_key = tl.load(item + FIRST_ROW), tl.load(item + FIRST_KEY), tl.load(item + STOP_KEY)
    low = tl.maximum(position - window + 1, first_key)
    length = tl.maximum(tl.minimum(position + 1, stop_key) - low, 0)
    first_position = tl.load(item + POSITION) + first_row // group
    last_position = tl.load(item + POSITION) + (first_row + tl.load(item + NUM_ROWS) - 1) // group
    return low, length, tl.maximum(last_position - window + 1, first_key), tl.minimum(first_position + 1, stop_key)


@triton.jit
def hidden(scores, key, start, low, length, all_from, all_to):
    """Minus infinity for what a row does not see, in scores `[ROWS, keys]` of the keys `key` from `start` on."""
    if (start < all_from) | (start + scores.shape[1] > all_to):
        visible = (key[None, :] - low[:, None]).to(tl.uint32) < length.to(tl.uint32)[:, None]
        scores = tl.where(visible, scores, float("-inf"))
    return scores


# ---------------------------------------------------------------------------------------------------------- results


@triton.jit
def _store_part(at, valid, factor, even, odd, START: tl.constexpr, HEAD_DIM: tl.constexpr, PLANES: tl.constexpr):
    """One part of the sums, times `factor` `[ROWS]`, to rows that begin at the pointers `at`."""
    found = tl.interleave(even, odd) if PLANES == 2 else even
    element = START * PLANES + tl.arange(0, found.shape[1])
    mask = valid[:, None] & (element < HEAD_DIM)[None, :]
    tl.store(at[:, None] + element[None, :], (found * factor[:, None]).to(at.dtype.element_ty), mask=mask)


@triton.jit
def _store_sums(at, valid, factor, sum00, sum01, sum10, sum11, HEAD_DIM: tl.constexpr, CODE: tl.constexpr):
    """Sums by part and plane of V, times `factor` `[ROWS]`."""
    PLANES: tl.constexpr = tiles.planes(CODE)
    _store_part(at, valid, factor, sum00, sum01, 0, HEAD_DIM, PLANES)
    if tiles.second_part(HEAD_DIM // PLANES) > 0:
        _store_part(at, valid, factor, sum10, sum11, tiles.first_part(HEAD_DIM // PLANES), HEAD_DIM, PLANES)


@triton.jit
def store(
    out, partials, stats, partial, head, num_kv_heads, row, valid, factor, top, total, sum00, sum01, sum10, sum11,
    HEAD_DIM: tl.constexpr, CODE: tl.constexpr,
):  # fmt: skip
    """Sums times `factor`: to `out`, divided by `total`; or, of a part of the keys, to the workspace from its row
    `partial` on, beside `top` and `total`, all `[ROWS]`."""
    if partial < 0:
        share = factor / tl.where(valid, total, 1.0)
        _store_sums(out + row * HEAD_DIM, valid, share, sum00, sum01, sum10, sum11, HEAD_DIM, CODE)
    else:
        place = (partial + tl.arange(0, factor.shape[0])).to(tl.int64) * num_kv_heads + head
        _store_sums(partials + place * HEAD_DIM, valid, factor, sum00, sum01, sum10, sum11, HEAD_DIM, CODE)
        tl.store(stats + place * 2, top, mask=valid)
        tl.store(stats + place * 2 + 1, total, mask=valid)
