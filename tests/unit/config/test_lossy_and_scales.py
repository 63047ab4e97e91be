"""KV memory that loses facts must be accepted by name; scales need something that is quantized."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_runtime import config, config_parsing, errors


def refused(**kv_cache: Any) -> str:
    with pytest.raises(errors.ConfigError) as caught:
        config_parsing.parse({"kvCache": kv_cache})
    return str(caught.value)


@pytest.mark.parametrize(
    ("kv_cache", "key"),
    [
        ({"dtype": "int4"}, "kvCache.dtype"),
        ({"dtype": "int4", "allowLossy": False}, "kvCache.dtype"),
        (
            {"precision": [{"layers": "1"}, {"layers": "0", "dtype": "int4"}], "dtype": "int8"},
            "kvCache.precision[1].dtype",
        ),
    ],
)
def test_int4_is_refused_with_our_figures_and_how_to_have_ones_own(kv_cache: dict[str, Any], key: str) -> None:
    message = refused(**kv_cache)
    assert f"{key}: got 'int4', expected int4 only together with kvCache.allowLossy: true" in message
    assert config.LOSSY_COST in message
    assert "tidemark eval MODEL --kv-cache-dtype int4" in message
    assert "--allow-lossy true" in message
    accepted = config_parsing.parse({"kvCache": {**kv_cache, "allowLossy": True}})
    assert accepted.kv_cache.allow_lossy


def test_our_figures_say_of_what_they_are() -> None:
    for words in ("SmolLM2-135M", "nats", "perplexity", "greedy", "facts"):
        assert words in config.LOSSY_COST


@pytest.mark.parametrize("dtype", ["auto", "float32", "float16", "bfloat16"])
def test_scales_with_nothing_quantized_are_refused(dtype: str) -> None:
    message = refused(dtype=dtype, scalesFile="scales.yaml")
    assert (
        f"kvCache.scalesFile: got 'scales.yaml', expected none with kvCache.dtype {dtype}. Nothing is quantized"
        in message
    )


@pytest.mark.parametrize(
    "kv_cache",
    [
        {"dtype": "int8"},
        {"dtype": "fp8_e5m2"},
        {"precision": [{"layers": "0", "dtype": "int8"}]},
        {"precisionFile": "map.yaml"},
    ],
)
def test_scales_for_what_is_or_may_be_quantized(kv_cache: dict[str, Any]) -> None:
    parsed = config_parsing.parse({"kvCache": {**kv_cache, "scalesFile": "scales.yaml"}})
    assert parsed.kv_cache.scales_file == "scales.yaml"
