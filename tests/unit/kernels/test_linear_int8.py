"""Matrix products with 8-bit activations: sums of whole numbers are exact, and a row knows nothing of the others."""

from __future__ import annotations

import pytest
import torch

from tidemark_kernels import dispatch, grouped, ops, reference

FORMATS = [(4, 32, True), (4, 16, False), (4, 128, True), (8, 32, False), (8, 16, True), (8, 48, False)]


def packed(
    shape: tuple[int, int], bits: int, group_size: int, has_min: bool, half: bool = True
) -> grouped.GroupedWeight:
    groups = (shape[0], shape[1] // group_size)
    quants = (
        torch.randint(0, 16, shape).to(torch.uint8) if bits == 4 else torch.randint(-128, 128, shape).to(torch.int8)
    )
    scales, mins = torch.rand(groups), torch.randn(groups)
    if half:
        scales, mins = scales.half().float(), mins.half().float()
    return grouped.GroupedWeight.pack(quants, scales, mins if has_min else None, bits, group_size)


@pytest.mark.parametrize(("bits", "group_size", "has_min"), FORMATS)
@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 5, 13])
def test_the_product_is_that_of_the_rounded_rows(
    kernels: dispatch.Choice, bits: int, group_size: int, has_min: bool, num_rows: int
) -> None:
    weight, x = packed((150, 1536), bits, group_size, has_min), torch.randn(num_rows, 1536)
    result = ops.grouped_linear_int8(x, weight)
    wanted = reference.grouped_linear_int8(x, weight, torch.float64)
    assert result.shape == (num_rows, 150)
    scale = x.abs().sum(1, keepdim=True) * weight.dequantize().abs().amax()
    assert bool(((result - wanted).abs() <= 1e-6 * scale).all())


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("num_rows", [1, 2, 7])
@pytest.mark.parametrize(("bits", "code"), [(4, 15), (8, 127), (8, -128)])
def test_sums_of_the_largest_numbers_are_exact(
    kernels: dispatch.Choice, bits: int, code: int, num_rows: int, sign: int
) -> None:
    """A sum that leaves 16 bits would lose half of these."""
    dtype = torch.uint8 if bits == 4 else torch.int8
    quants = torch.full((48, 576), code, dtype=dtype)
    weight = grouped.GroupedWeight.pack(quants, torch.ones(48, 18), None, bits, 32)
    result = ops.grouped_linear_int8(torch.full((num_rows, 576), 127.0 * sign), weight)
    assert torch.equal(result, torch.full((num_rows, 48), float(sign * 127 * code * 576)))


@pytest.mark.parametrize("num_rows", [1, 2, 5])
@pytest.mark.parametrize("bits", [4, 8])
def test_every_input_meets_its_own_weight(kernels: dispatch.Choice, bits: int, num_rows: int) -> None:
    """One input at a time: a wrong order of the bytes cannot hide in a sum."""
    weight = packed((20, 64), bits, 32, True)
    wanted = weight.dequantize()
    for k in range(64):
        x = torch.zeros(num_rows, 64)
        x[:, k] = 127.0
        torch.testing.assert_close(
            ops.grouped_linear_int8(x, weight), 127 * wanted[:, k].expand(num_rows, -1), rtol=1e-5, atol=1e-3
        )


@pytest.mark.parametrize(("bits", "group_size", "has_min"), FORMATS)
def test_a_row_does_not_depend_on_its_company_or_on_threads(
    kernels: dispatch.Choice, bits: int, group_size: int, has_min: bool
) -> None:
    weight, x = packed((150, 1536), bits, group_size, has_min, half=False), torch.randn(130, 1536)
    whole = ops.grouped_linear_int8(x, weight)
    for count in (1, 2, 3, 4, 5, 6, 7, 9, 13, 33, 100):
        some = torch.randint(0, 130, (count,))
        assert torch.equal(ops.grouped_linear_int8(x[some], weight), whole[some]), f"{count} rows"
    for number in (2, 3):
        torch.set_num_threads(number)
        for count in (1, 2, 3, 130):
            assert torch.equal(ops.grouped_linear_int8(x[:count], weight), whole[:count]), f"{count}, {number} threads"


def test_builds_for_other_machines_give_the_same_bits(
    native: dispatch.Choice, portable: dispatch.Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are whole numbers, and fused multiply-adds of float32 are the same everywhere that has them."""
    x = torch.randn(5, 96).round()
    quants, ones = torch.randint(0, 16, (24, 96)).to(torch.uint8), torch.ones(24, 3)
    x[:, ::32] = 127.0  # scales of 1: no step of the outer sum rounds
    results = []
    for choice in (native, portable):
        monkeypatch.setattr(dispatch, "current", lambda choice=choice: choice)
        results.append(ops.grouped_linear_int8(x, grouped.GroupedWeight.pack(quants, ones, -ones, 4, 32)))
    assert torch.equal(*results)
    assert torch.equal(results[0], x @ (quants.float() - 1).T)


def test_rounding_is_to_the_nearest_and_half_to_even() -> None:
    x = torch.zeros(1, 32)
    x[0, :6] = torch.tensor([127.0, 0.5, 1.5, -2.5, 0.49, -127.0])
    assert reference.rounded_to_8_bits(x, 32)[0, :6].tolist() == [127.0, 0.0, 2.0, -2.0, 0.0, -127.0]


@pytest.mark.parametrize("num_rows", [1, 2, 6])
def test_zeros_tiny_numbers_and_what_is_not_finite(kernels: dispatch.Choice, num_rows: int) -> None:
    weight = packed((20, 64), 4, 32, True)
    assert torch.equal(ops.grouped_linear_int8(torch.zeros(num_rows, 64), weight), torch.zeros(num_rows, 20))
    assert torch.equal(ops.grouped_linear_int8(torch.full((num_rows, 64), 1e-38), weight), torch.zeros(num_rows, 20))
    x = torch.randn(num_rows, 64)
    clean = ops.grouped_linear_int8(x, weight)
    for bad in (float("nan"), float("inf"), -float("inf")):
        broken = x.clone()
        broken[-1, 7] = bad
        result = ops.grouped_linear_int8(broken, weight)
        assert bool(result[-1].isnan().all())
        assert torch.equal(result[:-1], clean[:-1])


def test_bfloat16_and_the_dtype_of_the_result(kernels: dispatch.Choice) -> None:
    weight, x = packed((40, 64), 4, 32, True), torch.randn(3, 64).bfloat16()
    wide = ops.grouped_linear_int8(x.float(), weight)
    assert torch.equal(ops.grouped_linear_int8(x, weight, torch.float32), wide)
    assert torch.equal(ops.grouped_linear_int8(x, weight), wide.bfloat16())


def test_the_torch_path(without_compiler: dispatch.Choice) -> None:
    weight, x = packed((40, 64), 8, 16, True), torch.randn(3, 64)
    wanted = reference.grouped_linear_int8(x, weight, torch.float64).float()
    torch.testing.assert_close(ops.grouped_linear_int8(x, weight), wanted, rtol=1e-4, atol=1e-3)


def test_what_does_not_fit_is_named(kernels: dispatch.Choice) -> None:
    weight = packed((8, 64), 4, 32, True)
    for x in (torch.randn(2, 63), torch.randn(64, 2).T, torch.randn(2, 64).double(), torch.randn(64)):
        with pytest.raises(ValueError, match=r"x is .*, expected contiguous float32 or bfloat16"):
            ops.grouped_linear_int8(x, weight)
