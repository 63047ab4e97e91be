"""Numbers to codes of 8 bits, by whole-number arithmetic: the same bits on every device and under the interpreter.

Compute capability 8.0 has no instruction for 8-bit floats and Triton no type for E4M3 there, so that codes are made out
of float32's bits. Rounding is to nearest, ties to even, as torch's; `tests/unit/kernels_device` compares every bfloat16
value and random float32 ones.

A row's scale is its largest magnitude / the largest number of the dtype (127, 448, 57344), or one fixed scale for all
rows of a head; an element's code is that of `element * inverse`, where `inverse = largest of the dtype / largest
magnitude`, both divisions rounded once (`reference.quantized`, `reference.quantized_by`). The product must be rounded
before it becomes a code: its bits pass through whole-number operations, so that no compiler contracts it with a sum.
"""

from __future__ import annotations

import triton
import triton.language as tl

F32 = tl.constexpr(0)
"""These are `segments.DTYPE_CODES`."""
F16 = tl.constexpr(1)
BF16 = tl.constexpr(2)
INT8 = tl.constexpr(3)
E4M3 = tl.constexpr(4)
E5M2 = tl.constexpr(5)

_INFINITY = tl.constexpr(0x7F800000)
_WHOLE = tl.constexpr(12582912.0)
"""1.5 * 2^23: added to a number of a magnitude below 2^22, it leaves the nearest whole number in the low bits."""
_WHOLE_BITS = tl.constexpr(0x4B400000)
_SMALLEST = tl.constexpr(2.0**-100)
"""A row without a number that large becomes zeros: what is divided by less would overflow."""


# ------------------------------------------------------------------------------------------------ codes of elements


@triton.jit
def magnitude_bits(x):
    """Bits of |x|, int32: ordered like the numbers, infinities and then NaN above all of them."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _nearest_whole(x):
    """A float32 of a magnitude below 2^22 -> its nearest whole number, ties to even, in the low bits of int32."""
    return (x + _WHOLE).to(tl.int32, bitcast=True)


@triton.jit
def _to_minifloat(x, MANTISSA: tl.constexpr, BIAS: tl.constexpr):
    """float32 -> int32, a float of `MANTISSA` bits whose exponents are biased by `BIAS`."""
    SHIFT: tl.constexpr = 23 - MANTISSA
    TO_STEPS: tl.constexpr = 2.0 ** (BIAS - 1 + MANTISSA)
    SMALLEST_NORMAL: tl.constexpr = 2.0 ** (1 - BIAS)
    bits = magnitude_bits(x)
    rounded = bits + ((1 << (SHIFT - 1)) - 1) + ((bits >> SHIFT) & 1)
    normal = (rounded >> SHIFT) - ((127 - BIAS) << MANTISSA)
    magnitude = bits.to(tl.float32, bitcast=True)
    small = _nearest_whole(magnitude * TO_STEPS) - _WHOLE_BITS
    sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return tl.where(magnitude < SMALLEST_NORMAL, small, normal) | sign


@triton.jit
def to_code(x, CODE: tl.constexpr):
    """float32 within the numbers of the dtype (see `scaled`) -> its code, uint8."""
    tl.static_assert(CODE >= INT8 and CODE <= E5M2, "a dtype of 8 bits")
    if CODE == INT8:
        code = _nearest_whole(x)
    elif CODE == E4M3:
        code = _to_minifloat(x, 3, 7)
    else:
        code = _to_minifloat(x, 2, 15)
    return code.to(tl.uint8)


# ---------------------------------------------------------------------------------------------------- scales of rows


@triton.jit
def scales_of(largest_bits, fixed, CODE: tl.constexpr):
    """Largest magnitude bits of rows, their fixed scales (0: none), both [ROWS] -> inverse and scale, float32 [ROWS].

    Inverse 0: the row becomes zeros. A row with an infinity or a NaN has the scale NaN.
    """
    TOP: tl.constexpr = 127.0 if CODE == INT8 else 448.0 if CODE == E4M3 else 57344.0
    largest = largest_bits.to(tl.float32, bitcast=True)
    is_finite = largest_bits < _INFINITY
    is_fixed = fixed > 0
    is_usable = is_finite & (is_fixed | (largest >= _SMALLEST))
    top = tl.where(is_fixed, 1.0, TOP)
    base = tl.where(is_fixed, fixed, tl.where(is_usable, largest, 1.0))
    inverse = tl.where(is_usable, tl.math.div_rn(top, base), 0.0)
    own = tl.math.div_rn(tl.where(is_usable, largest, 0.0), tl.full(largest.shape, TOP, tl.float32))
    return inverse, tl.where(is_finite, own, float("nan"))


@triton.jit
def scaled(x, inverse, CODE: tl.constexpr):
    """x [ROWS, WIDTH], inverse [ROWS] -> x * inverse within the dtype's numbers; zeros where inverse is 0.

    Only a fixed scale clips: by its own, a row's largest element is the dtype's largest number. Clipping also keeps the
    product apart from the sum in `to_code`: contracted into one operation, they would round once instead of twice.
    """
    TOP: tl.constexpr = 127.0 if CODE == INT8 else 448.0 if CODE == E4M3 else 57344.0
    numbers = tl.where(inverse[:, None] > 0, x, 0.0) * inverse[:, None]
    return tl.minimum(tl.maximum(numbers, -TOP), TOP)
