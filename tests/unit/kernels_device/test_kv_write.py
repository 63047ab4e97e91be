"""Rotary embedding and the write of K and V on a device: q, every code and scale, and every byte beside them."""

from __future__ import annotations

import kernel_case
import numpy
import pytest
import torch
import triton
import triton.language as tl
from kv_write_problem import CPU, Made, Problem

from tidemark_kernels import segments as segments_module
from tidemark_kernels.device import layout
from tidemark_kernels.jit import quantize, rounding
from tidemark_kernels.tuning import kv_write as tuning

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
INT8, E4M3, E5M2 = torch.int8, torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = (F32, F16, BF16, INT8, E4M3, E5M2)
ALWAYS = frozenset({"poisoned output", "poisoned pages", "permuted pages"})
"""`Made` fills everything with NaN before, and takes any pages and rows."""


def case(name: str, covers: set[str], **asked: object) -> kernel_case.Case:
    problem = Problem(**asked)  # type: ignore[arg-type]
    return kernel_case.Case("rope_and_write", name, ALWAYS | covers, problem.compared)


CASES: tuple[kernel_case.Case, ...] = (
    *(
        case(f"KV {segments_module.DTYPE_CODES[kv]}, qkv {x}", {"every dtype"}, k=kv, v=kv, x=x, spread=4.0)
        for kv in DTYPES
        for x in ((F32, BF16) if kv in (BF16, INT8) else (F16,))
    ),
    *(
        case(
            f"head_dim {head_dim}, {rotary_dim} turn, {k}, {v}",
            {"odd shape"},
            head_dim=head_dim,
            rotary_dim=rotary_dim,
            num_heads=heads,
            num_kv_heads=kv_heads,
            k=k,
            v=v,
            x=BF16,
            block_size=16,
            num_tokens=2,
            has_norms=head_dim % 64 == 0,
        )
        for head_dim, rotary_dim, heads, kv_heads, k, v in (
            *((64, 64, 9, 3, INT8, E4M3), (64, 16, 4, 4, E5M2, INT8), (80, 32, 2, 2, BF16, E5M2)),
            *((80, 80, 1, 1, E4M3, INT8), (96, 96, 6, 2, E4M3, BF16), (128, 128, 7, 1, E5M2, F32)),
            *((128, 96, 4, 2, INT8, INT8), (192, 192, 2, 2, BF16, INT8), (256, 256, 4, 1, E4M3, E5M2)),
            *((256, 0, 2, 1, INT8, BF16), (24, 8, 34, 17, INT8, INT8)),
        )
    ),
    *(
        case(
            f"one token, norms {norms}, tables {tables}",
            {"one token"},
            num_tokens=1,
            has_norms=norms,
            has_tables=tables,
        )
        for norms in (False, True)
        for tables in (False, True)
    ),
    case("no token", {"empty"}, num_tokens=0),
    *(
        case(
            f"rows at the borders of pages of {block}",
            {"page border"},
            block_size=block,
            num_tokens=4,
            k=INT8,
            v=BF16,
            places=((2, 0), (2, block - 1), (0, 0), (1, block - 1)),
        )
        for block in (8, 16)
    ),
    case("keys kept", {"precision map"}, k=BF16, v=INT8, x=BF16),
    case("one head kept", {"precision map"}, k=(BF16, INT8), v=(INT8, INT8), x=BF16),
    case("any", {"precision map"}, num_kv_heads=4, k=(F32, E4M3, INT8, BF16), v=(E5M2, F16, BF16, INT8), x=F16),
    case("fixed beside 16 bits", {"precision map"}, k=(E4M3, BF16), v=(BF16, INT8), x=BF16, is_fixed=True),
    *(case(f"fixed {kv}", {"every dtype"}, k=kv, v=kv, x=BF16, is_fixed=True) for kv in (INT8, E4M3, E5M2)),
    case("clipped", set(), k=INT8, v=E4M3, is_fixed=True, spread=30.0),
    case("fills up a graph", set(), num_tokens=5, padding=(1, 4), has_tables=True),
)
LACKS: dict[str, dict[str, str]] = {}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: kernel_case.Case) -> None:
    kernel_case.check(case)


@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize("dtype", [INT8, E4M3, E5M2])
def test_what_is_broken_stays_visible_and_alone(dtype: torch.dtype, is_fixed: bool) -> None:
    nan, infinity = float("nan"), float("inf")
    # K of heads 4 and 5, V of 6 and 7: those of the other tokens and heads are numbers.
    broken = ((0, 4, nan), (1, 5, -infinity), (2, 6, infinity), (0, 7, nan), (1, 6, 1e-32), (2, 4, 1e-32))
    problem = Problem(k=dtype, v=dtype, is_fixed=is_fixed, rotary_dim=0, broken=broken)
    with numpy.errstate(invalid="ignore"):
        for one in problem.compared():
            kernel_case.check(kernel_case.Case("rope_and_write", "broken", frozenset(), lambda one=one: [one]))


def test_rows_of_tiny_numbers_are_zeros() -> None:
    made = Made(Problem(num_tokens=1, spread=1.0))
    made.qkv *= 1e-35
    made.run()
    touched = made.slab[made.touched()]
    assert not bool(touched.any()), "codes and scales of rows without a usable number"


