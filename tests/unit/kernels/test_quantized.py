"""Quantized K and V: elements and scales are the reference's bit for bit, and what is broken stays visible."""

from __future__ import annotations

import pytest
import torch

from tidemark_kernels import dispatch, ops, reference
from tidemark_kernels import segments as segments_module

INT4 = segments_module.INT4
QUANTIZED = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
WIDTH = 64


def written(rows: torch.Tensor, dtype: torch.dtype, fixed: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """`rows` [num_rows, width] as V of one head of a page each, by the path that is chosen: elements and scales."""
    width = rows.shape[1]
    at = 2 * width
    places_of_scales = ([-1], [-1], [fixed], [fixed]) if fixed else ([width], [at + width])
    layer = ops.LayerSegments.from_offsets([0], [at], dtype, dtype, *places_of_scales)  # type: ignore[arg-type]
    slab = torch.full((len(rows), 2 * at), 255, dtype=torch.uint8)
    qkv = torch.cat((torch.zeros(len(rows), 2 * width), rows), dim=1)
    angles = torch.zeros(len(rows), width // 2)
    places = torch.arange(len(rows), dtype=torch.int32), torch.zeros(len(rows), dtype=torch.int32)
    shape = (1, 1, width, width)
    ops.rope_and_write(qkv, angles.cos(), angles.sin(), *shape, None, None, 1e-6, slab, layer, *places)
    elements, scales = reference.head_views(slab, layer, 0, "v", 1, width)
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


def spread(width: int) -> torch.Tensor:
    """Rows from tame to wild: within a row from tiny to large, far from zero, all the same, one large number."""
    wild = torch.exp(torch.randn(300, width) * 4) * torch.randn(300, 1) * torch.randn(300, width)
    far = torch.randn(100, width) + torch.randn(100, 1) * 1000
    same = torch.randn(50, 1).expand(50, width)
    return torch.cat((torch.randn(300, width), wild, far, same, torch.eye(width) * 1e30, torch.zeros(1, width)))


@pytest.mark.parametrize("width", [8, 24, 32, 64, 72, 256])
def test_4_bits_equal_the_reference_bit_for_bit(kernels: dispatch.Choice, width: int) -> None:
    rows = spread(width)
    elements, pairs = written(rows, INT4)
    wanted, wanted_pairs = reference.quantized(rows, INT4)
    assert torch.equal(elements, wanted)
    assert torch.equal(pairs, wanted_pairs)


@pytest.mark.parametrize("width", [8, 72])
def test_4_bits_are_within_half_a_step_of_what_was_written(kernels: dispatch.Choice, width: int) -> None:
    rows = spread(width)
    have = reference.numbers(*(part[:, None] for part in written(rows, INT4)), torch.arange(len(rows)), torch.float64)
    error = (have[:, 0] - rows.double()).abs()
    for group in torch.split(torch.arange(width), 32):
        least, most = rows[:, group].amin(1, keepdim=True), rows[:, group].amax(1, keepdim=True)
        # Half of a fifteenth of what the group spans, and what bfloat16 takes from its smallest number and its scale.
        allowed = (most - least) * (1 / 30 + 2**-8) + least.abs() * 2**-8
        assert bool((error[:, group] <= allowed * 1.0001).all())


def test_a_group_of_4_bits_without_a_usable_number(kernels: dispatch.Choice) -> None:
    rows = torch.randn(5, WIDTH)
    rows[0, :32] = 0.5
    rows[1, 3] = float("nan")
    rows[2, 40] = float("-inf")
    rows[3, :2] = torch.tensor([3e38, -3e38])  # spans more than a float32 holds
    elements, pairs = written(rows, INT4)
    have = reference.numbers(elements[:, None], pairs[:, None], torch.arange(5), torch.float32)[:, 0]
    assert have[0, :32].tolist() == [0.5] * 32
    assert have.isnan().any(1).tolist() == [False, True, True, True, False], "what is broken stays visible"
    assert bool(have[1, :32].isnan().all())
    assert not bool(have[1, 32:].isnan().any()), "and only there"
    assert torch.equal(pairs.isnan(), reference.quantized(rows, INT4)[1].isnan())


def test_the_torch_path_writes_what_the_kernels_write(without_compiler: dispatch.Choice) -> None:
    rows = spread(72)
    for dtype, fixed in ((INT4, None), (torch.int8, 0.01)):
        elements, scales = written(rows, dtype, fixed)
        wanted = reference.quantized(rows, dtype) if fixed is None else (reference.quantized_by(fixed, rows, dtype),)
        assert torch.equal(elements, wanted[0])
        assert fixed is not None or torch.equal(scales, wanted[1])


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("fixed", [0.01, 2.0**-7, 1e4])
def test_fixed_scales_equal_the_reference_and_clip(kernels: dispatch.Choice, dtype: torch.dtype, fixed: float) -> None:
    rows = spread(WIDTH)
    elements, scales = written(rows, dtype, fixed)
    assert torch.equal(elements.float(), reference.quantized_by(fixed, rows, dtype).float())
    top = segments_module.LARGEST[segments_module.DTYPE_CODES[dtype]]
    assert float(elements.float().abs().max()) <= top
    inside = rows.abs() <= top * fixed
    step = {torch.int8: 0.0, torch.float8_e4m3fn: 1 / 16, torch.float8_e5m2: 1 / 8}[dtype]
    error = (elements.float() * scales[:, None] - rows).abs()
    assert bool((error <= rows.abs() * step + fixed * 0.5001)[inside].all())


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_a_broken_row_with_a_fixed_scale_stays_visible(kernels: dispatch.Choice, dtype: torch.dtype) -> None:
    rows = torch.randn(4, WIDTH) * 1000
    rows[1, 7] = float("nan")
    rows[2, 63] = float("inf")
    rows[3] = -1e30
    _, scales = written(rows, dtype, 0.01)
    assert scales.isnan().tolist() == [False, True, True, False]


def test_what_is_no_scale_for_all_rows_is_refused() -> None:
    for scale in (-1.0, float("nan"), float("inf"), 2.0**-120):
        with pytest.raises(ValueError, match=r"torch.int8 has the fixed scale .*, expected a number from 2\^-100"):
            ops.LayerSegments.from_offsets([0], [64], torch.int8, torch.int8, None, None, [0.1], [scale])
    for dtype, scales in ((torch.float32, [-1]), (INT4, [128]), (torch.int8, [128])):
        with pytest.raises(ValueError, match=r"has the fixed scale 0\.5, expected none beside its own or its dtype"):
            ops.LayerSegments.from_offsets([0], [64], dtype, torch.bfloat16, scales, [-1], [0.5], [0.0])


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
