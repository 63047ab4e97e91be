"""Matrix products in the weight formats of the model, on made weights; a model's own are probed where it is loaded."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tidemark_kernels import dispatch, grouped, halves, ops, reference
from tidemark_kernels.selftests import outcomes, target

_ROWS = 5
"""Not a multiple of anything that kernels work by."""
_ODD_OUTPUTS = 3
"""Beyond two whole panels: the last panel is mostly padding."""
_EIGHT_BIT_TOLERANCE = outcomes.FLOAT32_TOLERANCE
"""Both sides round x to the same codes."""


def grouped_linear(given: target.Target, seeded: torch.Generator) -> Iterator[outcomes.Outcome]:
    for shape in _grouped(given):
        weight, x = _weight(shape, seeded), _inputs(given, shape.num_inputs, seeded)
        have = ops.grouped_linear(x, weight, outcomes.poisoned(_ROWS, weight.num_outputs), torch.float32)
        alone = ops.grouped_linear(x[:1], weight, out_dtype=torch.float32)
        want = reference.grouped_linear(x, weight, torch.float64)
        yield from _compared("grouped_linear", "float32", have, alone, want, outcomes.FLOAT32_TOLERANCE)


def grouped_linear_int8(given: target.Target, seeded: torch.Generator) -> Iterator[outcomes.Outcome]:
    for shape in [shape for shape in _grouped(given) if not shape.is_float]:
        weight, x = _weight(shape, seeded), _inputs(given, shape.num_inputs, seeded)
        have = ops.grouped_linear_int8(x, weight, torch.float32)
        alone = ops.grouped_linear_int8(x[:1], weight, torch.float32)
        want = reference.grouped_linear_int8(x, weight, torch.float64)
        yield from _compared("grouped_linear_int8", "int8", have, alone, want, _EIGHT_BIT_TOLERANCE)


def grouped_rows(given: target.Target, seeded: torch.Generator) -> Iterator[outcomes.Outcome]:
    """Rows come out exactly as the format says, so they are equal bit for bit."""
    for shape in _grouped(given):
        weight = _weight(shape, seeded)
        ids = torch.tensor([0, weight.num_outputs - 1, weight.panel_width, 0])
        have, want = ops.grouped_rows(weight, ids), reference.grouped_rows(weight, ids)
        yield outcomes.Outcome("grouped_rows", "float32", outcomes.equal(have, want), 0.0, f"rows of {shape}")


def dense_linear_f32(given: target.Target, seeded: torch.Generator) -> Iterator[outcomes.Outcome]:
    for num_inputs in _widths(given):
        weight = grouped.PackedDense.pack(torch.randn(_num_outputs(), num_inputs, generator=seeded))
        x = _inputs(given, num_inputs, seeded)
        have = ops.dense_linear_f32(x, weight, outcomes.poisoned(_ROWS, weight.num_outputs), torch.float32)
        alone = ops.dense_linear_f32(x[:1], weight, out_dtype=torch.float32)
        want = reference.dense_linear_f32(x, weight, torch.float64)
        yield from _compared("dense_linear_f32", "float32", have, alone, want, outcomes.FLOAT32_TOLERANCE)


def half_linear(given: target.Target, seeded: torch.Generator) -> Iterator[outcomes.Outcome]:
    for weight in _halves(given, seeded):
        x = _inputs(given, weight.num_inputs, seeded)
        have = ops.half_linear(x, weight, outcomes.poisoned(_ROWS, weight.num_outputs), torch.float32)
        alone = ops.half_linear(x[:1], weight, out_dtype=torch.float32)
        want = reference.half_linear(x, weight, torch.float64)
        yield from _compared("half_linear", "float32", have, alone, want, outcomes.FLOAT32_TOLERANCE)


def half_rows(given: target.Target, seeded: torch.Generator) -> Iterator[outcomes.Outcome]:
    """16 bits become float32 exactly."""
    for weight in _halves(given, seeded):
        ids = torch.tensor([0, weight.num_outputs - 1, weight.panel_width, 0])
        have, want = ops.half_rows(weight, ids), reference.half_rows(weight, ids)
        note = f"rows of {weight.num_inputs} in {dispatch.dtype_name(weight.dtype)}"
        yield outcomes.Outcome("half_rows", "float32", outcomes.equal(have, want), 0.0, note)


def _compared(
    op: str, dtype: str, have: torch.Tensor, alone: torch.Tensor, want: torch.Tensor, tolerance: float
) -> Iterator[outcomes.Outcome]:
    yield outcomes.Outcome(op, dtype, outcomes.difference(have, want), tolerance, f"{_ROWS} rows")
    yield outcomes.Outcome(op, dtype, outcomes.difference(alone, want[:1]), tolerance, "one row")
    if dispatch.current().library is not None:  # what `ops` promises of the compiled path only
        error = outcomes.equal(have[:1], alone)
        yield outcomes.Outcome(op, dtype, error, 0.0, f"a row alone against the same row among {_ROWS}")


def _grouped(given: target.Target) -> list[target.WeightFormat]:
    """What the model has; where it has none, one of each width that can be cut into groups."""
    return sorted(set(given.formats)) or [
        target.WeightFormat(width, 8, grouped.GROUP_MULTIPLE)
        for width in _widths(given)
        if width % grouped.GROUP_MULTIPLE == 0
    ]


def _halves(given: target.Target, seeded: torch.Generator) -> list[halves.PackedHalf]:
    """In the dtypes of the model; where it has none, in all."""
    return [
        halves.PackedHalf.pack(torch.randn(_num_outputs(), width, generator=seeded).to(dtype))
        for dtype in given.half_dtypes or halves.KINDS
        for width in _widths(given)
        if width % 2 == 0
    ]


def _widths(given: target.Target) -> list[int]:
    return sorted({given.hidden_size, given.intermediate_size})


def _num_outputs() -> int:
    return 2 * dispatch.current().panel_width + _ODD_OUTPUTS


def _inputs(given: target.Target, num_inputs: int, seeded: torch.Generator) -> torch.Tensor:
    return torch.randn(_ROWS, num_inputs, generator=seeded).to(given.dtype)


def _weight(shape: target.WeightFormat, seeded: torch.Generator) -> grouped.GroupedWeight:
    """Codes over the whole range; scales and mins as float16 holds them, as checkpoints have them."""
    low, high, dtype = (0, 16, torch.uint8) if shape.bits == 4 else (-128, 128, torch.int8)
    size = (_num_outputs(), shape.num_inputs)
    quants = torch.randint(low, high, size, generator=seeded).to(dtype)
    if shape.is_float:
        quants = torch.randn(size, generator=seeded).to(torch.float8_e4m3fn)
    groups = (size[0], shape.num_inputs // shape.group_size)
    scales, mins = (torch.randn(groups, generator=seeded).half().float() for _ in range(2))
    zeros = torch.randint(0, 16, groups, generator=seeded).float() if shape.offset == "zero" else None
    return grouped.GroupedWeight.pack(
        quants, scales, mins if shape.offset == "min" else None, shape.bits, shape.group_size, zeros=zeros
    )
