"""From the products of a tile of keys to the weights of its values: scales, a cap, and the online softmax.

Scales never touch an element: a key's multiplies its score, a value's its weight. A row that was broken when it was
written (scale NaN, or a first code that no number becomes) makes NaN of those who see it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import attention_tiles as tiles
from tidemark_kernels.jit import numbers

_HALF_BITS = tl.constexpr(14)
"""Weights that become halves are multiplied by 2^14: small ones keep their bits, the largest (below 2 there) are not
infinite."""
_NO_SCALE = tl.constexpr(2.0**-100)
"""Less than the scale of any row but one of zeros."""
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.constexpr_function
def is_scaled(code, is_fixed):
    """Whether rows of this code have a scale each."""
    return code >= 3 and not is_fixed


# ----------------------------------------------------------------------------------------------------------- scores


@triton.jit
def key_factor(factor, fixed, CODE: tl.constexpr, FIXED: tl.constexpr, CAPPED: tl.constexpr):
    """What the products of every key are multiplied by; `fixed`: where the one scale of all rows of K is."""
    if CODE >= numbers.INT8 and FIXED:
        factor = factor * tl.load(fixed)
    if not CAPPED:
        factor = factor * _LOG2_E
    return factor


@triton.jit
def scales(k_scales, v_scales, factor, live, K_SCALED: tl.constexpr, V_SCALED: tl.constexpr):
    """What scores and what weights of each key are multiplied by, `[keys]`; from pointers to the bytes of scales.

    A broken value breaks its key's score: so it is seen by all who see it, and by nobody else.
    """
    by_key = tl.full((live.shape[0],), factor, tl.float32)
    by_value = tl.full((live.shape[0],), 1.0, tl.float32)
    if K_SCALED:
        by_key = tl.load(k_scales.to(tl.pointer_type(tl.float32)), mask=live, other=0) * factor
    if V_SCALED:
        by_value = tl.load(v_scales.to(tl.pointer_type(tl.float32)), mask=live, other=0)
        by_key = tl.where(by_value == by_value, by_key, float("nan"))
        by_value = tl.where(by_value == by_value, by_value, 0.0)
    return by_key, by_value


@triton.jit
def scored(products, by_key, softcap, CAPPED: tl.constexpr):
    """Scores `[ROWS, keys]`, times log2(e): what 2 is raised to."""
    scores = products * by_key[None, :]
    if CAPPED:
        scores = tiles.capped(scores, softcap) * _LOG2_E
    return scores


# ---------------------------------------------------------------------------------------------------------- weights


@triton.jit
def first(ROWS: tl.constexpr, V_SCALED: tl.constexpr):
    """Before any key, `[ROWS]`: the highest score, the sum of weights, the largest scale of a value, the unit of
    weights that are halves."""
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    largest = tl.full((ROWS,), _NO_SCALE if V_SCALED else 1.0, tl.float32)
    unit, _ = tiles.power_of_two(largest, -_HALF_BITS)
    return top, tl.zeros((ROWS,), tl.float32), largest, unit


@triton.jit
def weighed(
    scores, by_value, top, total, largest, unit, TYPE: tl.constexpr, V_SCALED: tl.constexpr, DIALECT: tl.constexpr
):
    """Weights `[ROWS, keys]` of a tile, what sums so far are multiplied by, and what `first` gives, after this tile.

    Weights of halves are in units: 2^-14 of the largest scale so far.
    """
    if V_SCALED:
        highest, most = tiles.tops(scores, by_value, DIALECT)
        largest = tl.maximum(largest, most)
    else:
        highest = tl.max(scores, 1)
    highest = tl.maximum(top, highest)
    against = tl.where(highest == float("-inf"), 0.0, highest)
    keep = tl.exp2(top - against)
    total = total * keep
    if tl.float16 == TYPE:
        now, one_by = tiles.power_of_two(largest, -_HALF_BITS)
        weights = tl.exp2(scores - (against + tl.log2(now))[:, None])
        total += tl.sum(weights, 1) * now
        keep = keep * (unit * one_by)
        unit = now
    else:
        weights = tl.exp2(scores - against[:, None])
        total += tl.sum(weights, 1)
    if V_SCALED:
        weights = weights * by_value[None, :]
    return weights, keep, highest, total, largest, unit


# ------------------------------------------------------------------------------------------------------------- sums


@triton.jit
def sum_factor(sum00, unit, fixed, CODE: tl.constexpr, FIXED: tl.constexpr, TYPE: tl.constexpr):
    """What sums of V lack, `[ROWS]`; `fixed`: where the one scale of all rows of V is."""
    factor = tl.full((sum00.shape[0],), 1.0, tl.float32)
    if tl.float16 == TYPE:
        factor = factor * unit
    if CODE == numbers.E4M3:
        factor = factor * 256.0
    if CODE >= numbers.INT8 and FIXED:
        # A broken value has made a NaN of the first column alone.
        column = tl.arange(0, sum00.shape[1])
        found = tl.sum(tl.where((column == 0)[None, :], sum00, 0.0), 1)
        factor = tl.where(found == found, factor * tl.load(fixed), float("nan"))
    return factor
