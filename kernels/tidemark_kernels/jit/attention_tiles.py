"""What the attention kernel multiplies: tiles of K and V as operands of products, and the sums.

Elements are read in units of 16 bits (float32: 32). A unit of an 8-bit dtype is two codes and becomes two operands,
"planes", of even and of odd elements (`numbers.plane`): scores are the sum of two products, and sums of V have even and
odd columns apart until they are stored. A row that is no power of two wide is read as a power of two and a rest (80 is
64 + 16); no lane reads beyond it. So there are up to four operands for a tile of K, and up to four sums: by part and
plane.

    q        K or V     products                                       weights
    16 bits  the same   in that dtype                                  in V's dtype
    16 bits  the other  in TF32, which holds both exactly              in V's dtype
    16 bits  8 bits     in float16, q divided by a power of two        in float16, times 2^14 / the largest scale so far
    else                in float32, without matrix instructions        the same

Sums are float32 everywhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import numbers

# ------------------------------------------------------------------------------------------- dtypes and their tiles


@triton.constexpr_function
def planes(code):
    """Elements a unit."""
    return 2 if code >= 3 else 1


@triton.constexpr_function
def first_part(columns):
    """Units of a row in the first tile: the largest power of two, of which a matrix instruction needs 16."""
    return max(16, 1 << (columns.bit_length() - 1))


@triton.constexpr_function
def second_part(columns):
    """Units in the second tile, 0 where there is none; with lanes beyond the row where the rest is no power of two."""
    rest = columns - first_part(columns)
    return max(16, 1 << (rest - 1).bit_length()) if rest > 0 else 0


@triton.constexpr_function
def unit_bytes(code):
    return 4 if code == 0 else 2


@triton.jit
def product(a, b, sums, PRECISION: tl.constexpr, DIALECT: tl.constexpr):
    if DIALECT == numbers.INTERPRETED and a.dtype == tl.bfloat16:
        # The interpreter keeps bfloat16 as whole numbers, and would multiply those.
        return tl.dot(a.to(tl.float32), b.to(tl.float32), sums, input_precision=PRECISION)
    return tl.dot(a, b, sums, input_precision=PRECISION)


@triton.jit
def tile(rows, live, CODE: tl.constexpr, START: tl.constexpr, PART: tl.constexpr, COLUMNS: tl.constexpr):
    """Units `[keys, PART]` from column START of rows that begin at the byte pointers `rows`; zeros where not `live`."""
    column = START + tl.arange(0, PART)
    mask = live[:, None]
    if START + PART > COLUMNS:
        mask = mask & (column < COLUMNS)[None, :]
    if CODE == numbers.F32:
        units = rows.to(tl.pointer_type(tl.float32))
    elif CODE == numbers.F16:
        units = rows.to(tl.pointer_type(tl.float16))
    elif CODE == numbers.BF16:
        units = rows.to(tl.pointer_type(tl.bfloat16))
    else:
        units = rows.to(tl.pointer_type(tl.int16))
    return tl.load(units[:, None] + column[None, :], mask=mask, other=0)


@triton.constexpr_function
def product_type(q, code):
    """In what q and K are multiplied. Both 16-bit floats are exact in float32, and in TF32."""
    if q == tl.float32 or code == 0:
        return tl.float32
    if code >= 3:
        return tl.float16
    own = tl.float16 if code == 1 else tl.bfloat16
    return own if own == q else tl.float32


@triton.constexpr_function
def product_precision(q, code):
    return "ieee" if q == tl.float32 or code == 0 else "tf32"


@triton.constexpr_function
def weight_type(q, code):
    """In what weights and V are multiplied."""
    if q == tl.float32 or code == 0:
        return tl.float32
    return tl.bfloat16 if code == 2 else tl.float16


@triton.jit
def operand(
    units, CODE: tl.constexpr, PLANE: tl.constexpr, MARKED: tl.constexpr, TYPE: tl.constexpr, DIALECT: tl.constexpr
):
    """Numbers of one plane of a tile; of E4M3 their 256th. MARKED: a row's first code may say that it is broken."""
    if CODE < numbers.INT8:
        return units.to(TYPE)
    found = numbers.plane(units, CODE, PLANE, DIALECT)
    if MARKED and CODE != numbers.E5M2:
        BROKEN: tl.constexpr = numbers.INT8_BROKEN if CODE == numbers.INT8 else numbers.E4M3_BROKEN
        first = (tl.arange(0, units.shape[1]) == 0)[None, :]
        found = tl.where(first & (found == BROKEN), float("nan"), found).to(tl.float16)
    return found.to(TYPE)


@triton.jit
def power_of_two(number, UP: tl.constexpr):
    """2^UP times the power of two at or below a float32 >= 0, and its inverse; within normal numbers."""
    exponent = tl.minimum(tl.maximum((number.to(tl.int32, bitcast=True) >> 23) + UP, 1), 253)
    return (exponent << 23).to(tl.float32, bitcast=True), ((254 - exponent) << 23).to(tl.float32, bitcast=True)


