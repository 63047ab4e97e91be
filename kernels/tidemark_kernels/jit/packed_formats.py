"""How codes become numbers and where a group's scale lies: what the kernels of packed weights share.

A word of 32 bits holds codes of one thread: the lower half those of even inputs, the upper half those of the odd inputs
beside them, so that one shift and one and-or make two 16-bit numbers. With `position` i in a half:

    4 bits   4 codes a half; i = (output + 8) + 2 * (input + run)
    8 bits   2 codes a half; i = (output + 8); the next word has (input + run)

and a thread (g = lane // 4, t = lane % 4) holds the outputs g and g + 8 of 16, and of 16 inputs those numbered
2 t + neighbour + 8 (input + run) where K_RUN is 2, or 4 t + neighbour + 2 (input + run) where it is 4.

Numbers are made from bits, never by an integer conversion (a quarter of the speed of other instructions): the code is
put into the mantissa of a power of two, which is subtracted later together with the zero. E4M3 (which sm_80 does not
know) is shifted to where float32 has its exponent, and multiplied with 2^120; there is no code for NaN in a weight.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

INTERPRETED = tl.constexpr(knobs.runtime.interpret)

INT4 = tl.constexpr(4)
INT8 = tl.constexpr(8)
E4M3 = tl.constexpr(9)

NO_OFFSET = tl.constexpr(0)
MIN = tl.constexpr(1)
ZERO = tl.constexpr(2)

FLOAT_SCALES = tl.constexpr(0)
HALF_SCALES = tl.constexpr(1)
SUPER_SCALES = tl.constexpr(2)

E4M3_FACTOR = tl.constexpr(2.0**120)


@triton.constexpr_function
def base_of(kind):
    """What `wide` adds to a code: 16 to 4 bits, 256 to the byte code + 128 of int8."""
    return {4: 16.0, 8: 384.0, 9: 0.0}[kind]


@triton.constexpr_function
def left_base(kind, dtype):
    """What is left of it in the operand of a product: 4 bits keep it where that saves instructions."""
    return 16.0 if kind == 4 and dtype != tl.float32 else 0.0


@triton.constexpr_function
def is_bfloat16(dtype):
    return dtype == tl.bfloat16


@triton.constexpr_function
def centre_of(kind):
    """The zero of codes that have none of their own."""
    return 8.0 if kind == 4 else 0.0


@triton.jit
def _shifted(words, BY: tl.constexpr):
    """To the left by `BY`, or to the right."""
    return words << BY if BY >= 0 else words >> (-BY)


@triton.jit
def pair_of_16(words, POSITION: tl.constexpr, DTYPE: tl.constexpr):
    """Two 4-bit codes of every word as bits of 16 + code: the code's bits are the upper four of the mantissa."""
    pair = _shifted(words, (3 if is_bfloat16(DTYPE) else 6) - 4 * POSITION)
    return (pair & 0x00780078) | 0x41804180 if is_bfloat16(DTYPE) else (pair & 0x03C003C0) | 0x4C004C00


@triton.jit
def wide(words, FROM: tl.constexpr, KIND: tl.constexpr):
    """The code whose lowest bit is bit `FROM` of a word, in float32, plus `base_of(KIND)`."""
    if KIND == INT4:
        number = ((_shifted(words, 19 - FROM) & 0x00780000) | 0x41800000).to(tl.float32, bitcast=True)
    elif KIND == INT8:
        number = ((_shifted(words, 15 - FROM) & 0x007F8000) | 0x43800000).to(tl.float32, bitcast=True)
    else:
        number = _from_e4m3(words << (24 - FROM))
    return number


@triton.jit
def wide_at(words, shift, KIND: tl.constexpr):
    """As `wide`, each word with a shift of its own."""
    if KIND == INT4:
        number = ((((words >> shift) & 0xF) << 19) | 0x41800000).to(tl.float32, bitcast=True)
    elif KIND == INT8:
        number = ((((words >> shift) & 0xFF) << 15) | 0x43800000).to(tl.float32, bitcast=True)
    else:
        number = _from_e4m3(((words >> shift) & 0xFF) << 24)
    return number


@triton.jit
def _from_e4m3(top_bytes):
    """From bytes at the upper end of words; the shift repeats the sign, which the mask takes away again."""
    bits = (top_bytes >> 4) & -2014314496  # 0x87F00000: sign, four bits of exponent, three of mantissa
    return bits.to(tl.float32, bitcast=True) * E4M3_FACTOR


@triton.jit
def place(inputs, output, num_pieces, KIND: tl.constexpr, K_RUN: tl.constexpr):
    """Index of the word with the code of (`output`, input), and the code's lowest bit in it."""
    PIECE: tl.constexpr = 64 if KIND == INT4 else 32
    step = inputs % PIECE // 16
    within = inputs % 16
    neighbour = within % 2
    if K_RUN == 4:
        run = within // 2 % 2
        t = within // 4
    else:
        run = within // 8
        t = within // 2 % 4
    lane = output % 8 * 4 + t
    below = output % 16 // 8
    if KIND == INT4:
        word = step
        shift = 16 * neighbour + 4 * (below + 2 * run)
    else:
        word = 2 * step + run
        shift = 16 * neighbour + 8 * below
    piece = output // 16 * num_pieces + inputs // PIECE
    return (piece * 32 + lane) * 4 + word, shift


