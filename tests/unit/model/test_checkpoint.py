from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import made_models
import numpy as np
import pytest
import safetensors.torch
import torch
from made_models import LLAMA_CONFIG, LLAMA_FIELDS

from tidemark_runtime import errors
from tidemark_runtime.model import checkpoint, sources, tensors


def opened(path: Path) -> checkpoint.Checkpoint:
    return checkpoint.open_checkpoint(sources.resolve(str(path), path))


def write_shards(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Two shards and their index."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(dict(LLAMA_CONFIG)))
    weight_map = {}
    names = sorted(weights)
    for number, some in enumerate((names[::2], names[1::2]), start=1):
        file_name = f"model-{number:05d}-of-00002.safetensors"
        safetensors.torch.save_file({name: weights[name] for name in some}, folder / file_name)
        weight_map |= dict.fromkeys(some, file_name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_single_file(tmp_path: Path, dtype: torch.dtype) -> None:
    weights = {name: tensor.to(dtype) for name, tensor in made_models.llama_weights().items()}
    found = opened(made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, weights))
    assert found.names() == frozenset(weights)
    assert found.num_bytes == sum(tensor.nbytes for tensor in weights.values())
    for name, tensor in weights.items():
        assert torch.equal(found.tensor(name), tensor)
        found.release(name)
        assert torch.equal(found.tensor(name), tensor)


def test_a_view_stays_valid_after_its_pages_were_given_back(tmp_path: Path) -> None:
    weights = made_models.llama_weights()
    found = opened(made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, weights))
    name = "model.embed_tokens.weight"
    view = found.tensor(name)
    found.release(name)
    del found
    assert torch.equal(view, weights[name])


