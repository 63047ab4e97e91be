"""Scales that hold for all tokens of a head: what a file may say, and for which model it is."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.planning import fixed_scales, page_layout

SHAPE = page_layout.KVShape(2, 2, 64)
WEIGHTS = "0123456789abcdef"


def document(**changes: Any) -> dict[str, Any]:
    return {
        "model": "made",
        "weights": WEIGHTS,
        "kvDtype": "int8",
        "shape": {"layers": 2, "kvHeads": 2, "headDim": 64},
        "tokens": 3000,
        "scales": {"k": [[0.1, 0.2], [0.3, 0.4]], "v": [[1, 2.5], [3e-3, 4]]},
    } | changes


def layout(
    dtype: str = "int8", precision: dict[tuple[int, int, page_layout.Kind], str] | None = None
) -> page_layout.PageLayout:
    return page_layout.PageLayout(SHAPE, 16, dtype, precision or {}, fixed_scales=True)


def scales(k: list[Any], v: list[Any] | None = None) -> dict[str, Any]:
    return {"k": k, "v": [[1, 1], [1, 1]] if v is None else v}


def test_what_is_written_is_what_is_read() -> None:
    found = fixed_scales.parse(document(), "scales.yaml")
    assert found.scales[1, 0, "k"] == 0.3
    assert found.scales[0, 1, "v"] == 2.5
    assert fixed_scales.parse(fixed_scales.to_mapping(found), "scales.yaml") == found
    assert fixed_scales.of_layout(found, layout(), WEIGHTS) == found.scales


def test_a_head_that_a_map_keeps_needs_no_scale() -> None:
    found = fixed_scales.parse(document(scales=scales([[None, 0.2], [0.3, 0.4]])), "scales.yaml")
    kept = layout(precision={(0, 0, "k"): "bfloat16"})
    assert (0, 0, "k") not in fixed_scales.of_layout(found, kept, WEIGHTS)
    with pytest.raises(
        errors.ConfigError, match=r"scales.yaml.scales.k\[0\]\[0\]: got no scale, expected one for each"
    ):
        fixed_scales.of_layout(found, layout(), WEIGHTS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scales": scales([[0, 0.2], [0.3, 0.4]])}, "scales.k[0][0]: got 0, expected a number above 0"),
        ({"scales": scales([[-0.1, 0.2], [0.3, 0.4]])}, "scales.k[0][0]: got -0.1"),
        ({"scales": scales([[0.1, math.nan], [0.3, 0.4]])}, "scales.k[0][1]: got nan"),
        ({"scales": scales([[0.1, math.inf], [0.3, 0.4]])}, "scales.k[0][1]: got inf"),
        ({"scales": scales([[0.1, True], [0.3, 0.4]])}, "scales.k[0][1]: got True"),
        ({"scales": scales([[0.1, "1"], [0.3, 0.4]])}, "scales.k[0][1]: got '1'"),
        ({"scales": scales([[0.1, 0.2]])}, "scales.k: got 1 entries, expected a list of 2, the layers of shape"),
        ({"scales": scales([[0.1, 0.2], [0.3]])}, "scales.k[1]: got 1 entries, expected a list of 2, the KV heads"),
        ({"scales": scales([[0.1, 1e300], [0.3, 0.4]])}, "scales.k[0][1]: got 1e+300"),
        ({"scales": scales([[0.1, 10**400], [0.3, 0.4]])}, "scales.k[0][1]: got 1000"),
        ({"scales": {"k": [[1, 1], [1, 1]]}}, "scales: got the keys k, expected a mapping of k and v"),
        ({"scales": None}, "a mapping of k and v"),
        ({"kvDtype": "int4"}, "kvDtype: got 'int4', expected one of fp8_e4m3, fp8_e5m2, int8"),
        ({"kvDtype": "bfloat16"}, "kvDtype: got 'bfloat16'"),
        ({"kvDtype": None}, "kvDtype: got None, expected a text"),
        ({"weights": 7}, "weights: got 7, expected a text"),
        ({"shape": {"layers": 2, "kvHeads": 2}}, "a mapping of layers, kvHeads, headDim"),
        ({"shape": {"layers": 0, "kvHeads": 2, "headDim": 64}}, "shape.layers: got 0"),
        ({"tokens": "many"}, "tokens: got 'many'"),
        ({"percentil": 99}, "scales.yaml.percentil: got 'this key'"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_what_to_do(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        fixed_scales.parse(document(**changes), "scales.yaml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("scales.yaml.")


def test_what_is_no_mapping_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match=r"scales.yaml: got \[1\], expected a mapping with scales"):
        fixed_scales.parse([1], "scales.yaml")


@pytest.mark.parametrize(
    ("wanted", "weights", "words"),
    [
        (
            page_layout.PageLayout(page_layout.KVShape(3, 2, 64), 16, "int8", {}, True),
            WEIGHTS,
            "3 layers of 2 KV heads",
        ),
        (page_layout.PageLayout(page_layout.KVShape(2, 2, 32), 16, "int8", {}, True), WEIGHTS, "2 KV heads of 32"),
        (layout(), "f" * 16, f"expected those of the weights that run, {'f' * 16}"),
        (layout("fp8_e4m3"), WEIGHTS, "Calibrate with --kv-cache-dtype fp8_e4m3"),
        (layout("int4"), WEIGHTS, "int4 has several scales a token, always its own"),
        (layout("bfloat16"), WEIGHTS, "got scales, and nothing that is quantized"),
        (layout(precision={(0, 0, "k"): "fp8_e5m2"}), WEIGHTS, "scales for int8, beside heads in fp8_e5m2"),
    ],
)
def test_scales_of_something_else_are_refused(wanted: page_layout.PageLayout, weights: str, words: str) -> None:
    found = fixed_scales.parse(document(), "scales.yaml")
    with pytest.raises(errors.ConfigError) as caught:
        fixed_scales.of_layout(found, wanted, weights)
    assert words in str(caught.value)
