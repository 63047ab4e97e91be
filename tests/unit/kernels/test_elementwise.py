"""Norm, gated SiLU, and rotary embedding with the write into pages, against their references."""

from __future__ import annotations

import pytest
import torch

from tidemark_kernels import dispatch, ops, reference
from tidemark_kernels import segments as segments_module

DTYPES = (torch.float32, torch.bfloat16)


def close(have: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    """Equal but for a last place or two of `dtype`; NaN equals NaN."""
    rtol, atol = (3e-6, 3e-6) if dtype == torch.float32 else (8e-3, 1e-3)
    torch.testing.assert_close(have, want, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 64), (1, 1), (1, 576), (3, 37), (70, 576), (2, 20)])
@pytest.mark.parametrize("add", [False, True])
def test_rms_norm(kernels: dispatch.Choice, dtype: torch.dtype, shape: tuple[int, int], add: bool) -> None:
    x, weight = torch.randn(shape).to(dtype), torch.randn(shape[1])
    residual = torch.randn(shape).to(dtype) if add else None
    kept = None if residual is None else residual.clone()
    wanted = reference.rms_norm(x, weight, 1e-5, kept, torch.float64)
    result = ops.rms_norm(x, weight, 1e-5, residual)
    close(result, wanted, dtype)
    if residual is not None and kept is not None:
        assert torch.equal(residual, kept)
    if not add:
        assert ops.rms_norm(x, weight, 1e-5, out=x) is x
        assert torch.equal(x, result)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 16), (1, 2), (3, 74), (40, 3072)])
def test_silu_mul(kernels: dispatch.Choice, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    x = (torch.randn(shape) * 4).to(dtype)
    result = ops.silu_mul(x)
    close(result, reference.silu_mul(x, torch.float64), dtype)
    assert torch.equal(ops.silu_mul(x, out=torch.empty_like(result)), result)


def test_silu_at_the_ends_and_nan(kernels: dispatch.Choice) -> None:
    gate = torch.tensor([[-1e4, -100.0, -88.0, -0.0, 88.0, 1e4, float("inf"), float("nan")]])
    result = ops.silu_mul(torch.cat((gate, torch.ones(1, 8)), dim=1))
    torch.testing.assert_close(result[:, :7], torch.nn.functional.silu(gate)[:, :7], rtol=1e-6, atol=1e-30)
    assert bool(result[0, 7].isnan())


FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float32, torch.bfloat16, torch.float16)
INT4 = segments_module.INT4
QUANTIZED = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2, INT4)


