"""B051: a key with one channel 30 times larger than the others, and rows of zeros, in quantized pages.

What attention may be off by follows from how far a row's numbers may be from what was written: that bounds the scores,
and the scores bound the result. A scale that is frozen, shared or taken from other rows would break it at once.
"""

from __future__ import annotations

import math

import pytest
import torch

from tidemark_kernels import dispatch, ops

HEAD_DIM, BLOCK, TOKENS = 64, 16, 80
FACTOR = 30.0
DTYPES = [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2]
HALF_STEPS = {torch.float8_e4m3fn: 2.0**-4, torch.float8_e5m2: 2.0**-3}
"""Relative, of what is written."""


def attend(keys: torch.Tensor, values: torch.Tensor, queries: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Written through `rope_and_write` without rotation, and read: the last token's output, `[HEAD_DIM]`."""
    size = BLOCK * HEAD_DIM * dtype.itemsize
    scaled = dtype.itemsize == 1
    scales = ([2 * size], [2 * size + BLOCK * 4]) if scaled else (None, None)
    layer = ops.LayerSegments.from_offsets([0], [size], dtype, dtype, *scales)
    num_pages = -(-TOKENS // BLOCK)
    slab = torch.full((num_pages, 2 * size + 2 * BLOCK * 4), 77, dtype=torch.uint8)
    place = torch.arange(TOKENS, dtype=torch.int32)
    angles = torch.zeros(TOKENS, HEAD_DIM // 2)
    ops.rope_and_write(
        torch.cat((queries, keys, values), dim=1),
        *(angles.cos(), angles.sin()),
        *(1, 1, HEAD_DIM, HEAD_DIM, None, None, 1e-6),
        *(slab, layer, place // BLOCK, place % BLOCK),
    )
    table = torch.arange(num_pages, dtype=torch.int32)[None]
    start, context = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([TOKENS], dtype=torch.int32)
    return ops.paged_attention(
        queries[-1:].view(1, 1, -1), slab, layer, table, start, context, BLOCK, 1 / math.sqrt(HEAD_DIM)
    ).flatten()


def largest_error(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How far each number may be from what was written: half a step."""
    if dtype is torch.int8:
        return (rows.abs().amax(1, keepdim=True) / 254).expand_as(rows)
    return rows.abs() * HALF_STEPS[dtype] + rows.abs().amax(1, keepdim=True) * 2.0**-16


@pytest.mark.parametrize("dtype", DTYPES)
def test_b051_one_channel_thirty_times_larger(kernels: dispatch.Choice, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    keys, values, queries = (torch.randn(TOKENS, HEAD_DIM) for _ in range(3))
    keys[:, 11] *= FACTOR
    queries[:, 11] /= FACTOR  # as trained models do: the channel is large and matters little
    exact = attend(keys, values, queries, torch.float32)
    found = attend(keys, values, queries, dtype)
    scores_off = float((largest_error(keys, dtype) @ queries[-1].abs()).max()) / math.sqrt(HEAD_DIM)
    weights_off = math.expm1(2 * scores_off)
    allowed = weights_off * values.abs().max() + largest_error(values, dtype).max() * (1 + weights_off)
    assert float((found - exact).abs().max()) <= float(allowed)
    alike = torch.nn.functional.cosine_similarity(found, exact, dim=0)
    assert float(alike) > (0.97 if dtype is torch.float8_e5m2 else 0.99)


@pytest.mark.parametrize("dtype", DTYPES)
def test_b051_rows_of_zeros_are_read_as_zeros_and_nothing_is_divided_by_them(
    kernels: dispatch.Choice, dtype: torch.dtype
) -> None:
    torch.manual_seed(5)
    keys, values, queries = (torch.randn(TOKENS, HEAD_DIM) for _ in range(3))
    keys[::2] = 0.0
    values[1::2] = 0.0
    found = attend(keys, values, queries, dtype)
    assert bool(found.isfinite().all())
    assert (
        float(torch.nn.functional.cosine_similarity(found, attend(keys, values, queries, torch.float32), dim=0)) > 0.99
    )
    none = attend(torch.zeros_like(keys), torch.zeros_like(values), queries, dtype)
    assert torch.equal(none, torch.zeros(HEAD_DIM))


@pytest.mark.parametrize("dtype", DTYPES)
def test_b051_a_small_row_is_as_exact_after_a_huge_one_as_before(kernels: dispatch.Choice, dtype: torch.dtype) -> None:
    """Each row has its own scale: the first rows decide nothing for those that follow."""
    torch.manual_seed(6)
    keys, values, queries = (torch.randn(TOKENS, HEAD_DIM) for _ in range(3))
    small = values.clone()
    values[0] *= 1e4
    keys[0] = -queries[-1] * 50  # weight zero
    after_huge, expected = attend(keys, values, queries, dtype), attend(keys, small, queries, dtype)
    assert torch.equal(after_huge, expected)
