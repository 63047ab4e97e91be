"""Products with weights of 4 or 8 bits: out = x W^T + bias, W read once, as it is packed (`device/packed_weight.py`).

Maths. A weight is w[n, k] = s[n, g] * q[n, k] + b[n, g], g = k // group. Two ways to sum over k:

- few rows (`SCALE_FIRST` false): codes are whole numbers, exact in 16 bits. Each group is one product of tiles, and
  acc += s * (codes x) + b' * sum(x) in float32: the weights' exact values, and no multiplication for each weight. A
  4-bit code is not converted at all: its bits are put where 16.0 has its upper mantissa bits (16 + q in bfloat16 and in
  float16), two codes with one shift and one and-or; the 16 goes into b' = b - 16 s. int8 and E4M3 become float32 bits
  by a shift and an and-or as well, then 16 bits.
- many rows (`SCALE_FIRST` true): s and b are applied to the weight, which is rounded to the dtype of x once, and all
  of K is summed in the tensor core: what a dense matrix of that dtype would give.

Layout. Weights are the left operand ([outputs, inputs], 64 outputs or more: the matrix instruction's own side on
sm_90), activations the right one, transposed. A thread of a warp holds, of 16 outputs by 16 inputs, the outputs g and
g + 8 (g = lane // 4) and four inputs of each; the packed bytes hold just these, four words (16 bytes) a thread, so that
a warp's load is 512 contiguous bytes, goes to shared memory and comes back to the same thread with one instruction
each, and unpacked numbers are in the registers the matrix instruction reads: no exchange between threads. Joins,
reshapes and permutes below only give names to registers. `K_RUN` is how many neighbouring inputs a thread holds: 2 on
sm_90, 4 where Triton asks for that (`mma.sync` behind a join).

Bytes moved for T rows (T <= BLOCK_ROWS: weights once): N K bits / 8, scales N K / group * (2 or 4, twice with mins or
zeros; 1 and 1/8 of 4 where they are products), x T K 2 once from memory and N / BLOCK_OUTPUTS times from L2, out T N 2;
with a split, 2 * SPLITS * T * N * 4 more, which stay in L2.

A split has its own range of inputs and its own partial sums; `sum_splits_kernel` adds them in order: no atomics, the
same bits each time. A row's sums do not depend on the rows beside it, nor on their number within one configuration.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import packed_formats as formats
from tidemark_kernels.jit import rounding

# ---------------------------------------------------------------------------------------------------------------------
# One tile of weights
# ---------------------------------------------------------------------------------------------------------------------


@triton.jit
def _halves(words, TILES: tl.constexpr, NUM_WORDS: tl.constexpr):
    """`[TILES, 32, NUM_WORDS]` -> its first and its last words: the inputs of two groups."""
    pairs = tl.permute(tl.reshape(words, (TILES, 32, 2, NUM_WORDS // 2)), (0, 1, 3, 2))
    return tl.split(pairs)


@triton.jit
def _placed(numbers, KIND: tl.constexpr, K_RUN: tl.constexpr, TILES: tl.constexpr, STEPS: tl.constexpr):
    """Unpacked numbers, by position in their words, as the tile `[16 TILES, 16 STEPS]`: registers get their names."""
    # Dimensions: tile, g, t, step, then (output + 8, input + run, neighbour), the first two swapped for 8 bits.
    split = tl.reshape(numbers, (TILES, 8, 4, STEPS, 2, 2, 2))
    if KIND != formats.INT4:
        split = tl.permute(split, (0, 1, 2, 3, 5, 4, 6))
    named = tl.permute(split, (0, 4, 1, 3, 2, 5, 6) if K_RUN == 4 else (0, 4, 1, 3, 5, 2, 6))
    return tl.reshape(named, (TILES * 16, STEPS * 16))


@triton.jit
def _joined4(first, second, third, fourth):
    return tl.join(tl.join(first, second), tl.join(third, fourth))


@triton.jit
def _four_bits_as_16(words, DTYPE: tl.constexpr):
    """16 + code in `DTYPE`, two codes with one instruction: `[..., NUM_WORDS, output + 8, input + run, neighbour]`."""
    pairs = _joined4(
        formats.pair_of_16(words, 0, DTYPE),
        formats.pair_of_16(words, 1, DTYPE),
        formats.pair_of_16(words, 2, DTYPE),
        formats.pair_of_16(words, 3, DTYPE),
    )
    # The tree puts the last join's bit behind the first one's: (position & 1, position >> 1).
    low = pairs.to(tl.int16).to(DTYPE, bitcast=True)
    high = (pairs >> 16).to(tl.int16).to(DTYPE, bitcast=True)
    return tl.join(low, high)


@triton.jit
def _as_float32(words, KIND: tl.constexpr):
    """code + `formats.base_of(KIND)` in float32, in the same order of dimensions."""
    if KIND == formats.INT4:
        low = _joined4(
            formats.wide(words, 0, KIND),
            formats.wide(words, 4, KIND),
            formats.wide(words, 8, KIND),
            formats.wide(words, 12, KIND),
        )
        high = _joined4(
            formats.wide(words, 16, KIND),
            formats.wide(words, 20, KIND),
            formats.wide(words, 24, KIND),
            formats.wide(words, 28, KIND),
        )
    else:
        low = tl.join(formats.wide(words, 0, KIND), formats.wide(words, 8, KIND))
        high = tl.join(formats.wide(words, 16, KIND), formats.wide(words, 24, KIND))
    return tl.join(low, high)


@triton.jit
def _codes(
    words, KIND: tl.constexpr, K_RUN: tl.constexpr, DTYPE: tl.constexpr, TILES: tl.constexpr, STEPS: tl.constexpr
):
    """Codes as exact numbers of `DTYPE` `[16 TILES, 16 STEPS]`, plus `formats.left_base(KIND, DTYPE)`."""
    if formats.left_base(KIND, DTYPE) > 0:
        numbers = _four_bits_as_16(words, DTYPE)
    else:
        numbers = (_as_float32(words, KIND) - formats.base_of(KIND)).to(DTYPE)
    return _placed(numbers, KIND, K_RUN, TILES, STEPS)


@triton.jit
def _weights(
    words,
    scale,
    beside,
    KIND: tl.constexpr,
    K_RUN: tl.constexpr,
    DTYPE: tl.constexpr,
    TILES: tl.constexpr,
    STEPS: tl.constexpr,
):
    """The weights, rounded to `DTYPE` once: `[16 TILES, 16 STEPS]`."""
    numbers = _placed(_as_float32(words, KIND), KIND, K_RUN, TILES, STEPS)
    return rounding.rounded(numbers * scale[:, None] + beside[:, None], DTYPE)


# ---------------------------------------------------------------------------------------------------------------------
# One group of inputs
# ---------------------------------------------------------------------------------------------------------------------


@triton.jit
def _activations(x_rows, rows, num_rows, first, num_inputs, WIDTH: tl.constexpr):
    """x `[BLOCK_ROWS, WIDTH]` from input `first`, zeros beyond the matrix."""
    inputs = first + tl.arange(0, WIDTH)
    inside = (rows[:, None] < num_rows) & (inputs[None, :] < num_inputs)
    return tl.load(x_rows + inputs[None, :], mask=inside, other=0.0)


@triton.jit
def _product(left, right, acc):
    if formats.INTERPRETED and left.dtype == tl.bfloat16:
        # The interpreter keeps bfloat16 as whole numbers, and would multiply those.
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, acc, input_precision="ieee")


@triton.jit
def _add_group(
    acc,
    words,
    x_rows,
    rows,
    num_rows,
    first,
    num_inputs,
    scale,
    beside,
    KIND: tl.constexpr,
    K_RUN: tl.constexpr,
    SCALE_FIRST: tl.constexpr,
    NEEDS_SUMS: tl.constexpr,
    TILES: tl.constexpr,
    STEPS: tl.constexpr,
):
    """`acc` `[outputs, rows]` plus one group, or a part of one: 16 STEPS inputs from `first`."""
    x = _activations(x_rows, rows, num_rows, first, num_inputs, STEPS * 16)
    if SCALE_FIRST:
        tile = _weights(words, scale, beside, KIND, K_RUN, x.dtype, TILES, STEPS)
        acc = _product(tile, tl.trans(x), acc)
    else:
        tile = _codes(words, KIND, K_RUN, x.dtype, TILES, STEPS)
        acc += _product(tile, tl.trans(x), tl.zeros_like(acc)) * scale[:, None]
        if NEEDS_SUMS:
            acc += beside[:, None] * tl.sum(x.to(tl.float32), axis=1)[None, :]
    return acc


# ---------------------------------------------------------------------------------------------------------------------
# Kernels
# ---------------------------------------------------------------------------------------------------------------------


@triton.jit
def packed_linear_kernel(
    # pointers
    x_ptr,  # [num_rows, num_inputs], rows x_stride apart
    codes_ptr,  # int32 [padded_outputs / 16, num_pieces, 32, 4]
    scales_ptr,  # see formats.affine
    supers_ptr,
    bias_ptr,  # [num_outputs] or None
    out_ptr,  # [num_rows, num_outputs], rows out_stride apart; float32 partial sums [splits, num_rows, num_outputs]
    # sizes
    num_rows,
    num_outputs,
    num_inputs,
    padded_outputs,
    num_pieces,
    steps_a_split,
    # strides
    x_stride,
    out_stride,
    # meta
    KIND: tl.constexpr,
    OFFSET: tl.constexpr,
    SCALES: tl.constexpr,
    GROUP: tl.constexpr,  # inputs that share a scale; 0: all
    PART: tl.constexpr,  # of a group, in one product of tiles: 16, 32 or 64
    K_RUN: tl.constexpr,
    SCALE_FIRST: tl.constexpr,
    PARTIAL: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program (row tile, output tile, split): `BLOCK_ROWS` rows times `BLOCK_OUTPUTS` outputs over a split's inputs."""
    TILES: tl.constexpr = BLOCK_OUTPUTS // 16
    PIECE: tl.constexpr = 64 if KIND == formats.INT4 else 32
    PARTS: tl.constexpr = PIECE // PART if PIECE > PART else 1
    STEPS: tl.constexpr = PIECE // PARTS // 16
    PIECES: tl.constexpr = BLOCK_INPUTS // PIECE
    BASE: tl.constexpr = formats.base_of(KIND) if SCALE_FIRST else formats.left_base(KIND, x_ptr.dtype.element_ty)
    NEEDS_SUMS: tl.constexpr = OFFSET != formats.NO_OFFSET or KIND == formats.INT4
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    outputs = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    split = tl.program_id(2)
    tiles = tl.program_id(1) * TILES + tl.arange(0, TILES)
    lane_words = tl.arange(0, 32)[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]
    code_tiles = codes_ptr + tiles[:, None, None] * (num_pieces * 128) + lane_words
    x_rows = x_ptr + rows[:, None].to(tl.int64) * x_stride
    acc = tl.zeros((BLOCK_OUTPUTS, BLOCK_ROWS), dtype=tl.float32)
    first = split * steps_a_split
    last = tl.minimum(first + steps_a_split, num_pieces // PIECES)
    # Said of the loop, so that scales are fetched ahead as well, which no product of tiles reads directly.
    for step in tl.range(first, last, num_stages=STAGES):
        for index in tl.static_range(PIECES):
            piece = step * PIECES + index
            words = tl.load(code_tiles + piece * 128)
            if PARTS == 1:
                parts = (words,)
            elif PARTS == 2:
                parts = _halves(words, TILES, 4)
            else:
                front, back = _halves(words, TILES, 4)
                parts = _halves(front, TILES, 2) + _halves(back, TILES, 2)
            for part in tl.static_range(PARTS):
                at = piece * PIECE + part * (STEPS * 16)
                # Parts of a step share words of scales; with many rows that gains nothing, and costs registers.
                scale, beside = formats.affine(
                    scales_ptr, supers_ptr, at if SCALE_FIRST else step * BLOCK_INPUTS, outputs, padded_outputs,
                    KIND, OFFSET, SCALES, GROUP,
                    0 if SCALE_FIRST else index * PIECE + part * (STEPS * 16), 1 if SCALE_FIRST else BLOCK_INPUTS,
                )  # fmt: skip
                beside = formats.folded(scale, beside, KIND, OFFSET, BASE)
                some = tl.reshape(parts[part], (TILES, 32, 4 // PARTS))
                acc = _add_group(
                    acc, some, x_rows, rows, num_rows, at, num_inputs, scale, beside,
                    KIND, K_RUN, SCALE_FIRST, NEEDS_SUMS, TILES, STEPS,
                )  # fmt: skip
    inside = (rows[:, None] < num_rows) & (outputs[None, :] < num_outputs)
    result = tl.trans(acc)
    if PARTIAL:
        out_rows = out_ptr + (split * num_rows + rows[:, None]).to(tl.int64) * num_outputs
        tl.store(out_rows + outputs[None, :], result, mask=inside)
    else:
        if bias_ptr is not None:
            result += tl.load(bias_ptr + outputs, mask=outputs < num_outputs, other=0.0).to(tl.float32)[None, :]
        out_rows = out_ptr + rows[:, None].to(tl.int64) * out_stride
        tl.store(out_rows + outputs[None, :], rounding.rounded(result, out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def sum_splits_kernel(
    # pointers
    partial_ptr,  # float32 [splits, num_rows, num_outputs]
    bias_ptr,  # [num_outputs] or None
    out_ptr,  # [num_rows, num_outputs], rows out_stride apart
    # sizes
    num_rows,
    num_outputs,
    splits,
    # strides
    out_stride,
    # meta
    BLOCK_OUTPUTS: tl.constexpr,
):
    """Program (row, output tile): partial sums in the order of their splits, then the bias. Reads each byte once."""
    row = tl.program_id(0).to(tl.int64)
    outputs = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    inside = outputs < num_outputs
    total = tl.zeros((BLOCK_OUTPUTS,), dtype=tl.float32)
    for split in range(splits):
        total += tl.load(partial_ptr + (split * num_rows + row) * num_outputs + outputs, mask=inside, other=0.0)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + outputs, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * out_stride + outputs, rounding.rounded(total, out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def packed_rows_kernel(
    # pointers
    ids_ptr,  # int64 [num_ids]
    codes_ptr,
    scales_ptr,
    supers_ptr,
    out_ptr,  # [num_ids, num_inputs], contiguous
    # sizes
    num_outputs,
    num_inputs,
    padded_outputs,
    num_pieces,
    # meta
    KIND: tl.constexpr,
    OFFSET: tl.constexpr,
    SCALES: tl.constexpr,
    GROUP: tl.constexpr,
    K_RUN: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
):
    """Program (id, tile of inputs): one row, dequantized. It shares its runs of 64 bytes with one other."""
    row = tl.program_id(0)
    wanted = tl.load(ids_ptr + row)
    inputs = tl.program_id(1) * BLOCK_INPUTS + tl.arange(0, BLOCK_INPUTS)
    inside = inputs < num_inputs
    # Nobody may wait for the host to be told: an id that is no row gives NaN, and reads nothing out of place. (Compared
    # as a tile: the interpreter does not spread a scalar truth value over one.)
    output = tl.minimum(tl.maximum(wanted, 0), num_outputs - 1).to(tl.int32)
    is_row = tl.zeros_like(inputs) + output == wanted
    word, shift = formats.place(inputs, output, num_pieces, KIND, K_RUN)
    words = tl.load(codes_ptr + word, mask=inside, other=0)
    codes = formats.wide_at(words, shift, KIND) - formats.base_of(KIND)
    at = tl.where(inside, inputs, 0)
    scale, beside = formats.affine(scales_ptr, supers_ptr, at, output, padded_outputs, KIND, OFFSET, SCALES, GROUP)
    values = tl.where(is_row, formats.weight_of(codes, scale, beside, KIND, OFFSET), float("nan"))
    out_row = out_ptr + row.to(tl.int64) * num_inputs
    tl.store(out_row + inputs, rounding.rounded(values, out_ptr.dtype.element_ty), mask=inside)
