"""Products with weights of 4 and 8 bits: every way to pack, every class of rows, against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import kernel_case
import pytest
import torch

from tidemark_kernels import reference_packed
from tidemark_kernels.device import packed_linear, packed_scales, packed_weight
from tidemark_kernels.tuning import packed_linear as tuning

NUM_OUTPUTS = 40
"""No multiple of a tile, nor of 16."""
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Of weights rounded once and sums rounded once, at the root mean square of a result."""
EXACT = 2e-5
"""Of a few rows in float32: weights are exact whatever x is."""


@dataclass(frozen=True)
class Packing:
    """How codes are grouped, as `model.tensors.Grouped` holds them."""

    name: str
    codes: str
    group_size: int
    """-1: the whole row."""
    num_inputs: int
    offset: str = ""
    scales: str = "half"
    ordered: bool = False

    def __str__(self) -> str:
        return self.name


PACKINGS = (
    Packing("q4_0", "4", 32, 96, "min of -8 scales"),
    Packing("q4_1", "4", 32, 96, "min"),
    Packing("q4_k", "4", 32, 256, "min", "products"),
    Packing("awq-32", "4", 32, 96, "zero"),
    Packing("awq-64", "4", 64, 192, "zero"),
    Packing("awq-128", "4", 128, 256, "zero"),
    Packing("awq-row", "4", -1, 80, "zero"),
    Packing("gptq-order", "4", 32, 96, "zero", ordered=True),
    Packing("gptq-zero-8", "4", 64, 64, "zero of 8"),
    Packing("bfloat16-scales", "4", 64, 128, "zero", "float"),
    Packing("4-bits-no-offset", "4", 16, 48),
    Packing("4-bits-48", "4", 48, 144, "min", "float"),
    Packing("q8_0", "8", 32, 96),
    Packing("q6_k", "8", 16, 256, scales="products"),
    Packing("8-bits-float", "8", 16, 48, scales="float"),
    Packing("gptq-8-order", "8", 128, 256, "zero", ordered=True),
    Packing("fp8-row", "fp8", -1, 80, scales="float"),
    Packing("fp8-32", "fp8", 32, 64, scales="float"),
)
BY_NAME = {each.name: each for each in PACKINGS}
KINDS = {"float": packed_scales.FLOAT, "half": packed_scales.HALF, "products": packed_scales.SUPER}


