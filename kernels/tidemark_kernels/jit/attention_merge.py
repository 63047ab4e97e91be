"""Merges the parts of rows whose keys were split (`attention`).

out = sum of 2^(m_i - m) acc_i / sum of 2^(m_i - m) l_i with m the largest m_i. A program takes one row of one KV head:
SPLITS parts at once, all loads of which are on their way together. Bytes moved: (head_dim + 2) * 4 a part, and the row.
"""

from __future__ import annotations

import triton
import triton.language as tl

TOKEN = tl.constexpr(0)
"""Columns of a merge, `work_list.MERGE_COLUMNS`."""
HEAD = tl.constexpr(1)
FIRST_PART = tl.constexpr(2)
STRIDE = tl.constexpr(3)
NUM_PARTS = tl.constexpr(4)
MERGE_COLUMNS = tl.constexpr(8)


@triton.jit(do_not_specialize=["num_kv_heads", "group"])
def merge(
    # pointers
    partials, stats, merges, num_merges, out,
    # sizes
    num_kv_heads, group,
    # meta
    HEAD_DIM: tl.constexpr, COLUMNS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Every program takes each num_programs-th pair of row and KV head; rows beyond `num_merges` are not there."""
    for task in range(tl.program_id(0), tl.load(num_merges) * num_kv_heads, tl.num_programs(0)):
        line = merges + task // num_kv_heads * MERGE_COLUMNS
        head = task % num_kv_heads
        token, in_group = tl.load(line + TOKEN).to(tl.int64), tl.load(line + HEAD)
        first, stride, count = tl.load(line + FIRST_PART), tl.load(line + STRIDE), tl.load(line + NUM_PARTS)
        column = tl.arange(0, COLUMNS)
        inside = column < HEAD_DIM
        top, total = float("-inf"), 0.0
        result = tl.zeros((COLUMNS,), tl.float32)
        for start in range(0, count, SPLITS):
            part = start + tl.arange(0, SPLITS)
            live = part < count
            place = (first + part * stride).to(tl.int64) * num_kv_heads + head
            tops = tl.load(stats + place * 2, mask=live, other=float("-inf"))
            sums = tl.load(stats + place * 2 + 1, mask=live, other=0.0)
            mask = live[:, None] & inside[None, :]
            each = tl.load(partials + place[:, None] * HEAD_DIM + column[None, :], mask=mask, other=0.0)
            highest = tl.maximum(top, tl.max(tops, 0))
            against = tl.where(highest == float("-inf"), 0.0, highest)
            keep, weights = tl.exp2(top - against), tl.exp2(tops - against)
            result = result * keep + tl.sum(each * weights[:, None], 0)
            total = total * keep + tl.sum(sums * weights, 0)
            top = highest
        at = out + ((token * num_kv_heads + head) * group + in_group) * HEAD_DIM
        tl.store(at + column, (result / total).to(out.dtype.element_ty), mask=inside)
