"""What a token costs, against a formula that is written out here once more, for shapes of real and odd models."""

from __future__ import annotations

import math

import pytest

from tidemark_runtime.planning import page_layout, precision_map

BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "int4": 4}
SCALED = {"fp8_e4m3", "fp8_e5m2", "int8"}
"""Those with a float32 beside each token of a head's K, and of its V, unless scales are fixed."""
GROUPED = {"int4": 32}
"""Those with 4 bytes beside so many elements of a token, rounded up."""

SHAPES = [
    # layers, KV heads, head size, tokens a page
    (30, 3, 64, 16),  # 3 of 9: SmolLM2-135M
    (32, 8, 128, 16),  # 8 of 32: Llama 3 8B
    (80, 8, 128, 16),  # 8 of 64: Llama 3 70B
    (32, 32, 80, 16),  # as many as query heads: Phi-2
    (18, 1, 256, 16),  # 1 of 8: Gemma 2B
    (28, 4, 128, 32),  # 4 of 28: Qwen2.5 7B
    (24, 2, 64, 16),  # 2 of 14: Qwen2.5 0.5B
    (32, 32, 96, 16),  # Phi-3 mini
    (26, 1, 72, 16),
    (12, 4, 136, 16),
    (5, 3, 72, 7),
    (2, 8, 80, 1),
    (7, 1, 136, 256),
    (3, 5, 33, 5),  # elements end where no scale may begin
]


Shape = tuple[int, int, int, int]


def segment_bytes(dtype: str, head_dim: int, block: int, *, fixed: bool = False) -> int:
    """K, or V, of one head: elements, then scales from the next multiple of 4 on, in whole lines of 64 bytes."""
    size = block * head_dim * BITS[dtype] / 8
    scales = 4 * math.ceil(head_dim / GROUPED[dtype]) if dtype in GROUPED else 4 * (dtype in SCALED and not fixed)
    if scales:
        size = math.ceil(size / 4) * 4 + scales * block
    return math.ceil(size / 64) * 64


def layout_of(
    shape: Shape, dtype: str, precision: precision_map.Segments | None = None, *, fixed: bool = False
) -> page_layout.PageLayout:
    layers, heads, head_dim, block = shape
    return page_layout.PageLayout(page_layout.KVShape(layers, heads, head_dim), block, dtype, precision or {}, fixed)


CASES = [(shape, dtype) for shape in SHAPES for dtype in BITS if dtype != "int4" or shape[2] % 2 == 0]
all_cases = pytest.mark.parametrize(("shape", "dtype"), CASES)


def test_every_dtype_is_looked_at() -> None:
    assert set(BITS) == set(page_layout.KV_DTYPES)


@all_cases
def test_a_token_costs_what_the_formula_says(shape: Shape, dtype: str) -> None:
    layers, heads, head_dim, block = shape
    expected = 2 * layers * heads * segment_bytes(dtype, head_dim, block)
    layout = layout_of(shape, dtype)
    assert layout.page_bytes == expected
    assert layout.token_bytes == expected / block


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[2] * shape[3] % 32 == 0])
def test_sixteen_bits_cost_two_bytes_an_element_and_not_one_more(shape: Shape) -> None:
    layers, heads, head_dim, _ = shape
    assert layout_of(shape, "bfloat16").token_bytes == 2 * layers * heads * head_dim * 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", sorted(SCALED))
def test_fixed_scales_cost_nothing_in_the_page(dtype: str, shape: Shape) -> None:
    layers, heads, head_dim, block = shape
    expected = 2 * layers * heads * segment_bytes(dtype, head_dim, block, fixed=True)
    assert layout_of(shape, dtype, fixed=True).page_bytes == expected


@pytest.mark.parametrize("dtype", sorted(SCALED))
@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_map_keeps_costs_its_own_dtype(shape: Shape, dtype: str) -> None:
    """K of the first layer at 16 bits, V of its last head in 8 others, and a head of the last layer at 32."""
    layers, heads, head_dim, block = shape
    rules = {
        "rules": [
            {"layers": 0, "kind": "k"},
            {"layers": 0, "heads": heads - 1, "kind": "v", "dtype": "fp8_e5m2" if dtype == "int8" else "int8"},
            {"layers": layers - 1, "heads": 0, "kind": "both", "dtype": "float32"},
        ]
    }
    target = precision_map.Target(page_layout.KVShape(layers, heads, head_dim), dtype)
    segments = precision_map.segments_of(precision_map.parse(rules), target)
    one = {name: segment_bytes(name, head_dim, block) for name in BITS if name != "int4"}
    kept = heads * one["bfloat16"] + one["int8"] + 2 * one["float32"]
    others = (2 * layers * heads - heads - 1 - 2) * one[dtype]
    assert layout_of(shape, dtype, segments).page_bytes == kept + others


@all_cases
def test_every_byte_of_a_page_is_a_segments_or_fills_up_its_last_line(shape: Shape, dtype: str) -> None:
    layout = layout_of(shape, dtype)
    end = 0
    for segment in layout.segments:
        assert segment.offset_bytes == math.ceil(end / 64) * 64
        end = segment.offset_bytes + segment.size_bytes
    assert layout.page_bytes == math.ceil(end / 64) * 64
    assert len(layout.segments) == 2 * shape[0] * shape[1]
