"""Quantized K and V: elements and scales are the reference's bit for bit, and what is broken stays visible."""

from __future__ import annotations

import pytest
import torch

from tidemark_kernels import dispatch, ops, reference

QUANTIZED = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
WIDTH = 64


def written(rows: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """`rows` [num_rows, WIDTH] as V of one head of a page each, by the path that is chosen: elements and scales."""
    size = WIDTH * 1
    layer = ops.LayerSegments.from_offsets([0], [size + 64], dtype, dtype, [size], [2 * size + 64])
    slab = torch.full((len(rows), 4 * 64), 255, dtype=torch.uint8)
    qkv = torch.cat((torch.zeros(len(rows), 2 * WIDTH), rows), dim=1)
    angles = torch.zeros(len(rows), WIDTH // 2)
    places = torch.arange(len(rows), dtype=torch.int32), torch.zeros(len(rows), dtype=torch.int32)
    shape = (1, 1, WIDTH, WIDTH)
    ops.rope_and_write(qkv, angles.cos(), angles.sin(), *shape, None, None, 1e-6, slab, layer, *places)
    elements, scales = reference.head_views(slab, layer, 0, "v", 1, WIDTH)
    assert scales is not None
    return elements[:, 0], scales[:, 0]


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_elements_and_scales_equal_the_reference_bit_for_bit(kernels: dispatch.Choice, dtype: torch.dtype) -> None:
    spread = torch.exp(torch.randn(500, WIDTH) * 4) * torch.randn(500, 1)  # from tiny to large within a row
    rows = torch.cat((torch.randn(500, WIDTH), spread * torch.randn(500, WIDTH), torch.eye(WIDTH) * 1e30))
    elements, scales = written(rows, dtype)
    wanted = reference.quantized(rows, dtype)
    assert torch.equal(scales, wanted[1])
    assert torch.equal(elements.float(), wanted[0].float())  # as numbers: which zero does not matter


@pytest.mark.parametrize(("dtype", "step"), list(zip(QUANTIZED, (1 / 254, 1 / 16, 1 / 8), strict=True)))
def test_what_is_read_is_within_half_a_step_of_what_was_written(
    kernels: dispatch.Choice, dtype: torch.dtype, step: float
) -> None:
    rows = torch.randn(300, WIDTH) * torch.exp(torch.randn(300, 1) * 5)
    elements, scales = written(rows, dtype)
    largest = rows.abs().amax(1, keepdim=True)
    # int8 has steps of one size; a float's are relative, down to its subnormal ones.
    allowed = largest * step if dtype is torch.int8 else rows.abs() * step + largest * 2.0**-16
    assert bool(((elements.float() * scales[:, None] - rows).abs() <= allowed * 1.0001).all())


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_rows_without_a_usable_number(kernels: dispatch.Choice, dtype: torch.dtype) -> None:
    rows = torch.randn(5, WIDTH)
    rows[0] = 0.0
    rows[1] = 1e-35
    rows[2, 7] = float("nan")
    rows[3, 9] = float("-inf")
    elements, scales = written(rows, dtype)
    assert scales[:2].tolist() == [0.0, 0.0]
    assert bool(scales[2:4].isnan().all()), "what is broken stays visible"
    assert not bool(elements[:4].contiguous().view(torch.uint8).any())
    assert float(scales[4]) > 0


def test_a_quantized_segment_without_scales_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"a segment of torch.int8 has its scales at byte -1, expected a multiple of 4"
    ):
        ops.LayerSegments.from_offsets([0], [64], torch.int8, torch.float32)
    with pytest.raises(ValueError, match=r"torch.float32 has scales at byte 128, expected none"):
        ops.LayerSegments.from_offsets([0], [64], torch.float32, torch.float32, [128], [-1])


def test_scales_beyond_the_page_are_refused(kernels: dispatch.Choice) -> None:
    layer = ops.LayerSegments.from_offsets([0], [1024], torch.int8, torch.int8, [2048], [2112])
    assert layer.end_bytes(16, 64) == 2112 + 64
    assert layer.rows_in(2112 + 64, 64) == 16
    with pytest.raises(ValueError, match="end at byte 2176, expected at most page_bytes 2175"):
        ops.paged_attention(
            torch.zeros(1, 1, 64),
            torch.zeros(1, 2175, dtype=torch.uint8),
            layer,
            torch.zeros(1, 1, dtype=torch.int32),
            torch.tensor([0, 1], dtype=torch.int32),
            torch.ones(1, dtype=torch.int32),
            16,
            0.125,
        )