@triton.jit
def _low_half(words):
    return words.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _high_half(words):
    return (words >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _index(at, WITHIN: tl.constexpr, ALIGN: tl.constexpr, GROUP: tl.constexpr, COUNT: tl.constexpr):
    """Which word of COUNT groups: (at + WITHIN) // GROUP // COUNT, written so that parts of a step that need the same
    word load it once."""
    if ALIGN % (GROUP * COUNT) == 0:
        found = at // (GROUP * COUNT) + WITHIN // (GROUP * COUNT)
    elif ALIGN > 1 and GROUP * COUNT % ALIGN == 0:
        found = at // (GROUP * COUNT)
    else:
        found = (at + WITHIN) // GROUP // COUNT
    return found


@triton.jit
def _in_word(at, WITHIN: tl.constexpr, ALIGN: tl.constexpr, GROUP: tl.constexpr, COUNT: tl.constexpr):
    """Which of the COUNT groups of a word it is; known when it is compiled, where a step has whole words."""
    return WITHIN // GROUP % COUNT if ALIGN % (GROUP * COUNT) == 0 else _index(at, WITHIN, ALIGN, GROUP, 1) % COUNT


@triton.jit
def affine(
    scales_ptr,
    supers_ptr,
    at,
    outputs,
    padded_outputs,
    KIND: tl.constexpr,
    OFFSET: tl.constexpr,
    SCALES: tl.constexpr,
    GROUP: tl.constexpr,
    WITHIN: tl.constexpr = 0,
    ALIGN: tl.constexpr = 1,
):
    """Scale, and min or zero, of the group that input `at` + WITHIN belongs to: float32, for `outputs`. `at` is a
    multiple of ALIGN, WITHIN is less.

    FLOAT_SCALES: float32 [groups, padded_outputs], or [groups, 2, padded_outputs] with mins or zeros.
    HALF_SCALES: words [groups, padded_outputs] of a scale and a min or zero; without those, of two groups' scales.
    SUPER_SCALES: a scale is a product of a byte and a float16 that 256 inputs share. With mins, groups of 32: words
    [groups / 2, ...] of two groups' (byte, byte of the min), `supers` [groups / 8, ...] of (float16, float16 of the
    min). Without, groups of 16: words [groups / 4, ...] of signed bytes, `supers` [groups / 16, ...].
    """
    ONE: tl.constexpr = GROUP if GROUP > 0 else 1
    group = _index(at, WITHIN, ALIGN, ONE, 1) if GROUP > 0 else at * 0
    if SCALES == FLOAT_SCALES:
        if OFFSET == NO_OFFSET:
            scale = tl.load(scales_ptr + group * padded_outputs + outputs)
            beside = tl.zeros_like(scale)
        else:
            scale = tl.load(scales_ptr + 2 * group * padded_outputs + outputs)
            beside = tl.load(scales_ptr + (2 * group + 1) * padded_outputs + outputs)
    elif SCALES == HALF_SCALES:
        if OFFSET == NO_OFFSET and GROUP > 0:
            words = tl.load(scales_ptr + _index(at, WITHIN, ALIGN, ONE, 2) * padded_outputs + outputs)
            scale = _low_half(words >> (16 * _in_word(at, WITHIN, ALIGN, ONE, 2)))
            beside = tl.zeros_like(scale)
        elif OFFSET == NO_OFFSET:
            scale = _low_half(tl.load(scales_ptr + group + outputs))
            beside = tl.zeros_like(scale)
        else:
            words = tl.load(scales_ptr + group * padded_outputs + outputs)
            scale = _low_half(words)
            beside = _high_half(words)
    elif OFFSET == NO_OFFSET:
        words = tl.load(scales_ptr + _index(at, WITHIN, ALIGN, ONE, 4) * padded_outputs + outputs)
        supers = tl.load(supers_ptr + _index(at, WITHIN, ALIGN, ONE, 16) * padded_outputs + outputs)
        scale = _low_half(supers) * ((words << (24 - 8 * _in_word(at, WITHIN, ALIGN, ONE, 4))) >> 24).to(tl.float32)
        beside = tl.zeros_like(scale)
    else:
        words = tl.load(scales_ptr + _index(at, WITHIN, ALIGN, ONE, 2) * padded_outputs + outputs)
        words = words >> (16 * _in_word(at, WITHIN, ALIGN, ONE, 2))
        supers = tl.load(supers_ptr + _index(at, WITHIN, ALIGN, ONE, 8) * padded_outputs + outputs)
        scale = _low_half(supers) * (words & 0xFF).to(tl.float32)
        beside = -(_high_half(supers) * ((words >> 8) & 0xFF).to(tl.float32))
    return scale, beside


@triton.jit
def folded(scale, beside, KIND: tl.constexpr, OFFSET: tl.constexpr, BASE: tl.constexpr):
    """b so that a weight is (code + BASE) * scale + b."""
    if OFFSET == MIN:
        left = beside - BASE * scale
    elif OFFSET == ZERO:
        left = -(beside + BASE) * scale
    else:
        left = -(BASE + centre_of(KIND)) * scale
    return left


@triton.jit
def weight_of(code, scale, beside, KIND: tl.constexpr, OFFSET: tl.constexpr):
    """The weight as the formats define it, rounded as they say."""
    if OFFSET == MIN:
        weight = code * scale + beside
    elif OFFSET == ZERO:
        weight = (code - beside) * scale
    else:
        weight = (code - centre_of(KIND)) * scale
    return weight
