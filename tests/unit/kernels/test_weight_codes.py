"""Codes beside plain whole numbers with minima: zeros, 8-bit floats, 16 bits. Exact weights, right sums, rows alone."""

from __future__ import annotations

import pytest
import torch

from tidemark_kernels import dispatch, grouped, halves, ops, reference

ROWS = (1, 2, 3, 4, 5, 13)


def zero_parts(bits: int, group_size: int, num_outputs: int = 37, width: int = 256) -> tuple[torch.Tensor, ...]:
    shape = (num_outputs, width // group_size)
    if bits == 4:
        quants, zeros = torch.randint(0, 16, (num_outputs, width), dtype=torch.uint8), torch.randint(0, 17, shape)
    else:
        quants, zeros = (
            torch.randint(-128, 128, (num_outputs, width), dtype=torch.int8),
            torch.randint(-128, 129, shape),
        )
    return quants, torch.randn(shape).half().float(), zeros.float()


@pytest.mark.parametrize(("bits", "group_size"), [(4, 32), (4, 64), (4, 128), (4, 256), (8, 16), (8, 128)])
def test_whole_zeros_beside_16_bit_scales_are_exact_and_small(
    kernels: dispatch.Choice, bits: int, group_size: int
) -> None:
    quants, scales, zeros = zero_parts(bits, group_size)
    weight = grouped.GroupedWeight.pack(quants, scales, None, bits, group_size, zeros=zeros)
    spread = [part.double().repeat_interleave(group_size, 1) for part in (scales, zeros)]
    wanted = ((quants.double() - spread[1]) * spread[0]).float()
    assert weight.half_scales
    assert weight.num_bytes == (37 + -37 % weight.panel_width) * (256 * bits // 8 + 256 // group_size * 4)
    assert torch.equal(weight.dequantize(), wanted)
    assert torch.equal(weight.rows(torch.arange(37)), wanted)
    for num_rows in ROWS:
        x = torch.randn(num_rows, 256)
        expected = reference.grouped_linear(x, weight, torch.float64)
        torch.testing.assert_close(ops.grouped_linear(x, weight).double(), expected, rtol=1e-4, atol=1e-3)
        rounded = reference.grouped_linear_int8(x, weight, torch.float64)
        torch.testing.assert_close(ops.grouped_linear_int8(x, weight).double(), rounded, rtol=1e-4, atol=1e-3)


def every_e4m3() -> torch.Tensor:
    """All codes that are numbers, subnormal ones and both zeros among them, filled up to 256."""
    codes = torch.arange(256, dtype=torch.uint8)
    return torch.where(codes & 127 == 127, torch.zeros_like(codes), codes).view(torch.float8_e4m3fn)


@pytest.mark.parametrize("group_size", [16, 64, 256])
def test_every_e4m3_code_is_its_number(kernels: dispatch.Choice, group_size: int) -> None:
    quants = every_e4m3().repeat(20, 1)
    scales = torch.rand(20, 256 // group_size) + 0.1
    weight = grouped.GroupedWeight.pack(quants, scales, None, 8, group_size)
    wanted = (quants.double() * scales.double().repeat_interleave(group_size, 1)).float()
    assert torch.equal(weight.dequantize(), wanted)
    assert torch.equal(weight.rows(torch.arange(20)), wanted)
    single = ops.grouped_linear(torch.eye(256), weight).t()
    assert torch.equal(single, wanted)
    for num_rows in ROWS:
        x = torch.randn(num_rows, 256)
        expected = reference.grouped_linear(x, weight, torch.float64)
        torch.testing.assert_close(ops.grouped_linear(x, weight).double(), expected, rtol=1e-4, atol=1e-2)


def test_e4m3_is_refused_where_it_cannot_be_computed(kernels: dispatch.Choice) -> None:
    weight = grouped.GroupedWeight.pack(every_e4m3().repeat(2, 1), torch.ones(2, 16), None, 8, 16)
    with pytest.raises(ValueError, match="8-bit floats, expected whole numbers"):
        ops.grouped_linear_int8(torch.ones(1, 256), weight)
    with pytest.raises(ValueError, match="a scale of E4M3 is 128, expected less than 128"):
        grouped.GroupedWeight.pack(every_e4m3().repeat(2, 1), torch.full((2, 16), 128.0), None, 8, 16)


def test_minimum_and_zero_exclude_each_other() -> None:
    quants, scales, zeros = zero_parts(4, 32)
    with pytest.raises(ValueError, match="mins and zeros are given"):
        grouped.GroupedWeight.pack(quants, scales, scales, 4, 32, zeros=zeros)


def hard_values(dtype: torch.dtype) -> torch.Tensor:
    """[37, 256]: random, and in the first row every kind of number: zeros, subnormal, smallest, largest."""
    limits = torch.finfo(dtype)
    row = torch.tensor([0.0, -0.0, limits.smallest_normal, limits.smallest_normal / 8, -limits.tiny / 2, 1.0, -1.5])
    values = torch.randn(37, 256).to(dtype)
    values[0, : len(row)] = row.to(dtype)
    return values


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_their_numbers(kernels: dispatch.Choice, dtype: torch.dtype) -> None:
    given = hard_values(dtype)
    weight = halves.PackedHalf.pack(given)
    assert (weight.shape, weight.dtype, weight.num_bytes) == ((37, 256), dtype, (37 + -37 % weight.panel_width) * 512)
    assert torch.equal(weight.dense(), given)
    ids = torch.tensor([0, 36, 5, 0])
    assert torch.equal(ops.half_rows(weight, ids), given[ids].float())
    assert torch.equal(ops.half_rows(weight, ids), reference.half_rows(weight, ids))
    assert torch.equal(ops.half_linear(torch.eye(256), weight).t(), given.float())
    for num_rows in ROWS:
        x = torch.randn(num_rows, 256)
        expected = reference.half_linear(x, weight, torch.float64)
        torch.testing.assert_close(ops.half_linear(x, weight).double(), expected, rtol=1e-4, atol=1e-3)


def test_rows_of_16_bits_do_not_depend_on_their_company(kernels: dispatch.Choice) -> None:
    weight = halves.PackedHalf.pack(hard_values(torch.bfloat16))
    x = torch.randn(13, 256)
    together = ops.half_linear(x, weight)
    if kernels.library is not None:
        assert all(torch.equal(ops.half_linear(x[row : row + 1], weight)[0], together[row]) for row in range(13))


def test_what_16_bits_cannot_be(kernels: dispatch.Choice) -> None:
    infinite = torch.full((4, 16), float("inf"))
    assert halves.PackedHalf.supports(infinite.bfloat16())
    for wrong in (infinite.half(), torch.ones(4, 15).half(), torch.ones(4, 16), torch.ones(16).half()):
        assert not halves.PackedHalf.supports(wrong)
        with pytest.raises(ValueError, match="expected finite bfloat16 or float16"):
            halves.PackedHalf.pack(wrong)
    with pytest.raises(ValueError, match="id 4 is out of range"):
        ops.half_rows(halves.PackedHalf.pack(torch.ones(4, 16).half()), torch.tensor([4]))
