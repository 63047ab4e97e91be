"""Headers of checkpoints, read for their sizes: against the engine's own reading, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_models
import numpy as np
import pytest

from tidemark_runtime import errors
from tidemark_runtime.model import checkpoint, device_linear, linear, loading, sources
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.planning import model_files, weight_bytes


def gguf(path: Path, kind: str) -> Path:
    """A made model whose matrices are of one kind, with as many rows as fill panels of 16 and of 32."""
    rng = np.random.default_rng(3)
    width = 256 if kind.endswith("_K") else 32
    fields = {**made_models.LLAMA_FIELDS, "embedding_length": width, "feed_forward_length": 2 * width}
    wide = {**made_models.LLAMA_CONFIG, "hidden_size": width, "intermediate_size": 2 * width, "vocab_size": 64}
    tensors: dict[str, Any] = {}
    for name, tensor in made_models.llama_weights(wide).items():
        blocks = (kind, made_models.random_blocks(rng, kind, *tensor.shape)) if tensor.dim() == 2 else tensor.numpy()
        tensors[made_models.gguf_name(name)] = blocks
    return made_models.write_gguf(path / "made.gguf", made_models.GGUFContent("llama", fields, tensors))


@pytest.mark.parametrize("kind", model_files.GGUF_GROUPS)
def test_a_gguf_is_held_in_as_many_bytes_as_planned(tmp_path: Path, kind: str) -> None:
    path = gguf(tmp_path, kind)
    found = model_files.read(path)
    source = sources.ModelSource("gguf", path, "made")
    own = checkpoint.open_checkpoint(source)
    groups = linear.FormsByRows.always(linear.Form.GROUPED)
    import torch

    forms = dict.fromkeys((linear.Storage.GROUPED4, linear.Storage.GROUPED8), groups)
    factory = linear.LinearFactory(linear.LinearPolicy(torch.float32, forms))
    loading.load(own, factory, lambda name, share: None)
    held = model_files.held(found, dtype="float32", quantization="auto")
    assert held.num_bytes == factory.num_bytes
    assert held.format == f"{kind} as stored"
    assert found.matrices.num_heads == own.spec.num_heads
    assert found.max_context_tokens == own.spec.max_context_tokens


def test_a_folder_says_the_same_as_the_engine_reads(tmp_path: Path) -> None:
    made_models.write_folder(tmp_path, made_models.LLAMA_CONFIG, made_models.llama_weights())
    found, own = model_files.read(tmp_path), model_spec.from_hf(made_models.LLAMA_CONFIG)
    matrices = found.matrices
    assert (matrices.num_layers, matrices.hidden_size, matrices.head_dim) == (1, own.hidden_size, own.head_dim)
    assert (matrices.vocab_size, matrices.tie_embeddings) == (own.vocab_size, own.tie_embeddings)
    assert model_files.read(tmp_path / "config.json") == found
    assert model_files.held(found, dtype="bfloat16", quantization="auto") == model_files.Held(
        "bfloat16", weight_bytes.weights_bytes(matrices, "bfloat16")
    )
    assert model_files.held(found, dtype="float32", quantization="int8").format == "int8"


def test_the_architectures_are_the_engines() -> None:
    assert model_files.ARCHITECTURES == model_spec.ARCHITECTURES


def config(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**made_models.LLAMA_CONFIG, **changes}))
    return path


def test_a_packed_checkpoint_says_how(tmp_path: Path) -> None:
    section = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}
    found = model_files.read(config(tmp_path, quantization_config=section))
    held = model_files.held(found, dtype="float32", quantization="auto")
    assert held.format == "gptq 4-bit, groups of 32, act-order"
    dense = model_files.held(found, dtype="float32", quantization="none")
    assert dense.format == "float32"
    assert held.num_bytes < dense.num_bytes
    with pytest.raises(errors.ConfigError, match=r"quantization: got 'awq', expected auto: .* is not packed so"):
        model_files.held(found, dtype="float32", quantization="awq")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt_neox"}, "model_type is 'gpt_neox', expected one of llama"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, expected a whole number of at least 1"),
        ({"vocab_size": "48"}, "vocab_size is '48'"),
        ({"torch_dtype": "int3"}, "dtype is 'int3'"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quant_method is 'bitsandbytes', expected awq or"),
        ({"quantization_config": {"quant_method": "awq", "bits": 3}}, "3 bits in groups of 128"),
    ],
)
def test_a_config_that_is_wrong_is_refused_with_its_path(tmp_path: Path, changes: Any, words: str) -> None:
    path = config(tmp_path, **changes)
    with pytest.raises(errors.ConfigError) as caught:
        model_files.read(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGML")
    (tmp_path / "list.json").write_text("[1]")
    for name, words in (("x.gguf", "not a GGUF file"), ("list.json", "expected a JSON object"), ("gone", "no ")):
        with pytest.raises(errors.ConfigError, match=words):
            model_files.read(tmp_path / name)


def test_a_folder_whose_weights_are_cut_off_is_refused_with_both_numbers(tmp_path: Path) -> None:
    made_models.write_folder(tmp_path, made_models.LLAMA_CONFIG, made_models.llama_weights())
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    words = (
        rf"model.safetensors: the file has {len(whole) - 1000} bytes, but by its header {len(whole)}, where the tensor"
    )
    with pytest.raises(errors.ConfigError, match=words):
        model_files.read(tmp_path)
    path.write_bytes(whole[:20])
    with pytest.raises(errors.ConfigError, match=r"the file has 20 bytes, but its header ends at \d+: cut off"):
        model_files.read(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(errors.ConfigError, match="the file is empty"):
        model_files.read(tmp_path)
    path.write_bytes(whole)
    assert model_files.read(tmp_path).matrices == model_files.read(tmp_path / "config.json").matrices


def test_each_file_that_an_index_names_is_looked_at(tmp_path: Path) -> None:
    made_models.write_folder(tmp_path, made_models.LLAMA_CONFIG, made_models.llama_weights())
    whole = (tmp_path / "model.safetensors").read_bytes()
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    model_files.read(tmp_path)  # none of them is here: planned by config.json alone
    (tmp_path / "one.safetensors").write_bytes(whole)
    with pytest.raises(errors.ConfigError, match=r"names two\.safetensors, which is missing"):
        model_files.read(tmp_path)
    (tmp_path / "two.safetensors").write_bytes(whole[:-4])
    with pytest.raises(errors.ConfigError, match=r"two.safetensors: the file has \d+ bytes, but by its header"):
        model_files.read(tmp_path)
    (tmp_path / "two.safetensors").write_bytes(whole)
    model_files.read(tmp_path)
    index.write_text('{"weight_map": []}')
    with pytest.raises(errors.ConfigError, match="expected a weight_map of tensor names to file names"):
        model_files.read(tmp_path)


def test_a_gguf_that_is_cut_off_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = gguf(tmp_path, "Q8_0")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    words = rf"the file has {len(whole) - 1000} bytes, but the tensor .* ends at byte \d+: it is cut off"
    with pytest.raises(errors.ConfigError, match=words):
        model_files.read(path)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K"])
@pytest.mark.parametrize("quantization", ["auto", "int8_weight_only"])
def test_without_kernels_all_is_expanded_as_a_device_without_them_expands_it(
    tmp_path: Path, kind: str, quantization: str
) -> None:
    import torch

    path = gguf(tmp_path, kind)
    own = checkpoint.open_checkpoint(sources.ModelSource("gguf", path, "made"))
    policy = device_linear.policy(torch.bfloat16, quantization, has_kernels=False)
    factory = device_linear.DeviceFactory(policy, torch.device("cpu"))
    loading.load(own, factory, lambda name, share: None)
    found = model_files.read(path)
    held = model_files.held(found, dtype="bfloat16", quantization=quantization, has_kernels=False)
    assert held.num_bytes == factory.num_bytes
    assert held.format == "bfloat16"
    assert held.num_bytes > model_files.held(found, dtype="bfloat16", quantization=quantization).num_bytes