def test_shards(tmp_path: Path) -> None:
    weights = made_models.llama_weights()
    write_shards(tmp_path / "m", weights)
    found = opened(tmp_path / "m")
    assert found.names() == frozenset(weights)
    for name, tensor in weights.items():
        assert torch.equal(found.tensor(name), tensor)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path / "m", made_models.llama_weights())
    (tmp_path / "m" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(errors.CorruptModel, match=r"missing: model-00002-of-00002\.safetensors"):
        opened(tmp_path / "m")


def test_a_tensor_the_index_promises_and_its_shard_lacks_is_named(tmp_path: Path) -> None:
    weights = made_models.llama_weights()
    write_shards(tmp_path / "m", weights)
    shard = tmp_path / "m" / "model-00001-of-00002.safetensors"
    kept = safetensors.torch.load_file(shard)
    gone = sorted(kept)[0]
    del kept[gone]
    safetensors.torch.save_file(kept, shard)
    with pytest.raises(errors.CorruptModel, match=rf"tensor {gone} is missing in model-00001"):
        opened(tmp_path / "m")


def test_an_index_cannot_point_out_of_its_folder(tmp_path: Path) -> None:
    write_shards(tmp_path / "m", made_models.llama_weights())
    index = tmp_path / "m" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
    with pytest.raises(errors.CorruptModel, match="weight_map"):
        opened(tmp_path / "m")


def test_every_truncation_of_a_safetensors_file_is_corrupt(tmp_path: Path) -> None:
    folder = made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, made_models.llama_weights())
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for length in (*range(20), *range(20, len(whole), 211), len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(errors.CorruptModel, match=r"model\.safetensors"):
            opened(folder)


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        ({"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}, errors.UnsupportedModel, "tensor x.*F8_E4M3"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}, errors.CorruptModel, "cannot lie in 4 bytes"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}, errors.CorruptModel, "cannot lie"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [-8, -4]}, errors.CorruptModel, "cannot lie"),
        ({"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}, errors.CorruptModel, "cut off"),
        ({"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}, errors.CorruptModel, "header of tensor x is wrong"),
        ({"dtype": "F32", "data_offsets": [0, 4]}, errors.CorruptModel, "header of tensor x is wrong"),
        ([], errors.CorruptModel, "header of tensor x is wrong"),
    ],
)
def test_an_absurd_header_of_a_safetensors_file(
    tmp_path: Path, entry: Any, error: type[errors.ModelError], message: str
) -> None:
    folder = made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, {})
    header = json.dumps({"x": entry}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    with pytest.raises(error, match=message):
        opened(folder)


def test_a_tensor_that_does_not_begin_at_a_multiple_of_its_size_is_read_right(tmp_path: Path) -> None:
    folder = made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, {})
    values = torch.arange(5, dtype=torch.float32)
    header = json.dumps({"x": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}).encode()
    header += b" " * (3 - len(header) % 4)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values.numpy().tobytes())
    assert torch.equal(opened(folder).tensor("x"), values)


def test_a_folder_with_other_weights_only_says_what_it_found(tmp_path: Path) -> None:
    folder = made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, {})
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(errors.UnsupportedModel, match=r"found pytorch_model\.bin.*Only safetensors"):
        opened(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", '"llama"'])
def test_a_config_that_is_not_an_object_is_corrupt(tmp_path: Path, content: str) -> None:
    folder = made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, {})
    (folder / "config.json").write_text(content)
    with pytest.raises(errors.CorruptModel, match=r"config\.json"):
        opened(folder)


def gguf_llama(path: Path, **changed: Any) -> Path:
    weights = {made_models.gguf_name(name): t.numpy() for name, t in made_models.llama_weights().items()}
    return made_models.write_gguf(path, made_models.GGUFContent("llama", LLAMA_FIELDS, {**weights, **changed}))


def test_a_gguf_has_hugging_face_names(tmp_path: Path) -> None:
    weights = made_models.llama_weights()
    found = opened(gguf_llama(tmp_path / "m.gguf"))
    assert found.names() == frozenset(weights)
    for name in weights:
        if not name.endswith(("q_proj.weight", "k_proj.weight")):
            assert torch.equal(found.tensor(name), weights[name])


def test_rows_of_q_and_k_are_put_back(tmp_path: Path) -> None:
    """Two heads of 16 rows: stored 0, 8, 1, 9, ... per head."""
    rows = np.arange(32, dtype=np.float32)[:, None].repeat(32, axis=1)
    stored = made_models.permuted(rows, 2)
    assert stored[:4, 0].tolist() == [0, 8, 1, 9]
    found = opened(gguf_llama(tmp_path / "m.gguf", **{"blk.0.attn_q.weight": stored}))
    assert torch.equal(found.tensor("model.layers.0.self_attn.q_proj.weight"), torch.from_numpy(rows))


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_0", "Q4_1"])
def test_rows_of_q_are_put_back_in_groups_too(tmp_path: Path, type_name: str) -> None:
    packed = made_models.random_blocks(np.random.default_rng(0), type_name, 32, 32)
    stored = made_models.permuted(packed, 2)
    as_llama = opened(gguf_llama(tmp_path / "m.gguf", **{"blk.0.attn_q.weight": (type_name, stored)}))
    as_value = opened(gguf_llama(tmp_path / "n.gguf", **{"blk.0.attn_v.weight": (type_name, packed)}))
    found = as_llama.tensor("model.layers.0.self_attn.q_proj.weight")
    wanted = as_value.tensor("model.layers.0.self_attn.v_proj.weight")
    assert isinstance(found, tensors.Grouped)
    assert isinstance(wanted, tensors.Grouped)
    assert torch.equal(found.dequantize(), wanted.dequantize())


def test_a_gguf_tensor_of_no_architecture_is_refused_by_name(tmp_path: Path) -> None:
    path = gguf_llama(tmp_path / "m.gguf", **{"blk.0.ffn_gate_inp.weight": np.zeros((4, 32), dtype=np.float32)})
    with pytest.raises(errors.UnsupportedModel, match=r"blk\.0\.ffn_gate_inp\.weight belongs to no architecture"):
        opened(path)


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    name = "model.layers.7.mlp.up_proj.weight"
    folder = made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, made_models.llama_weights())
    for path in (folder, gguf_llama(tmp_path / "m.gguf")):
        with pytest.raises(errors.CorruptModel, match=rf"{name} is missing"):
            opened(path).tensor(name)
