"""KV bytes a token of some shapes beside the formula: the section `bytes` of kv_memory.py."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kv_table import Check, Row, Table

from tidemark_runtime.planning import page_layout

BLOCK = 16
SHAPES: Mapping[str, tuple[int, int, int, int]] = {
    "SmolLM2-135M": (30, 9, 3, 64),
    "Qwen2.5-0.5B": (24, 14, 2, 64),
    "Gemma 2B": (18, 8, 1, 256),
    "Phi-2": (32, 32, 32, 80),
    "Phi-3 mini": (32, 32, 32, 96),
    "Llama 3 8B": (32, 32, 8, 128),
    "Llama 3 70B": (80, 64, 8, 128),
    "Qwen2.5-7B": (28, 28, 4, 128),
    "made, heads of 72": (12, 8, 1, 72),
    "made, heads of 136": (12, 64, 8, 136),
    "made, heads of 40": (7, 9, 3, 40),
    "made, heads of 8": (2, 4, 2, 8),
}
"""Layers, query heads, KV heads, head size."""


def expected(shape: tuple[int, int, int, int], dtype: str) -> float:
    """2 (K and V) x layers x heads x (head size x item bytes, and 4 bytes for a scale), in whole lines of 64 bytes."""
    layers, _, heads, head_dim = shape
    item_bytes, scale_bytes = (2, 0) if dtype == "bfloat16" else (1, 4)
    return 2 * layers * heads * math.ceil(BLOCK * (head_dim * item_bytes + scale_bytes) / 64) * 64 / BLOCK


def bytes_of_shapes() -> tuple[bool, list[str]]:
    """The table; the unit tests compare more shapes, every dtype, and maps."""
    rows = []
    for name, shape in SHAPES.items():
        layers, queries, heads, head_dim = shape
        found = {
            dtype: page_layout.PageLayout(page_layout.KVShape(layers, heads, head_dim), BLOCK, dtype).token_bytes
            for dtype in ("bfloat16", "int8", "fp8_e4m3")
        }
        cells = (
            f"{layers}",
            f"{heads} of {queries}",
            f"{head_dim}",
            *(f"{found[dtype]:,.0f}" for dtype in ("bfloat16", "int8")),
            f"{found['int8'] / found['bfloat16']:.1%}",
        )
        same = all(found[dtype] == expected(shape, dtype) for dtype in found)
        rows.append(Row(name, cells, [Check("as the formula", same)]))
    head = ("layers", "KV heads", "head size", "bfloat16", "int8 and fp8", "of bfloat16")
    table = Table(f"Bytes a token in pages of {BLOCK} tokens, scales and alignment included", head, rows)
    words = (
        "2 (K and V) × layers × KV heads × (head size × bytes an element + 4 for the scale of a token and head); a "
        "segment of a page takes whole lines of 64 bytes. `tests/unit/planning/test_kv_bytes.py` has every dtype, odd "
        "block sizes and precision maps."
    )
    return table.met, [words, "", *table.lines()]
