from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from made_models import LLAMA_CONFIG, LLAMA_FIELDS

from tidemark_runtime import errors
from tidemark_runtime.model import gguf_file, spec
from tidemark_runtime.planning import page_layout


def hf(**changes: Any) -> spec.ModelSpec:
    return spec.from_hf(json.loads(json.dumps({**LLAMA_CONFIG, **changes})))


def tensor(name: str, *shape: int, type_name: str = "F32") -> gguf_file.TensorInfo:
    data = np.ones(int(np.prod(shape)), dtype=np.float32).view(np.uint8)
    return gguf_file.TensorInfo(name, type_name, shape, 0, data.nbytes, data)


def from_gguf(architecture: str = "llama", *extra: gguf_file.TensorInfo, **changes: Any) -> spec.ModelSpec:
    """Keyword a__b is the field a.b; None removes it."""
    fields = {**LLAMA_FIELDS, **{key.replace("__", "."): value for key, value in changes.items()}}
    metadata: Mapping[str, Any] = {
        "general.architecture": architecture,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"{architecture}.{key}": value for key, value in fields.items() if value is not None},
    }
    infos = (tensor("token_embd.weight", 48, 32), *extra)
    return spec.from_gguf(metadata, {info.name: info for info in infos})


def test_a_hugging_face_config() -> None:
    assert hf(eos_token_id=[2, 3], bos_token_id=1, torch_dtype="bfloat16") == spec.ModelSpec(
        architecture="llama",
        num_layers=1,
        hidden_size=32,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        intermediate_size=64,
        vocab_size=48,
        max_context_tokens=64,
        rms_eps=1e-5,
        rope_theta=10_000.0,
        rope_dim=16,
        dtype="bfloat16",
        bos_id=1,
        eos_ids=(2, 3),
    )
    assert hf().kv_shape == page_layout.KVShape(num_layers=1, num_kv_heads=1, head_dim=16)


def test_a_gguf_says_the_same_as_the_config_it_was_made_from() -> None:
    assert from_gguf("llama", tensor("output.weight", 48, 32)) == hf(eos_token_id=2)


@pytest.mark.parametrize(
    ("changes", "theta", "scaling"),
    [
        ({}, 10_000.0, None),
        ({"rope_theta": 5e5}, 5e5, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 5e5, None),
        ({"rope_theta": 7.0, "rope_scaling": {"type": "linear", "factor": 2.0}}, 7.0, spec.LinearScaling(2.0)),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 7.0, "factor": 2}}, 7.0, spec.LinearScaling(2.0)),
        (
            {
                "rope_theta": 5e5,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 32,
                },
            },
            5e5,
            spec.Llama3Scaling(8.0, 1.0, 4.0, 32),
        ),
    ],
)
def test_rope_in_old_and_new_keys(changes: dict[str, Any], theta: float, scaling: spec.RopeScaling | None) -> None:
    found = hf(**changes)
    assert (found.rope_theta, found.rope_scaling) == (theta, scaling)


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({"model_type": "mistral", "sliding_window": 8}, (0, 1, 2)),
        ({"model_type": "mistral", "sliding_window": None}, ()),
        ({"model_type": "qwen2", "sliding_window": 8}, ()),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": False}, ()),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}, (2,)),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, ()),
        (
            {
                "model_type": "qwen3",
                "sliding_window": 8,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            (0, 2),
        ),
    ],
)
def test_which_layers_have_a_window(changes: dict[str, Any], layers: tuple[int, ...]) -> None:
    found = hf(num_hidden_layers=3, **changes)
    assert tuple(layer for layer in range(3) if found.window(layer) == 8) == layers
    assert all(found.window(layer) is None for layer in range(3) if layer not in layers)


