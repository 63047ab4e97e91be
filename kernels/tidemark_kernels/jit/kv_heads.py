"""Heads of Q, K and V as tiles, and what becomes of them before they are stored: norm and rotary embedding.

A head is two halves of what turns, `[HEADS, HALF]` each, and a rest, `[HEADS, REST]`: partners sit in the same lane,
and the largest magnitude of a row is found by shuffles. HALF and REST are powers of two; lanes beyond a head load
zeros. Float32 throughout.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import rounding

# ------------------------------------------------------------------------------------------- heads as three parts


@triton.jit
def _columns(HEAD_DIM: tl.constexpr, ROTARY_DIM: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr):
    """First columns of a row of a tile [1, HALF] and [1, REST], which of them exist, and the width of a half."""
    TURNED: tl.constexpr = ROTARY_DIM if ROTARY_DIM > 0 else HEAD_DIM
    half = tl.arange(0, HALF)[None, :]
    rest = tl.arange(0, REST)[None, :]
    return half, half < TURNED // 2, rest, rest < HEAD_DIM - TURNED


@triton.jit
def load(
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
def store(
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
    """What `load` reads, in the dtype that `rows` point to."""
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
    by_first, by_second, by_others = load(weight, is_head, HEAD_DIM, ROTARY_DIM, HALF, REST)
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
def turned(
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
    first, second, others = load(rows, is_head, HEAD_DIM, ROTARY_DIM, HALF, REST)
    if weight is not None:
        first, second, others = _normed(first, second, others, weight, eps, HEAD_DIM, ROTARY_DIM, HALF, REST)
    if ROTARY_DIM > 0:
        c, s = _angles(cos, sin, positions, token, num_positions, ROTARY_DIM, HALF)
        first, second = first * c - second * s, second * c + first * s
    return first, second, others
