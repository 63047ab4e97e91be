"""The table of known models, against published numbers of parameters (the hubs' safetensors metadata)."""

from __future__ import annotations

import pytest

from tidemark_runtime.planning import known_models, weight_bytes

PUBLISHED = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "smollm2-135m": 134_515_008,
    "mistral-7b-v0.3": 7_248_023_552,
}


@pytest.mark.parametrize("name", known_models.MODELS)
def test_a_shape_has_as_many_parameters_as_is_published(name: str) -> None:
    assert known_models.MODELS[name].num_params == PUBLISHED[name]


@pytest.mark.parametrize("name", known_models.MODELS)
def test_weights_at_16_bits_are_two_bytes_a_parameter(name: str) -> None:
    model = known_models.MODELS[name]
    held = weight_bytes.weights_bytes(model.matrices, "bfloat16")
    assert held == pytest.approx(2 * model.num_params, rel=0.001)  # norms are left out
    assert model.shape(held).num_kv_heads == model.matrices.num_kv_heads