@dataclass(frozen=True)
class Parts:
    """Arguments of `PackedWeight.pack`."""

    quants: torch.Tensor
    scales: torch.Tensor
    mins: torch.Tensor | None
    zeros: torch.Tensor | None
    order: torch.Tensor | None
    group_size: int

    def pack(self, k_run: int = 2) -> packed_weight.PackedWeight:
        return packed_weight.PackedWeight.pack(
            self.quants, self.scales, self.mins, self.group_size, self.zeros, self.order, k_run=k_run
        )

    def dequantized(self) -> torch.Tensor:
        """As `model.tensors.Grouped.dequantize` says it."""
        values = self.quants.float().view(len(self.quants), -1, self.group_size)
        if self.zeros is not None:
            values = values - self.zeros.unsqueeze(-1)
        values = values * self.scales.unsqueeze(-1)
        if self.mins is not None:
            values = values + self.mins.unsqueeze(-1)
        values = values.view(self.quants.shape)
        return values if self.order is None else torch.empty_like(values).index_copy_(1, self.order.long(), values)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(how: Packing, num_outputs: int = NUM_OUTPUTS, seed: int = 0, num_inputs: int | None = None) -> Parts:
    random, width = seeded(seed), num_inputs or how.num_inputs
    size = width if how.group_size == -1 else how.group_size
    shape, codes = (num_outputs, width // size), (num_outputs, width)
    if how.codes == "4":
        quants = torch.randint(0, 16, codes, generator=random).to(torch.uint8)
    elif how.codes == "8":
        quants = torch.randint(-128, 128, codes, generator=random).to(torch.int8)
    else:
        # Of all codes but NaN's: subnormal ones, too.
        magnitudes = torch.randint(0, 127, codes, generator=random)
        quants = (magnitudes + 128 * torch.randint(0, 2, codes, generator=random)).to(torch.uint8)
        quants = quants.view(torch.float8_e4m3fn)
    scales = torch.rand(shape, generator=random) * 0.01 + 0.001
    mins = torch.randn(shape, generator=random) * 0.05 if "min" in how.offset else None
    zeros = torch.randint(0, 17, shape, generator=random).float() if "zero" in how.offset else None
    if how.scales == "half":
        scales, mins = scales.half().float(), None if mins is None else mins.half().float()
    elif how.scales == "products":
        scales = products(shape, (0, 64) if mins is not None else (-128, 128), size, random)
        mins = None if mins is None else -products(shape, (0, 64), size, random)
    if how.offset == "min of -8 scales":
        mins = scales * -8.0
    if how.offset == "zero of 8":
        zeros = torch.full(shape, 8.0)
    order = torch.randperm(width, generator=random).int() if how.ordered else None
    return Parts(quants, scales, mins, zeros, order, size)


def products(shape: tuple[int, int], codes: tuple[int, int], size: int, random: torch.Generator) -> torch.Tensor:
    """Whole numbers times a float16 that 256 inputs share; one of the supers is all zeros."""
    a_super = 256 // size
    units = (torch.rand(shape[0], shape[1] // a_super, 1, generator=random) * 0.001 + 0.0001).half().float()
    units[0, 0] = 0.0
    numbers = torch.randint(*codes, (shape[0], shape[1] // a_super, a_super), generator=random)
    return (units * numbers).reshape(shape)


def activations(num_rows: int, num_inputs: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(num_rows, num_inputs, generator=seeded(seed)).to(dtype)


def compared(
    weight: packed_weight.PackedWeight,
    num_rows: int,
    dtype: torch.dtype,
    *,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    tolerance: float | None = None,
) -> kernel_case.Compared:
    """With NaN in what is written and in the workspace; rows of x and of the result lie apart."""
    wide_x = torch.full((num_rows, weight.num_inputs + 16), torch.nan).to(dtype)
    x = wide_x[:, : weight.num_inputs]
    x.copy_(activations(num_rows, weight.num_inputs, dtype))
    wide_out = torch.full((num_rows, weight.num_outputs + 24), torch.nan, dtype=out_dtype or dtype)
    out = wide_out[:, : weight.num_outputs]
    floats = packed_linear.workspace_floats(num_rows, weight, dtype == torch.float32)
    workspace = torch.full((floats,), torch.nan)
    got = packed_linear.packed_linear(x, weight, bias, out, workspace)
    assert got is out
    assert wide_out[:, weight.num_outputs :].isnan().all()
    expected = reference_packed.packed_linear(x, weight, bias, compute=torch.float64)
    return kernel_case.Compared(got, expected, TOLERANCE[dtype] if tolerance is None else tolerance)


def odd(how: Packing, k_run: int) -> Callable[[], list[kernel_case.Compared]]:
    """Three rows, whose weights are exact, in one order of inputs; seventeen, with rounded ones, in the other."""

    def run() -> list[kernel_case.Compared]:
        weight = made(how).pack(k_run)
        if k_run == 2:
            return [compared(weight, 3, torch.bfloat16, out_dtype=torch.float32, tolerance=EXACT)]
        return [compared(weight, 17, torch.float16)]

    return run


def one_token() -> list[kernel_case.Compared]:
    """With a split of the inputs, and a bias."""
    found = []
    for name, bias in (("awq-128", torch.float32), ("q4_k", torch.bfloat16), ("gptq-8-order", None)):
        weight = made(BY_NAME[name], num_inputs=1280).pack()
        assert packed_linear.workspace_floats(1, weight) > 0
        added = None if bias is None else activations(1, NUM_OUTPUTS, bias)[0]
        found.append(compared(weight, 1, torch.float16, bias=added, out_dtype=torch.float32, tolerance=EXACT))
        found.append(compared(weight, 1, torch.bfloat16, bias=added))
    return found


def classes_of_rows() -> list[kernel_case.Compared]:
    """The borders of the classes of steps; one output more than a tile has, and a bias."""
    weight = made(BY_NAME["awq-32"], num_outputs=129).pack()
    bias = activations(1, 129, torch.float16)[0]
    return [compared(weight, rows, torch.float16, bias=bias) for rows in (8, 9, 16, 17, 64, 65, 130)]


def most_rows() -> list[kernel_case.Compared]:
    found = []
    for run in packed_weight.K_RUNS:
        weight = made(BY_NAME["q4_1"], num_outputs=70).pack(run)
        found.append(compared(weight, 257, torch.bfloat16, bias=activations(1, 70, torch.bfloat16)[0]))
    return found


def empty() -> list[kernel_case.Compared]:
    weight = made(BY_NAME["q4_1"]).pack()
    return [compared(weight, 0, torch.bfloat16)]


def every_dtype() -> list[kernel_case.Compared]:
    found = []
    for name in ("q4_1", "q8_0", "fp8-32"):
        weight = made(BY_NAME[name]).pack()
        found += [compared(weight, rows, dtype) for dtype in TOLERANCE for rows in (2, 17)]
    return found


def broken_rows() -> list[kernel_case.Compared]:
    """A NaN stays in its row."""
    weight = made(BY_NAME["q8_0"]).pack()
    x = activations(18, weight.num_inputs, torch.bfloat16)
    x[1, 5] = torch.nan
    found = []
    for rows in (3, 18):
        expected = reference_packed.packed_linear(x[:rows], weight, compute=torch.float64)
        found.append(kernel_case.Compared(packed_linear.packed_linear(x[:rows], weight), expected, 3e-2))
    return found


def rows_of(
    ids: list[int], names: tuple[str, ...] = ("q4_k",), dtype: torch.dtype = torch.float32, *, poisoned: bool = False
) -> Callable[[], list[kernel_case.Compared]]:
    """Rows of a table: the format's exact numbers, rounded once where `dtype` is shorter."""

    def run() -> list[kernel_case.Compared]:
        found = []
        for name in names:
            parts = made(BY_NAME[name])
            for k_run in packed_weight.K_RUNS:
                weight, wanted = parts.pack(k_run), torch.tensor(ids, dtype=torch.int64)
                room = torch.full((len(ids), weight.num_inputs), torch.nan, dtype=dtype) if poisoned else None
                got = packed_linear.packed_rows(wanted, weight, dtype, room)
                expected = reference_packed.packed_rows(wanted, weight).to(dtype)
                found.append(kernel_case.Compared(got, expected, 0.0))
        return found

    return run


WITHOUT_ORDER = tuple(each.name for each in PACKINGS if not each.ordered)
CASES: tuple[kernel_case.Case, ...] = (
    *(
        kernel_case.Case(
            "packed_linear", f"{how}-run-{run}", frozenset({"odd shape", "poisoned output"}), odd(how, run)
        )
        for how in PACKINGS
        for run in packed_weight.K_RUNS
    ),
    kernel_case.Case("packed_linear", "one-token", frozenset({"one token", "poisoned output"}), one_token),
    kernel_case.Case("packed_linear", "classes-of-rows", frozenset({"odd shape"}), classes_of_rows),
    kernel_case.Case("packed_linear", "most-rows", frozenset({"odd shape"}), most_rows),
    kernel_case.Case("packed_linear", "empty", frozenset({"empty"}), empty),
    kernel_case.Case("packed_linear", "every-dtype", frozenset({"every dtype"}), every_dtype),
    kernel_case.Case("packed_linear", "broken-rows", frozenset({"odd shape"}), broken_rows),
    kernel_case.Case("packed_rows", "formats", frozenset({"odd shape"}), rows_of([0, 39, 7, 7], WITHOUT_ORDER)),
    kernel_case.Case("packed_rows", "one-token", frozenset({"one token"}), rows_of([17])),
    kernel_case.Case("packed_rows", "empty", frozenset({"empty"}), rows_of([])),
    kernel_case.Case("packed_rows", "no-rows", frozenset({"odd shape"}), rows_of([-1, 40, 3, 2**40])),
    *(
        kernel_case.Case(
            "packed_rows",
            str(dtype).removeprefix("torch."),
            frozenset({"every dtype", "poisoned output"}),
            rows_of([3, 20], ("q4_1", "q6_k"), dtype, poisoned=True),
        )
        for dtype in TOLERANCE
    ),
)
NO_PAGES = "reads no pages of KV memory"
LACKS = {
    op: dict.fromkeys(("page border", "precision map", "poisoned pages", "permuted pages"), NO_PAGES)
    for op in ("packed_linear", "packed_rows")
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: kernel_case.Case) -> None:
    kernel_case.check(case)


@pytest.mark.parametrize("how", PACKINGS, ids=str)
@pytest.mark.parametrize("k_run", packed_weight.K_RUNS)
def test_nothing_is_rounded(how: Packing, k_run: int) -> None:
    parts = made(how)
    weight = parts.pack(k_run)
    assert torch.equal(weight.dequantize(), parts.dequantized())
    assert weight.affine.kind == KINDS[how.scales]
    held = packed_scales.MIN if how.offset == "min" else packed_scales.ZERO if how.offset == "zero" else None
    no_zero = how.codes == "4" and how.offset == ""
    assert weight.affine.offset == (packed_scales.ZERO if no_zero else held or packed_scales.NO_OFFSET)


def test_codes_moved_in_portions_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = made(BY_NAME["q4_1"], num_outputs=300)
    whole = parts.pack()
    monkeypatch.setattr(packed_weight, "_CODES_AT_A_TIME", 200 * 128)
    assert torch.equal(parts.pack().codes, whole.codes)


@pytest.mark.parametrize(("name", "bits_a_weight"), [("q4_0", 4.5), ("q4_1", 5.0), ("q4_k", 4.625), ("q8_0", 8.5)])
def test_bytes_are_those_of_the_file_nearly(name: str, bits_a_weight: float) -> None:
    weight = made(BY_NAME[name], num_outputs=128, num_inputs=512).pack()
    assert weight.num_bytes * 8 / (128 * 512) == bits_a_weight


@pytest.mark.parametrize(("name", "sizes"), [("awq-128", (1, 5, 8)), ("q4_k", (9, 16)), ("q8_0", (17, 33))])
def test_a_row_has_the_same_bits_alone_and_beside_others(name: str, sizes: tuple[int, ...]) -> None:
    """Within a class of steps, with splits."""
    weight = made(BY_NAME[name], num_inputs=1024).pack()
    x = activations(max(sizes), 1024, torch.bfloat16)
    assert packed_linear.workspace_floats(1, weight) > 0
    results = [packed_linear.packed_linear(x[:size], weight) for size in sizes]
    for result in results[:-1]:
        assert torch.equal(result, results[-1][: len(result)])
    elsewhere = packed_linear.packed_linear(x.roll(3, dims=0), weight)
    assert torch.equal(elsewhere, results[-1].roll(3, dims=0))


def test_splits_depend_on_the_matrix_and_the_class() -> None:
    few = tuning.config(1, 2, is_float32=False)
    assert few is tuning.config(8, 2, is_float32=False)
    assert tuning.splits(few, 4096, 4096) == 8
    assert tuning.splits(few, 128_000, 4096) == 1
    assert tuning.splits(few, 64, 128) == 1
    assert tuning.splits(tuning.config(1000, 2, is_float32=False), 64, 1 << 20) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_size": 24}, "group_size is 24, expected a multiple of 16"),
        ({"group_size": 64}, "num_inputs is 96, expected a multiple of group_size 64"),
        ({"quants": torch.zeros(40, 96)}, "quants are torch.float32 .*expected uint8 or int8 or float8_e4m3fn"),
        ({"quants": torch.full((40, 96), 16, dtype=torch.uint8)}, "a 4-bit code is 16, expected 0 to 15"),
        ({"scales": torch.zeros(40, 2)}, r"scales are torch.float32 \[40, 2\], expected torch.float32 \[40, 3\]"),
        ({"zeros": torch.zeros(40, 3)}, "mins and zeros are given, expected one of them at most"),
        ({"order": torch.zeros(95, dtype=torch.int32)}, r"order is torch.int32 \[95\], expected torch.int32 \[96\]"),
        ({"k_run": 3}, r"k_run is 3, expected one of \(2, 4\)"),
    ],
)
def test_what_cannot_be_packed_is_refused(change: dict[str, object], message: str) -> None:
    parts = made(BY_NAME["q4_1"])
    arguments = {"quants": parts.quants, "scales": parts.scales, "mins": parts.mins, "group_size": 32}
    with pytest.raises(ValueError, match=message):
        packed_weight.PackedWeight.pack(**{**arguments, **change})  # type: ignore[arg-type]


def test_a_code_that_is_no_number_is_refused() -> None:
    parts = made(BY_NAME["fp8-32"])
    parts.quants.view(torch.uint8)[3, 4] = 0xFF
    with pytest.raises(ValueError, match="quants hold a NaN"):
        parts.pack()


def test_arguments_that_do_not_fit_are_refused() -> None:
    weight, table = made(BY_NAME["q4_1"]).pack(), made(BY_NAME["gptq-order"]).pack()
    x = torch.zeros(2, 96)
    split = made(BY_NAME["awq-128"], num_inputs=1024).pack()
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: packed_linear.packed_linear(torch.zeros(2, 95), weight), r"x is torch.float32 \[2, 95\].*96\]"),
        (lambda: packed_linear.packed_linear(x.double(), weight), "x is torch.float64"),
        (lambda: packed_linear.packed_linear(x, weight, torch.zeros(41)), r"bias is torch.float32 \[41\].*\[40\]"),
        (lambda: packed_linear.packed_linear(x, weight, None, torch.zeros(2, 41)), r"out is .*expected.*\[2, 40\]"),
        (
            lambda: packed_linear.packed_linear(torch.zeros(1, 1024).half(), split, workspace=torch.zeros(3)),
            r"workspace is torch.float32 \[3\].*float32 of 80 elements or more",
        ),
        (lambda: packed_linear.packed_rows(torch.zeros(2), weight), "ids are torch.float32"),
        (lambda: packed_linear.packed_rows(torch.zeros(2, dtype=torch.int64), table), "weight has an order of inputs"),
        (
            lambda: packed_linear.packed_rows(torch.zeros(2, dtype=torch.int64), weight, out=torch.zeros(2, 95)),
            r"out is torch.float32 \[2, 95\].*\[2, 96\]",
        ),
    ]
    for run, message in refused:
        with pytest.raises(ValueError, match=message):
            run()
