"""Matrix products with weights in panels: exact weights, right sums, and rows that do not depend on their company."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from tidemark_kernels import dispatch, grouped, ops, reference

FORMATS = [(4, 32, True), (4, 16, False), (4, 128, True), (4, 256, True), (8, 32, False), (8, 16, True)]


def parts(
    shape: tuple[int, int], bits: int, group_size: int, has_min: bool, half: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    rows, columns = shape
    if bits == 4:
        quants = torch.randint(0, 16, shape, dtype=torch.uint8)
    else:
        quants = torch.randint(-128, 128, shape, dtype=torch.int8)
    scales, mins = torch.rand(rows, columns // group_size), torch.randn(rows, columns // group_size)
    if half:
        scales, mins = scales.half().float(), mins.half().float()
    return quants, scales, mins if has_min else None


def packed(shape: tuple[int, int], bits: int, group_size: int, has_min: bool) -> grouped.GroupedWeight:
    return grouped.GroupedWeight.pack(*parts(shape, bits, group_size, has_min), bits, group_size)


def exact(quants: torch.Tensor, scales: torch.Tensor, mins: torch.Tensor | None, group_size: int) -> torch.Tensor:
    """q * scale + min, rounded once to float32."""
    values = quants.double() * scales.double().repeat_interleave(group_size, 1)
    return (values if mins is None else values + mins.double().repeat_interleave(group_size, 1)).float()


@pytest.mark.parametrize(("bits", "group_size", "has_min"), FORMATS)
@pytest.mark.parametrize("num_outputs", [1, 16, 37])
def test_rows_are_the_packed_weights_exactly(
    kernels: dispatch.Choice, bits: int, group_size: int, has_min: bool, num_outputs: int
) -> None:
    given = parts((num_outputs, 256), bits, group_size, has_min)
    weight = grouped.GroupedWeight.pack(*given, bits, group_size)
    wanted = exact(*given, group_size)
    ids = torch.randint(0, num_outputs, (23,))
    assert weight.half_scales
    assert weight.shape == (num_outputs, 256)
    assert torch.equal(weight.dequantize(), wanted)
    assert torch.equal(weight.rows(ids), wanted[ids])
    assert torch.equal(ops.grouped_rows(weight, ids), reference.grouped_rows(weight, ids))


def test_scales_that_float16_cannot_hold_stay_float32(kernels: dispatch.Choice) -> None:
    given = parts((20, 64), 4, 32, True, half=False)
    weight = grouped.GroupedWeight.pack(*given, 4, 32)
    assert not weight.half_scales
    torch.testing.assert_close(weight.rows(torch.arange(20)), exact(*given, 32), rtol=2e-7, atol=1e-7)
    x = torch.randn(5, 64)
    wanted = reference.grouped_linear(x, weight, torch.float64).float()
    torch.testing.assert_close(ops.grouped_linear(x, weight), wanted, rtol=1e-4, atol=1e-4)


def test_bytes_are_what_the_format_needs(kernels: dispatch.Choice) -> None:
    weight = packed((64, 256), 4, 32, True)
    assert weight.num_bytes == 64 * (256 // 2 + 256 // 32 * 4)
    assert packed((64, 256), 8, 32, False).num_bytes == 64 * (256 + 256 // 32 * 2)


@pytest.mark.parametrize(("bits", "group_size", "has_min"), FORMATS)
@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 5, 13])
def test_grouped_linear(kernels: dispatch.Choice, bits: int, group_size: int, has_min: bool, num_rows: int) -> None:
    weight = packed((150, 512), bits, group_size, has_min)
    x = torch.randn(num_rows, 512)
    result = ops.grouped_linear(x, weight)
    wanted = reference.grouped_linear(x, weight, torch.float64)
    error = (result - wanted).abs().max() if num_rows else torch.tensor(0.0)
    assert result.shape == (num_rows, 150)
    assert float(error) <= 2e-6 * float(x.abs().sum(1).amax() if num_rows else 1.0) * float(
        weight.dequantize().abs().max()
    )


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 7, 40])
@pytest.mark.parametrize("shape", [(1, 1), (16, 3), (45, 1000), (70, 385)])
def test_dense_linear_f32(kernels: dispatch.Choice, shape: tuple[int, int], num_rows: int) -> None:
    matrix, x = torch.randn(shape), torch.randn(num_rows, shape[1])
    weight = grouped.PackedDense.pack(matrix)
    assert torch.equal(weight.dense(), matrix)
    wanted = reference.dense_linear_f32(x, weight, torch.float64).float()
    torch.testing.assert_close(ops.dense_linear_f32(x, weight), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("bits", "group_size", "has_min"), [*FORMATS, (32, 0, False)])
def test_a_row_does_not_depend_on_its_company_or_on_threads(
    kernels: dispatch.Choice, bits: int, group_size: int, has_min: bool
) -> None:
    shape = (150, 1024)  # longer than what is unpacked at a time, and not a whole number of panels
    x = torch.randn(150, 1024)

    product: Callable[[torch.Tensor], torch.Tensor]
    if bits == 32:
        product = functools.partial(ops.dense_linear_f32, weight=grouped.PackedDense.pack(torch.randn(shape)))
    else:
        product = functools.partial(ops.grouped_linear, weight=packed(shape, bits, group_size, has_min))
    whole = product(x)
    for count in (1, 2, 3, 4, 5, 6, 7, 12, 13, 16, 33, 130):
        some = torch.randint(0, 150, (count,))
        assert torch.equal(product(x[some]), whole[some]), f"{count} rows"
    for number in (2, 3):
        torch.set_num_threads(number)
        for count in (1, 2, 3, 150):
            assert torch.equal(product(x[:count]), whole[:count]), f"{count} rows, {number} threads"


def test_bfloat16_is_summed_in_float32(kernels: dispatch.Choice) -> None:
    weight, x = packed((40, 512), 4, 32, True), torch.randn(3, 512).bfloat16()
    wide = ops.grouped_linear(x.float(), weight)
    assert torch.equal(ops.grouped_linear(x, weight, out_dtype=torch.float32), wide)
    assert torch.equal(ops.grouped_linear(x, weight), wide.bfloat16())
    out = torch.empty(3, 40, dtype=torch.bfloat16)
    assert ops.grouped_linear(x, weight, out=out) is out
    assert torch.equal(out, wide.bfloat16())


def test_out_is_used(kernels: dispatch.Choice) -> None:
    weight, x, out = packed((40, 64), 8, 32, False), torch.randn(2, 64), torch.empty(2, 40)
    assert ops.grouped_linear(x, weight, out=out) is out
    assert torch.equal(out, ops.grouped_linear(x, weight))


def test_a_weight_packed_for_other_panels_is_still_right(kernels: dispatch.Choice) -> None:
    given = parts((40, 64), 4, 32, True)
    weight = grouped.GroupedWeight.pack(*given, 4, 32, panel_width=8)
    x = torch.randn(2, 64)
    torch.testing.assert_close(ops.grouped_linear(x, weight), x @ exact(*given, 32).T, rtol=1e-4, atol=1e-4)
    assert torch.equal(weight.rows(torch.arange(40)), exact(*given, 32))


def test_nan_stays_in_its_row(kernels: dispatch.Choice) -> None:
    weight, x = packed((40, 64), 4, 32, True), torch.randn(9, 64)
    clean = ops.grouped_linear(x, weight)
    x[4, 7] = float("nan")
    result = ops.grouped_linear(x, weight)
    assert bool(result[4].isnan().all())
    others = [row for row in range(9) if row != 4]
    assert torch.equal(result[others], clean[others])


def test_what_does_not_fit_is_named(kernels: dispatch.Choice) -> None:
    quants, scales, mins = parts((8, 64), 4, 32, True)
    pack = grouped.GroupedWeight.pack
    for arguments, message in (
        ((quants, scales, mins, 3, 32), "bits is 3, expected 4 or 8"),
        ((quants, scales, mins, 4, 24), "group_size is 24, expected a multiple of 16"),
        ((quants, scales, mins, 8, 32), r"quants are torch.uint8 \[8, 64\], expected torch.int8"),
        ((quants + 9, scales, mins, 4, 32), "a 4-bit code is .*, expected 0 to 15"),
        ((quants[:, :48].contiguous(), scales, mins, 4, 32), "num_inputs is 48, expected a multiple of group_size 32"),
        ((quants, scales[:, :1], mins, 4, 32), r"scales are torch.float32 \[8, 1\], expected torch.float32 \[8, 2\]"),
        ((quants, scales, scales.double(), 4, 32), "mins are torch.float64"),
    ):
        with pytest.raises(ValueError, match=message):
            pack(*arguments)
    weight = pack(quants, scales, mins, 4, 32)
    for x in (torch.randn(2, 63), torch.randn(64, 2).T, torch.randn(2, 64).double(), torch.randn(64)):
        with pytest.raises(ValueError, match=r"x is .*, expected contiguous float32 or bfloat16"):
            ops.grouped_linear(x, weight)
    with pytest.raises(ValueError, match=r"out is float32 \[2, 7\]"):
        ops.grouped_linear(torch.randn(2, 64), weight, out=torch.empty(2, 7))
    for bad in (-1, 8):
        with pytest.raises(ValueError, match=f"id {bad} is out of range, expected 0 to 7"):
            weight.rows(torch.tensor([0, bad]))
    with pytest.raises(ValueError, match=r"ids are torch\.int32"):
        weight.rows(torch.zeros(3, dtype=torch.int32))
    with pytest.raises(ValueError, match="weight has shape"):
        grouped.PackedDense.pack(torch.zeros(3))