def test_what_the_families_have_of_their_own() -> None:
    assert hf(model_type="qwen2").qkv_bias
    assert hf(model_type="qwen3").qk_norm
    assert hf(model_type="qwen3").head_dim == 128
    assert hf(model_type="qwen3", head_dim=64).head_dim == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, r"model_type: got 'mamba', expected one of llama, mistral, qwen2, qwen3"),
        ({"model_type": "mixtral"}, "mixtral"),
        ({"model_type": None, "architectures": ["BertModel"]}, "BertModel"),
        ({"hidden_act": "gelu"}, "hidden_act: got 'gelu', expected silu"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type: got 'yarn', expected default, linear or"),
        ({"rope_scaling": {"type": "longrope"}}, "longrope"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
        ({"head_dim": 20}, "head dimension: got 20, expected a multiple of 8"),
        ({"head_dim": 512}, "head dimension: got 512"),
        ({"sliding_window": 8}, "sliding_window"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "layer_types": ["chunked"]},
            "layer_types",
        ),
    ],
)
def test_what_a_config_asks_for_and_we_do_not_have_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.UnsupportedModel, match=message):
        hf(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size: got None, expected a whole number of at least 1"),
        ({"num_attention_heads": 0}, "num_attention_heads: got 0"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers: got 'many'"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: got -1, expected a number above 0"),
        ({"num_key_value_heads": 3, "num_attention_heads": 4}, "4 query heads are not a multiple of 3 KV heads"),
        ({"rope_scaling": "linear"}, "rope_scaling: got 'linear', expected an object"),
        ({"rope_scaling": {"type": "linear"}}, r"rope_scaling\.factor: got None"),
        ({"num_hidden_layers": 2**70}, "num_hidden_layers: got .*, expected at most"),
        ({"eos_token_id": "2"}, "eos_token_id: got '2', expected a token id"),
        ({"eos_token_id": [1, "a"]}, "eos_token_id"),
        ({"eos_token_id": float("nan")}, "eos_token_id: got nan"),
        ({"eos_token_id": {}}, "eos_token_id: got {}"),
        ({"eos_token_id": -1}, "eos_token_id: got -1"),
        ({"bos_token_id": True}, "bos_token_id: got True"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings: got 'false', expected true or false"),
        (
            {"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True, "max_window_layers": "all"},
            "max_window_layers: got 'all'",
        ),
    ],
)
def test_a_config_that_makes_no_sense_is_corrupt(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.CorruptModel, match=message):
        hf(**changes)


def test_variants_of_a_gguf() -> None:
    assert from_gguf().tie_embeddings
    assert not from_gguf("llama", tensor("output.weight", 48, 32)).tie_embeddings
    assert from_gguf("qwen2", tensor("blk.0.attn_q.bias", 32)).qkv_bias
    assert from_gguf("qwen3", attention__key_length=64, attention__value_length=64).head_dim == 64
    assert from_gguf(attention__head_count_kv=None).num_kv_heads == 2
    assert from_gguf(attention__head_count_kv=[1, 1]).num_kv_heads == 1
    assert from_gguf(attention__sliding_window=8).window(0) == 8
    assert from_gguf(rope__scaling__type="linear", rope__scaling__factor=4.0).rope_scaling == spec.LinearScaling(4.0)
    assert from_gguf(rope__scale_linear=2.0).rope_scaling == spec.LinearScaling(2.0)
    assert from_gguf(rope__scaling__type="none", rope__scaling__factor=4.0).rope_scaling is None
    assert from_gguf("llama", tensor("rope_freqs.weight", 8)).rope_scaling == spec.FactorScaling((1.0,) * 8)


def test_the_dtype_of_a_gguf_is_that_of_most_of_its_bytes() -> None:
    assert from_gguf().dtype == "float32"
    half = tensor("blk.0.ffn_up.weight", 640, 32, type_name="F16")
    assert from_gguf("llama", half).dtype == "float16"
    assert from_gguf("llama", tensor("blk.0.ffn_up.weight", 640, 32, type_name="Q4_K")).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("gemma2", {}, "general.architecture: got 'gemma2', expected one of llama, mistral, qwen2, qwen3"),
        ("llama", {"expert_count": 8}, r"llama\.expert_count: got 8, expected no mixture of experts"),
        ("llama", {"rope__scaling__type": "yarn"}, r"llama\.rope\.scaling\.type: got 'yarn'"),
        ("llama", {"attention__value_length": 8}, "value_length"),
        ("llama", {"rope__dimension_count": 8}, r"rope\.dimension_count: got 8, expected the whole head, 16"),
        ("qwen2", {"feed_forward_length": [64, 32]}, "feed_forward_length.*the same value in every layer"),
        ("qwen3", {"attention__sliding_window_pattern": 4}, "sliding_window_pattern"),
    ],
)
def test_what_a_gguf_asks_for_and_we_do_not_have_is_refused_by_name(
    architecture: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.UnsupportedModel, match=message):
        from_gguf(architecture, **changes)


def test_longrope_factors_and_rope_factors_of_a_wrong_length_are_refused() -> None:
    with pytest.raises(errors.UnsupportedModel, match="rope_factors_long"):
        from_gguf("llama", tensor("rope_factors_long.weight", 8))
    with pytest.raises(errors.CorruptModel, match=r"rope_freqs\.weight: got 5 factors, expected 8"):
        from_gguf("llama", tensor("rope_freqs.weight", 5))


def test_a_gguf_without_a_field_names_it() -> None:
    with pytest.raises(errors.CorruptModel, match=r"llama\.block_count: got None"):
        from_gguf(block_count=None)
