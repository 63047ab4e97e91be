"""Norms, the gated activation and rows of an embedding on a device, against the references in float64."""

from __future__ import annotations

import kernel_case
import numpy
import pytest
import torch

from tidemark_kernels import reference
from tidemark_kernels.device import elementwise
from tidemark_kernels.tuning import elementwise as tuning

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = (F32, F16, BF16)
TOLERANCES = {F32: 1e-5, F16: 0.01, BF16: 0.06}
"""One rounding of the largest number."""
EPS = 1e-6
POISONED = frozenset({"poisoned output"})
"""Every result is NaN before."""


def random(*shape: int, dtype: torch.dtype = F32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + shape[-1])).to(dtype)


def norm(num_tokens: int, width: int, dtype: torch.dtype, options: str = "") -> list[kernel_case.Compared]:
    """`options`: any of residual, rows, in place, narrow weight."""
    x, weight = random(num_tokens, width, dtype=dtype), random(width, seed=1)
    weight = weight.to(BF16) if "narrow weight" in options else weight
    residual = random(num_tokens, width, dtype=dtype, seed=2) if "residual" in options else None
    rows = torch.tensor([num_tokens - 1, -1, 0, num_tokens, num_tokens // 2]) if "rows" in options else None
    before, expected_residual = (None if residual is None else residual.clone() for _ in range(2))
    expected = reference.rms_norm(x, weight, EPS, expected_residual, torch.float64, rows)
    out = x if "in place" in options else torch.full_like(expected, torch.nan)
    got = elementwise.rms_norm(x, weight, EPS, residual, rows, out)
    assert got is out
    found = [kernel_case.Compared(got, expected, TOLERANCES[dtype])]
    if residual is not None and before is not None and expected_residual is not None:
        found.append(kernel_case.Compared(residual, before if rows is not None else expected_residual, 0.0))
    return found


def gated(num_tokens: int, width: int, dtype: torch.dtype) -> list[kernel_case.Compared]:
    gate_up = random(num_tokens, 2 * width, dtype=dtype) * 3
    out = torch.full((num_tokens, width), torch.nan, dtype=dtype)
    got = elementwise.silu_mul(gate_up, out)
    return [kernel_case.Compared(got, reference.silu_mul(gate_up, torch.float64), TOLERANCES[dtype])]


def embedded(ids: list[int], width: int, dtype: torch.dtype, kind: torch.dtype) -> list[kernel_case.Compared]:
    table, wanted = random(11, width, dtype=dtype), torch.tensor(ids, dtype=kind)
    out = torch.full((len(ids), width), torch.nan, dtype=dtype)
    got = elementwise.embedding_rows(table, wanted, out)
    return [kernel_case.Compared(got, reference.embedding_rows(table, wanted), 0.0)]


def norm_case(covers: set[str], *asked: object) -> kernel_case.Case:
    name = " ".join(str(one) for one in asked)
    return kernel_case.Case("rms_norm", name, POISONED | covers, lambda: norm(*asked))  # type: ignore[arg-type]


def gated_case(covers: set[str], *asked: object) -> kernel_case.Case:
    name = " ".join(str(one) for one in asked)
    return kernel_case.Case("silu_mul", name, POISONED | covers, lambda: gated(*asked))  # type: ignore[arg-type]


def embedding_case(covers: set[str], *asked: object) -> kernel_case.Case:
    name = " ".join(str(one) for one in asked)
    return kernel_case.Case("embedding_rows", name, POISONED | covers, lambda: embedded(*asked))  # type: ignore[arg-type]


OPTIONS = ("", "residual", "rows", "residual, rows", "residual, in place", "narrow weight")
CASES: tuple[kernel_case.Case, ...] = (
    *(norm_case({"every dtype"}, 3, 64, dtype, options) for dtype in DTYPES for options in OPTIONS),
    *(norm_case({"odd shape"}, 2, width, BF16, "residual") for width in (1, 7, 1001, 4096, 16384, 16387)),
    *(norm_case({"odd shape"}, 2, width, F16, "residual, rows") for width in (33, 17000)),
    norm_case({"one token"}, 1, 896, BF16),
    *(norm_case({"empty"}, 0, 64, BF16, options) for options in ("", "residual")),
    *(gated_case({"every dtype"}, 3, 64, dtype) for dtype in DTYPES),
    *(gated_case({"odd shape"}, 2, width, BF16) for width in (1, 9, 1001, 1024, 1025, 4864)),
    gated_case({"one token"}, 1, 1536, BF16),
    gated_case({"empty"}, 0, 64, BF16),
    *(embedding_case({"every dtype"}, [10, 0, 10, 3], 64, dtype, torch.int64) for dtype in DTYPES),
    *(embedding_case({"odd shape"}, [1, -1, 11, -7, 4], width, BF16, torch.int32) for width in (1, 9, 1001, 1025)),
    embedding_case({"one token"}, [7], 896, BF16, torch.int64),
    embedding_case({"empty"}, [], 64, BF16, torch.int64),
)
_NO_PAGES = dict.fromkeys(
    ("page border", "precision map", "poisoned pages", "permuted pages"), "it takes no pages and no segments"
)
LACKS: dict[str, dict[str, str]] = dict.fromkeys(("rms_norm", "silu_mul", "embedding_rows"), _NO_PAGES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: kernel_case.Case) -> None:
    kernel_case.check(case)


def test_the_ends_of_the_activation_are_those_of_torch() -> None:
    gate = torch.tensor([-1e30, -200.0, -0.0, 0.0, 200.0, 1e30, float("inf"), float("-inf"), float("nan")])
    gate_up = torch.cat((gate, torch.ones(len(gate))))[None]
    with numpy.errstate(invalid="ignore"):
        found = elementwise.silu_mul(gate_up)
    expected = reference.silu_mul(gate_up)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isinf(), expected.isinf())
    assert bool(((found - expected).nan_to_num().abs() <= 1e-6 * expected.abs().nan_to_num()).all())


def test_what_is_broken_stays_in_its_row() -> None:
    x = random(3, 100)
    x[1, 5] = float("inf")
    with numpy.errstate(invalid="ignore"):
        found = elementwise.rms_norm(x, torch.ones(100), EPS)
    assert bool(found[1].isnan().any())
    assert not bool(found[[0, 2]].isnan().any())


@pytest.mark.parametrize("width", [64, 1001, 17000])
def test_a_row_has_the_same_bits_alone_picked_and_in_company(width: int) -> None:
    x, residual, weight = random(4, width, dtype=BF16), random(4, width, dtype=BF16, seed=1), random(width)
    picked = elementwise.rms_norm(x, weight, EPS, residual, rows=torch.tensor([2]))
    alone = elementwise.rms_norm(x[2:3].clone(), weight, EPS, residual[2:3].clone())
    whole = elementwise.rms_norm(x, weight, EPS, residual)
    assert torch.equal(whole[2:3], alone)
    assert torch.equal(picked, alone)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: elementwise.rms_norm(torch.zeros(2, 8, dtype=torch.int8), torch.ones(8), EPS), "x is int8"),
        (lambda: elementwise.rms_norm(torch.zeros(2, 8), torch.ones(7), EPS), r"weight is float32 \[7\] on cpu"),
        (
            lambda: elementwise.rms_norm(torch.zeros(2, 8), torch.ones(8), EPS, torch.zeros(2, 8, dtype=BF16)),
            "residual is bfloat16",
        ),
        (
            lambda: elementwise.rms_norm(torch.zeros(2, 8), torch.ones(8), EPS, rows=torch.zeros(1)),
            r"rows is float32 \[1\]",
        ),
        (lambda: elementwise.rms_norm(torch.zeros(8, 2).T, torch.ones(8), EPS), "x is non-contiguous"),
        (lambda: elementwise.silu_mul(torch.zeros(2, 7)), "7 columns, expected an even number"),
        (lambda: elementwise.silu_mul(torch.zeros(2, 8), torch.zeros(2, 8)), r"out is float32 \[2, 8\]"),
        (lambda: elementwise.embedding_rows(torch.zeros(3, 8), torch.zeros(2)), r"ids is float32 \[2\]"),
    ],
)
def test_wrong_arguments_are_refused(act: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()  # type: ignore[operator]


def test_every_width_has_a_form_that_is_compiled() -> None:
    compiled = {(one.function.__name__, one.constants["BLOCK"], one.num_warps) for one in tuning.variants()}
    for width in (1, 256, 257, 4096, 8192, 8193, 16384, 16385, 100_000):
        form = tuning.norm(width)
        assert ("norm_rows" if form.is_whole else "norm_wide_rows", form.block, form.num_warps) in compiled
        assert form.is_whole == (form.block >= width)
        assert ("silu_mul", tuning.columns(width).block, tuning.columns(width).num_warps) in compiled
