"""What lies between products and attention: norms, the gated activation, rows of an embedding.

**Norm.** With a residual, `sum = residual + x` is rounded to the residual's dtype and written there, and what is
normalised is that rounded sum: `sum / sqrt(mean(sum^2) + eps) * weight`, float32 until it is stored (Zhang & Sennrich,
arXiv 1910.07467). One program a row. `norm_rows` holds a row in registers: x and residual are read once, residual and
result written once, 4 * width elements a token. `norm_wide_rows`, for rows that do not fit, goes over a row twice; its
second read comes from the cache while a row is smaller than that. With `picked` only those rows of x and of the
residual are normalised, and the residual stays as it is: the rows that are sampled need no copy of their own.

**Gated activation.** `silu(gate) * up` (Shazeer, arXiv 2002.05202) of rows `[gate, up]`: 3 * width elements a token.

**Embedding.** Row `ids[t]` of a table, 2 * width elements a token.

Every row is computed by itself with tiles that depend on its width alone: its bits do not depend on other rows. Widths
that are multiples of 16 are read and written 16 bytes a lane; others as their alignment allows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import rounding

# ---------------------------------------------------------------------------------------------------------- norms


@triton.jit
def _row_of(picked, index, num_rows):
    """Which row of x a program normalises, int64, and whether there is one."""
    row = index if picked is None else tl.load(picked + index).to(tl.int64)
    return row, (row >= 0) & (row < num_rows)


@triton.jit
def _summed(x, residual, start, columns, in_row, IS_WRITTEN: tl.constexpr):
    """x, or residual + x as the residual's dtype holds it, float32; the sum is written to where it was read."""
    numbers = tl.load(x + start + columns, mask=in_row, other=0.0).to(tl.float32)
    if residual is not None:
        numbers += tl.load(residual + start + columns, mask=in_row, other=0.0).to(tl.float32)
        sums = rounding.rounded(numbers, residual.dtype.element_ty)
        if IS_WRITTEN:
            tl.store(residual + start + columns, sums, mask=in_row)
        numbers = sums.to(tl.float32)
    return numbers


@triton.jit(do_not_specialize=["num_rows"])
def norm_rows(
    # pointers
    x,
    weight,
    residual,
    picked,
    out,
    # sizes
    num_rows,
    width,
    eps,
    # meta
    BLOCK: tl.constexpr,
):
    """`BLOCK` columns hold a row. A picked row that is not there becomes zeros."""
    index = tl.program_id(0).to(tl.int64)
    row, is_there = _row_of(picked, index, num_rows)
    columns = tl.arange(0, BLOCK)
    in_row = columns < width
    in_x = columns < tl.where(is_there, width, 0)
    numbers = _summed(x, residual, row * width, columns, in_x, picked is None)
    factors = tl.load(weight + columns, mask=in_row, other=0.0).to(tl.float32)
    inverse = tl.math.rsqrt(tl.sum(numbers * numbers, axis=0) / width + eps)
    normed = numbers * inverse * factors
    tl.store(out + index * width + columns, rounding.rounded(normed, out.dtype.element_ty), mask=in_row)


@triton.jit(do_not_specialize=["num_rows"])
def norm_wide_rows(
    # pointers
    x,
    weight,
    residual,
    picked,
    out,
    # sizes
    num_rows,
    width,
    eps,
    # meta
    BLOCK: tl.constexpr,
):
    """As `norm_rows`, `BLOCK` columns at a time."""
    index = tl.program_id(0).to(tl.int64)
    row, is_there = _row_of(picked, index, num_rows)
    in_x = tl.where(is_there, width, 0)
    columns = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        numbers = _summed(x, residual, row * width, start + columns, start + columns < in_x, False)
        squares += numbers * numbers
    inverse = tl.math.rsqrt(tl.sum(squares, axis=0) / width + eps)
    for start in range(0, width, BLOCK):
        at = start + columns
        numbers = _summed(x, residual, row * width, at, at < in_x, picked is None)
        factors = tl.load(weight + at, mask=at < width, other=0.0).to(tl.float32)
        normed = numbers * inverse * factors
        tl.store(out + index * width + at, rounding.rounded(normed, out.dtype.element_ty), mask=at < width)


# ------------------------------------------------------------------------------------------------ gated activation


@triton.jit
def _silu(x):
    """x / (1 + exp(-x)), without an exponential that overflows."""
    e = tl.exp(-tl.abs(x))
    return x * (tl.where(x >= 0, 1.0, e) / (1.0 + e))


@triton.jit
def silu_mul(
    # pointers
    gate_up,
    out,
    # sizes
    width,
    # meta
    BLOCK: tl.constexpr,
):
    """One program for `BLOCK` columns of one row."""
    parts = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // parts).to(tl.int64)
    columns = (tl.program_id(0) % parts) * BLOCK + tl.arange(0, BLOCK)
    in_row = columns < width
    gate = tl.load(gate_up + row * 2 * width + columns, mask=in_row, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + columns, mask=in_row, other=0.0).to(tl.float32)
    gated = _silu(gate) * up
    tl.store(out + row * width + columns, rounding.rounded(gated, out.dtype.element_ty), mask=in_row)


# ------------------------------------------------------------------------------------------------------- embedding


@triton.jit(do_not_specialize=["num_rows"])
def embedding_rows(
    # pointers
    table,
    ids,
    out,
    # sizes
    num_rows,
    width,
    # meta
    BLOCK: tl.constexpr,
):
    """One program for `BLOCK` columns of one row. The id -1 is a row of zeros, any other that is not there of NaN."""
    parts = tl.cdiv(width, BLOCK)
    index = (tl.program_id(0) // parts).to(tl.int64)
    columns = (tl.program_id(0) % parts) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids + index).to(tl.int64)
    in_table = columns < tl.where((row >= 0) & (row < num_rows), width, 0)
    missing = tl.where(row == -1, 0.0, float("nan")).to(table.dtype.element_ty)
    numbers = tl.load(table + row * width + columns, mask=in_table, other=missing)
    tl.store(out + index * width + columns, numbers, mask=columns < width)