class Pages:
    """A slab of NaN with one layer's segments somewhere in each page."""

    def __init__(self, num_kv_heads: int, head_dim: int, block_size: int, dtypes: list[torch.dtype]) -> None:
        self.head_dim, self.block_size = head_dim, block_size
        offsets, scales, at = [], [], 64
        for dtype in dtypes:
            offsets.append(at)
            code = segments_module.DTYPE_CODES[dtype]
            at += -(-block_size * segments_module.row_bytes(code, head_dim) // 4) * 4
            scales.append(at if dtype in QUANTIZED else -1)
            at = -(-(at + block_size * segments_module.scale_bytes(code, head_dim)) // 64) * 64
        self.slab = torch.full((7, at + 64), 255, dtype=torch.uint8)
        self.layer = ops.LayerSegments.from_offsets(
            offsets[::2], offsets[1::2], dtypes[::2], dtypes[1::2], scales[::2], scales[1::2]
        )
        assert len(dtypes) == 2 * num_kv_heads


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "rotary_dim", "block_size"),
    [(9, 3, 64, 64, 16), (4, 1, 80, 32, 5), (2, 2, 128, 128, 1), (8, 1, 16, 0, 32), (3, 1, 24, 10, 4)],
)
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(
    "kinds",
    [FLOATS, (*QUANTIZED[:3], torch.bfloat16, INT4, INT4), (INT4, *QUANTIZED, INT4)],
    ids=["floats", "8 bits", "4 bits"],
)
def test_rope_and_write(
    kernels: dispatch.Choice,
    dtype: torch.dtype,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    block_size: int,
    norm: bool,
    kinds: tuple[torch.dtype, ...],
) -> None:
    pages = Pages(kv_heads, head_dim, block_size, list(kinds[: 2 * kv_heads]))
    places = torch.randperm(7 * block_size)[: min(150, 7 * block_size)].to(torch.int32)
    token_page, token_row = places // block_size, places % block_size
    num_tokens = len(places)
    qkv = torch.randn(num_tokens, (heads + 2 * kv_heads) * head_dim).to(dtype)
    angles = torch.rand(num_tokens, rotary_dim // 2) * 6
    q_norm, k_norm = (torch.randn(head_dim), torch.randn(head_dim)) if norm else (None, None)
    shape = (heads, kv_heads, head_dim, rotary_dim)
    expected = pages.slab.clone()
    wanted = reference.rope_and_write(
        qkv, angles.cos(), angles.sin(), *shape, q_norm, k_norm, 1e-6, expected, pages.layer, token_page, token_row
    )
    result = ops.rope_and_write(
        qkv, angles.cos(), angles.sin(), *shape, q_norm, k_norm, 1e-6, pages.slab, pages.layer, token_page, token_row
    )
    close(result, wanted, dtype)
    everything = torch.arange(len(pages.slab))
    for head in range(kv_heads):
        for kind in "kv":
            views = [
                reference.head_views(slab, pages.layer, head, kind, block_size, head_dim)
                for slab in (pages.slab, expected)
            ]
            have, want = (reference.numbers(*view, everything, torch.float32) for view in views)
            element = kinds[2 * head + "kv".index(kind)]
            if element in QUANTIZED:
                # What was written differs in its last bits before rounding: by one step of the dtype at most.
                written = places.long()
                steps = {torch.int8: 1 / 127, torch.float8_e4m3fn: 1 / 8, torch.float8_e5m2: 1 / 4, INT4: 2 / 15}
                have, want = (part.flatten(0, 1)[written] for part in (have, want))
                by_row = element in (torch.int8, INT4)
                limit = (want.abs().amax(1, keepdim=True) if by_row else want.abs()) * steps[element]
                assert bool(((have - want).abs() <= limit * 1.01 + (0 if by_row else 1e-4)).all())
                assert float((~torch.isclose(have, want, rtol=1e-5)).float().mean()) < 0.01
            else:
                close(have, want, element)
            for rows, scales in views:
                rows.view(torch.uint8).zero_()
                if scales is not None:
                    scales.zero_()
    assert torch.equal(pages.slab, expected), "bytes outside the segments were written"


def test_a_page_or_row_that_does_not_exist_writes_nothing(kernels: dispatch.Choice) -> None:
    pages = Pages(1, 16, 4, [torch.float32, torch.float32])
    before = pages.slab.clone()
    for page, row, message in ((7, 0, r"token_page\[1\] is 7, expected 0 to 6"), (-1, 0, "is -1"), (0, 9, "token_row")):
        where = torch.tensor([0, page], dtype=torch.int32), torch.tensor([0, row], dtype=torch.int32)
        with pytest.raises(ValueError, match=message):
            ops.rope_and_write(
                torch.randn(2, 48),
                torch.ones(2, 8),
                torch.zeros(2, 8),
                *(1, 1, 16, 16),
                None,
                None,
                1e-6,
                pages.slab,
                pages.layer,
                *where,
            )
    assert torch.equal(pages.slab, before)


def test_what_does_not_fit_is_named(kernels: dispatch.Choice) -> None:
    x, ones = torch.randn(2, 8), torch.ones(8)
    with pytest.raises(ValueError, match=r"weight is float32 \[8\].*expected contiguous float32 \[7\]"):
        ops.rms_norm(x[:, :7].contiguous(), ones, 1e-5)
    with pytest.raises(ValueError, match="residual is bfloat16"):
        ops.rms_norm(x, ones, 1e-5, residual=x.bfloat16())
    with pytest.raises(ValueError, match="gate_up has 7 columns"):
        ops.silu_mul(x[:, :7].contiguous())
    with pytest.raises(ValueError, match=r"x is non-contiguous"):
        ops.rms_norm(torch.randn(8, 2).T, ones, 1e-5)
    with pytest.raises(ValueError, match=r"KV dtype torch\.int16 has no kernel"):
        ops.LayerSegments.from_offsets([0], [64], torch.int16, torch.float32)
    with pytest.raises(ValueError, match=r"segment offset 6, expected a multiple of 4"):
        ops.LayerSegments.from_offsets([0], [6], torch.float32, torch.float32)
    with pytest.raises(ValueError, match="lengths"):
        ops.LayerSegments.from_offsets([0], [64, 128], torch.float32, torch.float32)
