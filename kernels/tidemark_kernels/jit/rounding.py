"""float32 to the dtype that is stored, rounded to nearest, ties to even.

On a device that is one instruction for two numbers. Triton's interpreter cuts the lower half of a float32 off to make a
bfloat16, so that there the same bits are made by whole-number arithmetic: what tests see is what a device computes.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

_INTERPRETED = tl.constexpr(knobs.runtime.interpret)


@triton.jit
def rounded(x, dtype: tl.constexpr):
    """x float32 -> `dtype` bfloat16, float16 or float32."""
    if _INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        bits = tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, nearest)
        result = bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        result = x.to(dtype)
    return result
