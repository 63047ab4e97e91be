"""AWQ and GPTQ checkpoints: every weight is what the published formula says; what is not read is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import made_models
import packed_checkpoints
import pytest
import safetensors.torch
import torch
from made_models import LLAMA_CONFIG

from tidemark_runtime import errors
from tidemark_runtime.model import checkpoint, linear, loading, sources, tensors
from tidemark_runtime.model.linear_forms import composed

Format = packed_checkpoints.Format
UNSUPPORTED, CORRUPT = errors.UnsupportedModel, errors.CorruptModel
GROUPS = linear.LinearPolicy(
    torch.float32,
    {
        storage: linear.FormsByRows.always(linear.Form.GROUPED)
        for storage in (linear.Storage.GROUPED4, linear.Storage.GROUPED8)
    },
)

CONFIG = {
    **LLAMA_CONFIG,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "torch_dtype": "float16",
}
QWEN_CONFIG = {**CONFIG, "model_type": "qwen2"}
Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.0.mlp.down_proj"

FORMATS = [
    *(Format(method="awq", group_size=size) for size in (32, 64, 128, -1)),
    Format(method="awq", sym=True),
    *(Format(method="gptq", group_size=size, act_order=order) for size in (32, 64, 128, -1) for order in (False, True)),
    *(Format(method="gptq", sym=True, act_order=order) for order in (False, True)),
    Format(method="gptq", stored_format="gptq_v2"),
    Format(method="gptq", bits=8, act_order=True),
    Format(method="gptq", bits=8, sym=True, group_size=32),
]
IDS = [
    f"{one.method}{one.bits}-{one.group_size}-{one.stored_format}{'-sym' * one.sym}{'-order' * one.act_order}"
    for one in FORMATS
]


def made_weights(config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    weights = {name: tensor.half() for name, tensor in made_models.llama_weights(config).items()}
    if config["model_type"] == "qwen2":
        head_dim = config["hidden_size"] // config["num_attention_heads"]
        for part, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads"), ("v", "num_key_value_heads")):
            weights[f"model.layers.0.self_attn.{part}_proj.bias"] = torch.randn(config[heads] * head_dim).half()
    return weights


def write(
    folder: Path,
    how: Format,
    config: Mapping[str, Any] = CONFIG,
    changes: Mapping[str, torch.Tensor | None] | None = None,
    section: Mapping[str, Any] | None = None,
) -> Path:
    """A packed checkpoint; `changes`: tensors set, or left out where None; `section`: of quantization_config."""
    packed, _ = packed_checkpoints.pack(made_weights(config), how)
    packed |= {name: tensor for name, tensor in (changes or {}).items() if tensor is not None}
    kept = {name: tensor for name, tensor in packed.items() if (changes or {}).get(name, tensor) is not None}
    said = {**how.config, **(section or {})}
    return made_models.write_folder(folder, {**config, "quantization_config": said}, kept)


def opened(folder: Path) -> checkpoint.Checkpoint:
    return checkpoint.open_checkpoint(sources.resolve(str(folder), folder))


def by_hand(folder: Path, stem: str, how: Format) -> torch.Tensor:
    """float64 [N, K], number by number from the published formulas; nothing of the reader is used."""
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    words, zeros, scales = (stored[f"{stem}.{part}"].tolist() for part in ("qweight", "qzeros", "scales"))
    a_word, mask = 32 // how.bits, 2**how.bits - 1
    if how.method == "awq":
        num_inputs, num_outputs = len(words), len(words[0]) * a_word
        place = [packed_checkpoints.AWQ_ORDER.index(column) for column in range(8)]
        groups = [k // (how.group_size if how.group_size > 0 else num_inputs) for k in range(num_inputs)]
        offset = 0
    else:
        num_inputs, num_outputs = len(words) * a_word, len(words[0])
        place = list(range(a_word))
        groups = stored[f"{stem}.g_idx"].tolist()
        offset = 1 if how.stored_format == "gptq" else 0
    found = []
    for n in range(num_outputs):
        shift = how.bits * place[n % a_word]
        row = []
        for k in range(num_inputs):
            if how.method == "awq":
                code = words[k][n // a_word] >> shift & mask
            else:
                code = words[k // a_word][n] >> how.bits * (k % a_word) & mask
            zero = (zeros[groups[k]][n // a_word] >> shift & mask) + offset
            row.append((code - zero) * scales[groups[k]][n])
        found.append(row)
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("how", FORMATS, ids=IDS)
def test_every_weight_is_what_the_published_formula_says(tmp_path: Path, how: Format) -> None:
    folder = write(tmp_path / "m", how)
    found = opened(folder)
    assert found.names() == frozenset(made_weights(CONFIG))
    for stem in (Q, "model.layers.0.self_attn.k_proj"):
        weight = found.tensor(f"{stem}.weight")
        assert isinstance(weight, tensors.Grouped)
        assert torch.equal(weight.dequantize().double(), by_hand(folder, stem, how))
        found.release(f"{stem}.weight")
    weight = found.tensor(f"{DOWN}.weight")
    assert isinstance(weight, tensors.Grouped)
    assert (weight.shape, weight.bits) == ((256, 512), how.bits)
    assert weight.group_size == (512 if how.group_size == -1 else how.group_size)
    assert (weight.order is not None) == (how.act_order and how.group_size != -1)
    total = sum(found.tensor_bytes(name) for name in found.names())
    assert total == found.num_bytes


@pytest.mark.parametrize("config", [CONFIG, QWEN_CONFIG], ids=["llama", "qwen2"])
@pytest.mark.parametrize("how", FORMATS, ids=IDS)
def test_the_layers_compute_what_the_dequantized_weights_say(
    tmp_path: Path, how: Format, config: Mapping[str, Any]
) -> None:
    found = opened(write(tmp_path / "m", how, config))
    parts = [found.tensor(f"model.layers.0.self_attn.{part}_proj.weight") for part in "qkv"]
    dense = torch.cat([part.dequantize() for part in parts if isinstance(part, tensors.Grouped)])
    x = torch.randn(5, 256, generator=torch.Generator().manual_seed(1))
    bias = torch.arange(384.0)
    layer = linear.LinearFactory(GROUPS).make("qkv", parts, bias)
    torch.testing.assert_close(layer(x), x @ dense.t() + bias, rtol=1e-4, atol=1e-4)
    reordered = how.act_order and how.group_size != -1
    assert layer.path == f"grouped{how.bits}{'-reordered' * reordered}"  # one matrix: Q, K and V have one order
    factory = linear.LinearFactory(GROUPS)
    loading.load(found, factory, lambda *_: None)
    assert factory.kernel_paths == {"embedding": "float32", "head": "float32", "linear": layer.path}


def test_parts_with_orders_of_their_own_are_kept_apart(tmp_path: Path) -> None:
    how = Format(method="gptq", group_size=32, act_order=True)
    weights = made_weights(CONFIG)
    other = packed_checkpoints.round_to_nearest(weights["model.layers.0.self_attn.v_proj.weight"], how, seed=5)
    changes = packed_checkpoints.packed_tensors("model.layers.0.self_attn.v_proj", other, how)
    found = opened(write(tmp_path / "m", how, changes=changes))
    parts = [found.tensor(f"model.layers.0.self_attn.{part}_proj.weight") for part in "qkv"]
    dense = torch.cat([part.dequantize() for part in parts if isinstance(part, tensors.Grouped)])
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
    for form in (linear.Form.GROUPED, linear.Form.PACKED4, linear.Form.PLAIN):
        forms = {linear.Storage.GROUPED4: linear.FormsByRows.always(form)}
        layer = linear.LinearFactory(linear.LinearPolicy(torch.float32, forms)).make("qkv", parts, None)
        torch.testing.assert_close(layer(x), x @ dense.t(), rtol=1e-4, atol=1e-4)
        assert isinstance(layer, composed.SideBySide) == (form is not linear.Form.PLAIN)


def test_matrices_that_were_not_packed_are_read_as_they_are(tmp_path: Path) -> None:
    how = Format(method="awq")
    dense = made_weights(CONFIG)[f"{DOWN}.weight"]
    changes: dict[str, torch.Tensor | None] = {f"{DOWN}.{part}": None for part in ("qweight", "qzeros", "scales")}
    section = {"modules_to_not_convert": ["down_proj"]}
    found = opened(write(tmp_path / "m", how, changes={**changes, f"{DOWN}.weight": dense}, section=section))
    read = found.tensor(f"{DOWN}.weight")
    assert isinstance(read, torch.Tensor)
    assert torch.equal(read, dense)


def test_a_packed_head_is_read(tmp_path: Path) -> None:
    how = Format(method="gptq", group_size=64)
    head = packed_checkpoints.round_to_nearest(made_weights(CONFIG)["lm_head.weight"], how)
    packed = packed_checkpoints.packed_tensors("lm_head", head, how)
    found = opened(write(tmp_path / "m", how, changes={**packed, "lm_head.weight": None}, section={"lm_head": True}))
    factory = linear.LinearFactory(GROUPS)
    loading.load(found, factory, lambda *_: None)
    assert factory.kernel_paths["head"] == "grouped4"


def test_a_bias_of_zeros_is_no_leftover_and_another_one_is(tmp_path: Path) -> None:
    how = Format(method="gptq")
    factory = linear.LinearFactory(linear.LinearPolicy(torch.float32))
    zeros = {f"{DOWN}.bias": torch.zeros(256).half()}
    loading.load(opened(write(tmp_path / "zeros", how, changes=zeros)), factory, lambda *_: None)
    ones = {f"{DOWN}.bias": torch.ones(256).half()}
    with pytest.raises(errors.UnsupportedModel, match=r"no place for: model.layers.0.mlp.down_proj.bias"):
        loading.load(opened(write(tmp_path / "ones", how, changes=ones)), factory, lambda *_: None)


def test_the_file_that_autogptq_wrote_before_is_read(tmp_path: Path) -> None:
    how = Format(method="gptq", group_size=64)
    folder = write(tmp_path / "m", how)
    (folder / "config.json").write_text(json.dumps(dict(CONFIG)))
    (folder / "quantize_config.json").write_text(json.dumps({"bits": 4, "group_size": 64, "desc_act": False}))
    assert opened(folder).packed == opened(write(tmp_path / "n", how)).packed


@pytest.mark.parametrize(
    ("how", "section", "error", "message"),
    [
        ("gptq", {"quant_method": "bitsandbytes"}, UNSUPPORTED, "quant_method: got 'bitsandbytes', expected awq"),
        ("gptq", {"bits": 3}, UNSUPPORTED, "bits: got 3, expected 4 or 8. Take"),
        ("awq", {"bits": 8}, UNSUPPORTED, "bits: got 8, expected 4. Take"),
        ("gptq", {"bits": None}, UNSUPPORTED, "bits: got None"),
        ("gptq", {"group_size": 0}, UNSUPPORTED, "group_size: got 0, expected -1 or a multiple of 16"),
        ("gptq", {"group_size": 24}, UNSUPPORTED, "group_size: got 24"),
        ("gptq", {"group_size": None}, UNSUPPORTED, "group_size: got None"),
        ("awq", {"version": "gemv"}, UNSUPPORTED, "version: got 'gemv', expected gemm. Pack it"),
        ("awq", {"version": "marlin"}, UNSUPPORTED, "version: got 'marlin'"),
        ("awq", {"backend": "llm-awq"}, UNSUPPORTED, "backend: got 'llm-awq'"),
        ("gptq", {"checkpoint_format": "marlin"}, UNSUPPORTED, "checkpoint_format: got .marlin., expected gptq"),
        ("gptq", {"is_marlin_format": True}, UNSUPPORTED, "is_marlin_format: got True"),
        ("gptq", {"pack_dtype": "int16"}, UNSUPPORTED, "pack_dtype: got 'int16', expected int32"),
        ("gptq", {"dynamic": {"x": {"bits": 8}}}, UNSUPPORTED, "dynamic: got"),
        ("gptq", {"desc_act": "yes"}, CORRUPT, "desc_act: got 'yes', expected true or false"),
    ],
)  # fmt: skip
def test_a_variant_that_is_not_read_is_refused_by_name(
    tmp_path: Path, how: str, section: dict[str, Any], error: type[errors.ModelError], message: str
) -> None:
    folder = write(tmp_path / "m", Format(method=how), section=section)
    with pytest.raises(error, match=rf"m/config.json quantization_config.{message}"):
        opened(folder)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({f"{Q}.scales": None}, CORRUPT, rf"the tensor {Q}.scales is missing beside .qweight"),
        ({f"{Q}.qzeros": None}, CORRUPT, rf"the tensor {Q}.qzeros is missing"),
        ({f"{Q}.g_idx": None}, CORRUPT, rf"the tensor {Q}.g_idx is missing, but .* desc_act"),
        ({f"{Q}.qweight": None}, CORRUPT, rf"the tensor {Q}.weight is missing"),
        ({f"{Q}.scales": torch.ones(3, 256).half()}, CORRUPT, rf"{Q}.scales: got .* \[3, 256\], expected \[2, 256\]"),
        ({f"{Q}.scales": torch.ones(2, 256).int()}, UNSUPPORTED, rf"{Q}.scales: got int32, expected float16"),
        ({f"{Q}.scales": torch.full((2, 256), torch.nan).half()}, CORRUPT, rf"{Q}.scales: got an infinity or a NaN"),
        ({f"{Q}.qzeros": torch.ones(2, 16).int()}, CORRUPT, rf"{Q}.qzeros: got .* \[2, 16\], expected \[2, 32\]"),
        ({f"{Q}.qweight": torch.ones(32, 256).half()}, UNSUPPORTED, rf"{Q}.qweight: got float16, expected int32"),
        ({f"{Q}.qweight": torch.ones(32, 128).int()}, CORRUPT, rf"{Q}.scales: got the shape"),
        ({f"{Q}.qweight": torch.ones(33, 256).int()}, UNSUPPORTED, rf"{Q}: 264 inputs cannot be cut"),
        ({f"{Q}.g_idx": torch.zeros(256).int()}, CORRUPT, rf"{Q}.g_idx: got groups of unequal size"),
        ({f"{Q}.g_idx": torch.zeros(12).int()}, CORRUPT, rf"{Q}.g_idx: got the shape"),
        ({f"{Q}.weight": torch.ones(256, 256).half()}, CORRUPT, rf"{Q} has both .weight and .qweight"),
        ({"model.norm.weight": torch.ones(256).int()}, UNSUPPORTED, "model.norm.weight has the type int32"),
    ],
)  # fmt: skip
def test_a_broken_tensor_is_named(
    tmp_path: Path, changes: dict[str, torch.Tensor | None], error: type[errors.ModelError], message: str
) -> None:
    folder = write(tmp_path / "m", Format(method="gptq", act_order=True), changes=changes)
    with pytest.raises(error, match=rf"m: .*{message}|m: {message}"):
        loading.load(opened(folder), linear.LinearFactory(linear.LinearPolicy(torch.float32)), lambda *_: None)


def test_config_and_tensors_that_contradict_each_other(tmp_path: Path) -> None:
    how = Format(method="awq")
    folder = write(tmp_path / "m", how)
    (folder / "config.json").write_text(json.dumps(dict(CONFIG)))
    with pytest.raises(CORRUPT, match=r"7 tensors of packed weights, such as .*, but config.json has no quant"):
        opened(folder)
    plain = made_models.write_folder(
        tmp_path / "n", {**CONFIG, "quantization_config": how.config}, made_weights(CONFIG)
    )
    with pytest.raises(CORRUPT, match=r"0 tensors of packed weights, but config.json has quantization_config awq"):
        opened(plain)
