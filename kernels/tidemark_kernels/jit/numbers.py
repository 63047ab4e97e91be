"""Codes of KV memory to numbers, by whole-number arithmetic: the same bits on every device and under the interpreter.

Compute capability 8.0 has no instruction for 8-bit floats and Triton no type for E4M3 there, and what Triton makes of a
byte costs one conversion an element in a unit a quarter as wide as the others. So codes are turned into the bits of a
half, which holds every number of the three dtypes of 8 bits exactly:

    int8   0x6400 + (code ^ 0x80) are the bits of 1024 + 128 + code; 1152 is taken away
    E4M3   sign << 8 | (code & 0x7f) << 7 are the bits of the number / 256, subnormal ones too
    E5M2   code << 8 are the bits of the number

`plane` does this for words of two neighbouring codes (16 bits): matrix instructions take operands of 16 bits whose
neighbours in a register are of two *rows*; a word's low codes of two rows become such a pair by at most four
instructions, and its high codes another. So a tile of `[rows, columns]` codes is loaded as `[rows, columns / 2]` words,
and becomes two operands, of its even and of its odd columns, without moving one byte between lanes.

For CUDA `plane` is a few lines of PTX (`PTX`: $0 is the result, $1 two words); elsewhere it is plain
Triton. A test reads the PTX and computes it for every code.
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

INTERPRETED = tl.constexpr(0)
"""For what a kernel is compiled, `DIALECT`."""
PLAIN = tl.constexpr(1)
PTX_DIALECT = tl.constexpr(2)

INT8_BROKEN = tl.constexpr(-128.0)
"""What `plane` makes of `reference.broken_code`, where no number becomes that code."""
E4M3_BROKEN = tl.constexpr(-1.875)

PTX = {
    (3, 0): "{.reg .b32 s, t; mov.b32 s, 0x64806480; lop3.b32 t, $1, 0x00ff00ff, s, 0x6a; sub.rn.f16x2 $0, t, s;}",
    (3, 1): "{.reg .b32 s, t; mov.b32 s, 0x64806480; shr.u32 t, $1, 8; lop3.b32 t, t, 0x00ff00ff, s, 0x6a; "
    "sub.rn.f16x2 $0, t, s;}",
    (4, 0): "{.reg .b32 s, t; shl.b32 s, $1, 8; shl.b32 t, $1, 7; and.b32 t, t, 0x3f803f80; "
    "lop3.b32 $0, s, 0x80008000, t, 0xea;}",
    (4, 1): "{.reg .b32 t; shr.u32 t, $1, 1; and.b32 t, t, 0x3f803f80; lop3.b32 $0, $1, 0x80008000, t, 0xea;}",
    (5, 0): "{.reg .b32 t; shl.b32 t, $1, 8; and.b32 $0, t, 0xff00ff00;}",
    (5, 1): "and.b32 $0, $1, 0xff00ff00;",
}
"""(dtype code, 0: low or 1: high codes of both words) -> instructions; 0x6480 is the half 1152, and 0x6400 ^ 0x80."""
_INT8_LOW, _INT8_HIGH = tl.constexpr(PTX[3, 0]), tl.constexpr(PTX[3, 1])
_E4M3_LOW, _E4M3_HIGH = tl.constexpr(PTX[4, 0]), tl.constexpr(PTX[4, 1])
_E5M2_LOW, _E5M2_HIGH = tl.constexpr(PTX[5, 0]), tl.constexpr(PTX[5, 1])


# ------------------------------------------------------------------------------------------- words of two codes


@triton.jit
def _by_ptx(words, INSTRUCTIONS: tl.constexpr):
    return tl.inline_asm_elementwise(
        asm=INSTRUCTIONS, constraints="=r,r", args=[words], dtype=tl.float16, is_pure=True, pack=2
    )


@triton.jit
def half_of_byte(byte, CODE: tl.constexpr):
    """byte uint16, 0 to 255: one code -> float16, exact; of E4M3 a 256th, and 480 / 256 instead of NaN."""
    if CODE == INT8:
        return (0x6400 + (byte ^ 0x80)).to(tl.uint16).to(tl.float16, bitcast=True) - 1152.0
    if CODE == E4M3:
        return (((byte & 0x80) << 8) | ((byte & 0x7F) << 7)).to(tl.uint16).to(tl.float16, bitcast=True)
    tl.static_assert(CODE == E5M2, "only dtypes of 8 bits have halves")
    return (byte << 8).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def plane(words, CODE: tl.constexpr, HIGH: tl.constexpr, DIALECT: tl.constexpr):
    """words int16, two codes each -> float16: the codes in their low (`HIGH` 0) or high (1) bytes as `half_of_byte`."""
    if DIALECT != PTX_DIALECT:
        bits = words.to(tl.uint16, bitcast=True)
        return half_of_byte(bits & 0xFF if HIGH == 0 else bits >> 8, CODE)
    if CODE == INT8:
        return _by_ptx(words, _INT8_LOW if HIGH == 0 else _INT8_HIGH)
    if CODE == E4M3:
        return _by_ptx(words, _E4M3_LOW if HIGH == 0 else _E4M3_HIGH)
    return _by_ptx(words, _E5M2_LOW if HIGH == 0 else _E5M2_HIGH)


# ------------------------------------------------------------------------------------------------- single numbers


@triton.jit
def to_float(bits, CODE: tl.constexpr):
    """bits uint8, uint16 or uint32 as the dtype is wide -> float32, exact; NaN codes are NaN."""
    if CODE == F32:
        return bits.to(tl.float32, bitcast=True)
    if CODE == F16:
        return bits.to(tl.float16, bitcast=True).to(tl.float32)
    if CODE == BF16:
        return (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    if CODE == E4M3:
        number = half_of_byte(bits.to(tl.uint16), CODE).to(tl.float32) * 256.0
        return tl.where((bits & 0x7F) == 0x7F, float("nan"), number)
    return half_of_byte(bits.to(tl.uint16), CODE).to(tl.float32)
