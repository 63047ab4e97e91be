"""The plan's bytes of weights are those that a loaded model holds, to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import made_models
import packed_checkpoints
import pytest
import torch
from made_models import LLAMA_CONFIG

from tidemark_kernels import dispatch
from tidemark_runtime.model import checkpoint, linear, linear_choice, loading, sources
from tidemark_runtime.planning import weight_bytes

Format = packed_checkpoints.Format

CONFIG = {
    **LLAMA_CONFIG,
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 50,
}
SHAPE = weight_bytes.MatrixShape(
    num_layers=2, hidden_size=256, intermediate_size=384, num_heads=4, num_kv_heads=1, head_dim=64, vocab_size=50
)
DENSE = {"float32": linear.Form.PANELS, "bfloat16": linear.Form.HALF, "float16": linear.Form.HALF}


def loaded_bytes(folder: Path, policy: linear.LinearPolicy | None, quantization: str = "auto") -> int:
    opened = checkpoint.open_checkpoint(sources.resolve(str(folder), folder))
    if policy is None:
        rules = linear_choice.Rules(
            dtype=torch.float32,
            quantization=quantization,
            num_elements=10**9,
            memory_limit_bytes=1 << 20,
            has_kernels=True,
        )
        sample = [[opened.tensor("model.layers.0.mlp.down_proj.weight")]]
        # A tie of all forms: the first candidate, which is held alone.
        policy = linear_choice.choose(sample, rules, lambda _form, _matrix, _rows: 1.0)
    factory = linear.LinearFactory(policy)
    loading.load(opened, factory, lambda *_: None)
    return factory.num_bytes


def weights(config: Mapping[str, Any], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: tensor.to(dtype) for name, tensor in made_models.llama_weights(config).items()}


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int8", "int8_weight_only", "fp8_weight_only"])
def test_dense_and_rounded_formats(tmp_path: Path, name: str, tie: bool) -> None:
    config = {**CONFIG, "tie_word_embeddings": tie}
    dtype = getattr(torch, name) if name in DENSE else torch.bfloat16
    folder = made_models.write_folder(tmp_path / "m", config, weights(config, dtype))
    policy = None
    if name in DENSE:
        forms = {linear.Storage.DENSE: linear.FormsByRows.always(DENSE[name])}
        policy = linear.LinearPolicy(torch.float32, forms, half_tables=True, is_exact=True)
    shape = weight_bytes.MatrixShape(**{**shape_fields(SHAPE), "tie_embeddings": tie})
    width = dispatch.current().panel_width
    expected = weight_bytes.weights_bytes(shape, name, panel_width=width)
    assert loaded_bytes(folder, policy, name) == expected


@pytest.mark.parametrize(
    "how",
    [
        *(Format(method="awq", group_size=size) for size in (32, 64, 128, -1)),
        *(Format(method="gptq", group_size=size, act_order=True) for size in (32, 64, 128)),
        Format(method="gptq", bits=8, group_size=64),
    ],
    ids=lambda how: f"{how.method}{how.bits}-{how.group_size}",
)
def test_packed_formats(tmp_path: Path, how: packed_checkpoints.Format) -> None:
    packed, _ = packed_checkpoints.pack(weights(CONFIG, torch.float16), how)
    folder = made_models.write_folder(tmp_path / "m", {**CONFIG, "quantization_config": how.config}, packed)
    expected = weight_bytes.weights_bytes(
        SHAPE,
        how.method,
        group_size=how.group_size,
        bits=how.bits,
        act_order=how.act_order,
        tables="float16",
        panel_width=dispatch.current().panel_width,
    )
    assert loaded_bytes(folder, None) == expected


def test_biases_count(tmp_path: Path) -> None:
    config = {**CONFIG, "model_type": "qwen2"}
    made = weights(config, torch.bfloat16)
    for layer in range(2):
        for part, rows in (("q", 256), ("k", 64), ("v", 64)):
            made[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = torch.ones(rows).bfloat16()
    folder = made_models.write_folder(tmp_path / "m", config, made)
    shape = weight_bytes.MatrixShape(**{**shape_fields(SHAPE), "qkv_bias": True})
    width = dispatch.current().panel_width
    expected = weight_bytes.weights_bytes(shape, "fp8_weight_only", panel_width=width)
    assert loaded_bytes(folder, None, "fp8_weight_only") == expected
    assert expected - weight_bytes.weights_bytes(SHAPE, "fp8_weight_only", panel_width=width) == 2 * 384 * 4


def test_the_halves_and_quarters_that_people_expect() -> None:
    """Llama 3.1 8B: 16.06 GB at 16 bits; its matrices of layers are 6.98 billion weights, its tables 1.05 billion."""
    shape = weight_bytes.MatrixShape(
        num_layers=32,
        hidden_size=4096,
        intermediate_size=14336,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=128_256,
    )
    tables = 2 * 128_256 * 4096 * 2
    sixteen = weight_bytes.weights_bytes(shape, "bfloat16")
    assert sixteen == 2 * 6_979_321_856 + tables
    assert weight_bytes.weights_bytes(shape, "fp8_weight_only") == pytest.approx(
        (sixteen - tables) / 2 + tables, rel=1e-3
    )
    awq = weight_bytes.weights_bytes(shape, "awq", group_size=128)
    assert awq == (sixteen - tables) / 4 * (1 + 4 / 64) + tables
    assert weight_bytes.weights_bytes(shape, "gptq", group_size=32, act_order=True) > awq


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="format is 'int3', expected one of float32"):
        weight_bytes.weights_bytes(SHAPE, "int3")
    with pytest.raises(ValueError, match="group_size is 96, expected -1 or a divisor of 256"):
        weight_bytes.weights_bytes(SHAPE, "awq", group_size=96)


def shape_fields(shape: weight_bytes.MatrixShape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in weight_bytes.MatrixShape.__dataclass_fields__}


@pytest.mark.parametrize(
    ("file_dtype", "dtype", "quantization", "expected"),
    [
        ("float16", "float32", "auto", "float16"),
        ("bfloat16", "float32", "int8_weight_only", "bfloat16"),
        ("bfloat16", "float32", "none", "float32"),
        ("float32", "float32", "auto", "float32"),
        ("float16", "bfloat16", "auto", "bfloat16"),
        ("float32", "bfloat16", "awq", "bfloat16"),
    ],
)
def test_what_a_file_has_in_16_bits_stays_so(file_dtype: str, dtype: str, quantization: str, expected: str) -> None:
    assert weight_bytes.held_dtype(file_dtype, dtype, quantization) == expected
