"""Headers of checkpoints, read for their sizes: against the engine's own reading, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_models
import numpy as np
import pytest

from tidemark_runtime import errors
from tidemark_runtime.model import checkpoint, linear, loading, sources
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.planning import model_files, weight_bytes


def gguf(path: Path, kind: str) -> Path:
    """A made model whose matrices are of one kind."""
    rng = np.random.default_rng(3)
    width = 256 if kind.endswith("_K") else 32
    fields = {**made_models.LLAMA_FIELDS, "embedding_length": width, "feed_forward_length": 2 * width}
    wide = {**made_models.LLAMA_CONFIG, "hidden_size": width, "intermediate_size": 2 * width}
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