def test_a_token_has_the_same_bits_alone_and_in_company() -> None:
    made, alone = (Made(Problem(num_tokens=6, x=BF16, has_norms=True, head_dim=64, rotary_dim=64)) for _ in range(2))
    q = made.run()
    one = slice(3, 4)
    changes = {"qkv": alone.qkv[one], "token_page": alone.page[one], "token_row": alone.row[one]}
    angles = alone.angles[alone.positions[one]]
    found = alone.run(**changes, cos=angles.cos(), sin=angles.sin(), out=None)
    assert torch.equal(found, q[one])
    written = alone.slab != 0xFF
    assert bool(written.any())
    assert torch.equal(alone.slab[written], made.slab[written])


@pytest.mark.parametrize("number", [-1, 9, 10**6])
def test_a_place_that_is_not_there_is_not_written(number: int) -> None:
    for name in ("page", "row"):
        made = Made(Problem())
        getattr(made, name)[:] = number
        before = made.slab.clone()
        made.run()
        assert torch.equal(made.slab, before)


def test_a_position_beyond_the_tables_is_no_number() -> None:
    made = Made(Problem(num_tokens=2, has_tables=True))
    made.positions[1] = 9 * 4 + 1
    q = made.run()
    assert not bool(q[0].isnan().any())
    assert bool(q[1].isnan().all())


# ------------------------------------------------------------------------------------------------- numbers to codes


@triton.jit
def _to_codes(x, out, count, CODE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = tl.load(x + at, mask=at < count, other=0.0)
    tl.store(out + at, quantize.to_code(number, CODE), mask=at < count)


@triton.jit
def _to_bfloat16(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, rounding.rounded(tl.load(x + at, mask=at < count, other=0.0), tl.bfloat16), mask=at < count)


def numbers() -> torch.Tensor:
    """Every bfloat16, random bits, and what lies in the middle between two codes."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(BF16).float()
    generator = torch.Generator().manual_seed(3)
    bits = torch.randint(-(2**31), 2**31 - 1, (300_000,), generator=generator).int().view(F32)
    usual = torch.randn(100_000, generator=generator) * 100
    return torch.cat((every, bits, usual, torch.arange(-255, 256) / 2.0))


@pytest.mark.parametrize("dtype", [INT8, E4M3, E5M2])
def test_codes_are_those_of_torch(dtype: torch.dtype) -> None:
    code = segments_module.DTYPE_CODES[dtype]
    top = segments_module.LARGEST[code]
    x = numbers()
    x = x[x.isfinite()].clamp(-top, top)
    out = torch.empty(len(x), dtype=torch.uint8)
    _to_codes[(triton.cdiv(len(x), 2**17),)](x, out, len(x), CODE=code, BLOCK=2**17)
    wanted = (x.round() if dtype is INT8 else x).to(dtype).view(torch.uint8)
    assert torch.equal(out, wanted)


def test_bfloat16_is_rounded_as_torch_does() -> None:
    x = numbers()
    out = torch.empty(len(x), dtype=BF16)
    _to_bfloat16[(triton.cdiv(len(x), 2**17),)](x, out, len(x), BLOCK=2**17)
    assert torch.equal(out.isnan(), x.isnan())
    assert torch.equal(out.nan_to_num(7.0), x.to(BF16).nan_to_num(7.0))


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "num_heads is 3, expected a multiple of num_kv_heads 2"),
        ({"rotary_dim": 18}, "rotary_dim is 18"),
        ({"qkv": torch.zeros(3, 127)}, r"qkv is float32 \[3, 127\] on cpu, expected contiguous"),
        ({"cos": torch.zeros(3, 7)}, r"cos is float32 \[3, 7\]"),
        ({"positions": torch.zeros(2, dtype=torch.int64)}, r"positions is int64 \[2\]"),
        ({"token_page": torch.zeros(3, dtype=torch.int64)}, r"token_page is int64 \[3\]"),
        ({"q_norm": torch.zeros(8)}, r"q_norm is float32 \[8\]"),
        ({"slab": torch.zeros(4, 1000, dtype=torch.uint8)}, "pages of 1000 bytes, expected multiples of 16"),
        ({"block_size": 64}, "segments of block_size 64"),
        ({"out": torch.zeros(3, 4, 8)}, r"out is float32 \[3, 4, 8\]"),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Made(Problem()).run(**changes)


def test_segments_that_no_wide_access_can_reach_are_refused() -> None:
    made = Made(Problem())
    source = segments_module.LayerSegments.from_offsets([8, 72], [136, 200], BF16, BF16)
    with pytest.raises(ValueError, match="segments begin at multiples of 8 bytes in a page, expected of 16"):
        made.run(segments=layout.DeviceSegments.of(source, CPU), block_size=1)


# -------------------------------------------------------------------------------------------------------- compiled


def test_every_map_has_a_form_that_is_compiled() -> None:
    compiled = {one.constants["CODES"] for one in tuning.variants()}
    for wanted in range(1, 1 << len(tuning.ONE_DTYPE)):
        codes = [code for code in range(len(tuning.ONE_DTYPE)) if wanted >> code & 1]
        found = tuning.compiled_codes(codes)
        assert wanted & ~found == 0
        assert found in compiled
