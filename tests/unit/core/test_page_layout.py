from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime import config, errors
from tidemark_runtime.planning import page_layout

SMOLLM2 = page_layout.KVShape(num_layers=30, num_kv_heads=3, head_dim=64)


@pytest.mark.parametrize(("dtype", "token_bytes"), [("bfloat16", 23_040), ("float16", 23_040), ("float32", 46_080)])
def test_a_token_costs_what_the_formula_says(dtype: str, token_bytes: int) -> None:
    """2 (K and V) x layers x heads x head_dim x item bytes."""
    layout = page_layout.PageLayout(SMOLLM2, 16, dtype)
    assert layout.token_bytes == token_bytes
    assert layout.page_bytes == token_bytes * 16


@pytest.mark.parametrize("dtype", ["int8", "fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize(
    ("layers", "heads", "dim", "block"),
    [
        (30, 3, 64, 16),  # SmolLM2-135M
        (32, 8, 128, 16),  # Llama 3 8B
        (80, 8, 128, 16),  # Llama 3 70B
        (32, 32, 128, 16),  # Llama 2 7B
        (28, 4, 128, 32),  # Qwen2 7B
        (24, 2, 64, 16),  # Qwen2 0.5B
        (32, 32, 80, 16),  # Phi-2
        (18, 1, 256, 16),  # Gemma 2B
        (2, 3, 72, 5),
        (1, 1, 8, 1),
        (3, 5, 24, 7),
        (4, 2, 96, 256),
    ],
)
def test_a_quantized_token_costs_a_byte_an_element_and_a_scale(
    layers: int, heads: int, dim: int, block: int, dtype: str
) -> None:
    """2 x layers x heads segments of block x (head_dim + 4) bytes, each rounded up to 64."""
    layout = page_layout.PageLayout(page_layout.KVShape(layers, heads, dim), block, dtype)
    segment = -(-block * (dim + 4) // 64) * 64
    assert layout.page_bytes == 2 * layers * heads * segment
    assert all(each.scales_offset_bytes == each.offset_bytes + block * dim for each in layout.segments)


@pytest.mark.parametrize(
    ("layers", "heads", "dim", "block"),
    [(30, 3, 64, 16), (32, 8, 128, 16), (32, 32, 80, 16), (18, 1, 256, 16), (2, 3, 72, 5), (1, 1, 8, 1), (3, 5, 24, 7)],
)
def test_a_token_of_4_bits_costs_half_a_byte_an_element_and_4_bytes_for_every_32(
    layers: int, heads: int, dim: int, block: int
) -> None:
    layout = page_layout.PageLayout(page_layout.KVShape(layers, heads, dim), block, "int4")
    elements = -(-block * dim // 2 // 4) * 4
    segment = -(-(elements + block * 4 * -(-dim // 32)) // 64) * 64
    assert layout.page_bytes == 2 * layers * heads * segment
    assert all(each.scales_offset_bytes == each.offset_bytes + elements for each in layout.segments)
    # Fixed scales are not for it: its groups have their own.
    assert page_layout.PageLayout(layout.shape, block, "int4", fixed_scales=True).segments == layout.segments


@pytest.mark.parametrize("dtype", ["int8", "fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize(("dim", "block"), [(64, 16), (80, 16), (72, 5), (8, 1)])
def test_fixed_scales_cost_nothing_a_token(dtype: str, dim: int, block: int) -> None:
    layout = page_layout.PageLayout(page_layout.KVShape(4, 2, dim), block, dtype, fixed_scales=True)
    assert layout.page_bytes == 16 * -(-block * dim // 64) * 64
    assert all(each.needs_fixed_scale and each.scales_offset_bytes is None for each in layout.segments)
    kept = page_layout.PageLayout(layout.shape, block, dtype, {(0, 0, "k"): "bfloat16"}, fixed_scales=True)
    assert [each.needs_fixed_scale for each in kept.segments] == [False, *[True] * 15]


def test_the_bytes_of_a_page_by_dtype_sum_to_the_page() -> None:
    kept: dict[tuple[int, int, page_layout.Kind], str] = {(0, 0, "k"): "bfloat16", (1, 1, "v"): "int4"}
    layout = page_layout.PageLayout(page_layout.KVShape(2, 2, 64), 16, "int8", kept)
    assert layout.page_bytes_by_dtype == {"bfloat16": 2048, "int8": 6 * 16 * 68, "int4": 16 * 40}
    assert sum(layout.page_bytes_by_dtype.values()) == layout.page_bytes


def test_the_engine_and_the_layout_agree_on_dtypes_and_which_are_lossy() -> None:
    assert set(config.KV_DTYPES) == {config.AUTO, *page_layout.KV_DTYPES}
    assert {name for name, dtype in page_layout.KV_DTYPES.items() if dtype.lossy} == set(config.LOSSY_KV_DTYPES)
    assert {name for name, dtype in page_layout.KV_DTYPES.items() if dtype.scaled} == set(config.QUANTIZED_KV_DTYPES)


def test_a_kept_head_costs_its_own_dtype_and_has_no_scales() -> None:
    kept: dict[tuple[int, int, page_layout.Kind], str] = {(1, 0, "k"): "bfloat16"}
    layout = page_layout.PageLayout(page_layout.KVShape(2, 2, 64), 16, "int8", kept)
    assert layout.segment(1, 0, "k").scales_offset_bytes is None
    assert layout.page_bytes == 7 * 16 * 68 + 16 * 128


def test_segments_with_a_dtype_of_their_own_change_offsets_only() -> None:
    shape = page_layout.KVShape(2, 2, 8)
    layout = page_layout.PageLayout(shape, 16, "float16", {(0, 1, "v"): "float32"})
    plain = page_layout.PageLayout(shape, 16, "float16")
    assert layout.segment(0, 1, "v").dtype.name == "float32"
    assert layout.segment(0, 1, "v").offset_bytes == plain.segment(0, 1, "v").offset_bytes
    assert layout.segment(1, 0, "k").offset_bytes == plain.segment(1, 0, "k").offset_bytes + 16 * 8 * 2
    assert layout.page_bytes == plain.page_bytes + 16 * 8 * 2


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 130),
    st.integers(1, 40),
    st.sampled_from(["float32", "bfloat16", "int8", "fp8_e5m2", "int4"]),
    st.booleans(),
)
def test_segments_never_overlap_and_are_aligned(
    layers: int, heads: int, dim: int, block: int, dtype: str, fixed: bool
) -> None:
    dim = 2 * dim if dtype == "int4" else dim
    shape = page_layout.KVShape(layers, heads, dim)
    layout = page_layout.PageLayout(shape, block, dtype, {(0, 0, "k"): "float16"}, fixed)
    end = 0
    for segment in layout.segments:
        assert segment.offset_bytes >= end
        assert segment.offset_bytes % page_layout.ALIGNMENT_BYTES == 0
        assert layout.segment(segment.layer, segment.head, segment.kind) == segment
        scales = segment.scales_offset_bytes
        if scales is not None:
            assert scales % page_layout.SCALE_BYTES == 0
            assert scales >= segment.offset_bytes + block * segment.dtype.row_bytes(dim)
            assert scales + block * segment.dtype.scale_bytes(dim) <= segment.offset_bytes + segment.size_bytes
        end = segment.offset_bytes + segment.size_bytes
    assert layout.page_bytes >= end
    assert layout.page_bytes % page_layout.ALIGNMENT_BYTES == 0


@pytest.mark.parametrize(
    ("shape", "block", "dtype", "precision", "key"),
    [
        ((0, 1, 8), 16, "float32", {}, "num_layers"),
        ((1, 1, 8), 0, "float32", {}, "blockSize"),
        ((1, 1, 8), 16, "int7", {}, "kvCache.dtype"),
        ((1, 1, 9), 16, "int4", {}, "shape.head_dim: got 9, expected an even number"),
        ((1, 1, 9), 16, "int8", {(0, 0, "k"): "int4"}, "shape.head_dim: got 9, expected an even number"),
        ((1, 1, 8), 16, "float32", {(1, 0, "k"): "float16"}, "kvCache.precision"),
        ((1, 1, 8), 16, "float32", {(0, 0, "q"): "float16"}, "kvCache.precision"),
        ((1, 1, 8), 16, "float32", {(0, 0, "k"): "half"}, "kvCache.dtype"),
    ],
)
def test_a_wrong_layout_names_the_key(
    shape: tuple[int, int, int],
    block: int,
    dtype: str,
    precision: dict[tuple[int, int, page_layout.Kind], str],
    key: str,
) -> None:
    with pytest.raises(errors.ConfigError, match=key):
        page_layout.PageLayout(page_layout.KVShape(*shape), block, dtype, precision)


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_pages_for_is_the_least_that_holds_the_tokens(num_tokens: int, block: int) -> None:
    pages = page_layout.PageLayout(page_layout.KVShape(1, 1, 8), block, "float32").pages_for(num_tokens)
    assert pages * block >= num_tokens > (pages - 1) * block