# ---------------------------------------------------------------------------------------------- products and scores


@triton.jit
def products(
    q00, q01, q10, q11, rows, live,
    HEAD_DIM: tl.constexpr, CODE: tl.constexpr, MARKED: tl.constexpr, TYPE: tl.constexpr, PRECISION: tl.constexpr,
    DIALECT: tl.constexpr,
):  # fmt: skip
    """Products float32 `[ROWS, keys]` of q with the elements of K, without scales."""
    COLUMNS: tl.constexpr = HEAD_DIM // planes(CODE)
    FIRST: tl.constexpr = first_part(COLUMNS)
    SECOND: tl.constexpr = second_part(COLUMNS)
    k = tile(rows, live, CODE, 0, FIRST, COLUMNS)
    scores = tl.zeros((q00.shape[0], live.shape[0]), tl.float32)
    scores = product(q00, tl.trans(operand(k, CODE, 0, MARKED, TYPE, DIALECT)), scores, PRECISION, DIALECT)
    if CODE >= numbers.INT8:
        scores = product(q01, tl.trans(operand(k, CODE, 1, False, TYPE, DIALECT)), scores, PRECISION, DIALECT)
    if SECOND > 0:
        k = tile(rows, live, CODE, FIRST, SECOND, COLUMNS)
        scores = product(q10, tl.trans(operand(k, CODE, 0, False, TYPE, DIALECT)), scores, PRECISION, DIALECT)
        if CODE >= numbers.INT8:
            scores = product(q11, tl.trans(operand(k, CODE, 1, False, TYPE, DIALECT)), scores, PRECISION, DIALECT)
    return scores


@triton.jit
def capped(scores, softcap):
    """softcap * tanh(scores / softcap): for any finite score, and NaN for NaN."""
    return softcap - 2.0 * softcap / (tl.exp(scores * (2.0 / softcap)) + 1.0)


@triton.jit
def both(a, b, c, d):
    return tl.maximum(a, c), tl.maximum(b, d)


@triton.jit
def tops(scores, scale, DIALECT: tl.constexpr):
    """The largest score of each row, and the largest of `scale` `[keys]` for each row; both `[ROWS]`.

    Together: lanes wait for each other once.
    """
    if DIALECT == numbers.INTERPRETED:
        return tl.max(scores, 1), tl.zeros((scores.shape[0],), tl.float32) + tl.max(scale, 0)
    every = tl.broadcast_to(scale[None, :], scores.shape)
    return tl.reduce((scores, every), 1, both)


# ------------------------------------------------------------------------------------------------- sums of values


@triton.jit
def no_sums(ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, CODE: tl.constexpr):
    """Zeros `[ROWS, units]` by part and plane; what does not occur is the first."""
    COLUMNS: tl.constexpr = HEAD_DIM // planes(CODE)
    sum00 = tl.zeros((ROWS, first_part(COLUMNS)), tl.float32)
    sum10 = sum00
    if second_part(COLUMNS) > 0:
        sum10 = tl.zeros((ROWS, second_part(COLUMNS)), tl.float32)
    return sum00, sum00, sum10, sum10


@triton.jit
def add(
    weights, keep, sum00, sum01, sum10, sum11, rows, live,
    HEAD_DIM: tl.constexpr, CODE: tl.constexpr, MARKED: tl.constexpr, TYPE: tl.constexpr, DIALECT: tl.constexpr,
):  # fmt: skip
    """Sums times `keep` `[ROWS]`, and weights x elements of V; float32 `[ROWS, units]` by part and plane."""
    COLUMNS: tl.constexpr = HEAD_DIM // planes(CODE)
    FIRST: tl.constexpr = first_part(COLUMNS)
    SECOND: tl.constexpr = second_part(COLUMNS)
    sum00 = sum00 * keep[:, None]
    if CODE >= numbers.INT8:
        sum01 = sum01 * keep[:, None]
    if SECOND > 0:
        sum10 = sum10 * keep[:, None]
        if CODE >= numbers.INT8:
            sum11 = sum11 * keep[:, None]
    weights = weights.to(TYPE)
    v = tile(rows, live, CODE, 0, FIRST, COLUMNS)
    sum00 = product(weights, operand(v, CODE, 0, MARKED, TYPE, DIALECT), sum00, "ieee", DIALECT)
    if CODE >= numbers.INT8:
        sum01 = product(weights, operand(v, CODE, 1, False, TYPE, DIALECT), sum01, "ieee", DIALECT)
    if SECOND > 0:
        v = tile(rows, live, CODE, FIRST, SECOND, COLUMNS)
        sum10 = product(weights, operand(v, CODE, 0, False, TYPE, DIALECT), sum10, "ieee", DIALECT)
        if CODE >= numbers.INT8:
            sum11 = product(weights, operand(v, CODE, 1, False, TYPE, DIALECT), sum11, "ieee", DIALECT)
    return sum00, sum01, sum10, sum11
