"""Small made models: GGUF and safetensors files with random weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch

GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` -> `blk.3.ffn_up.weight`."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        layer, part = stem.removeprefix("model.layers.").split(".", 1)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def permuted(rows: npt.NDArray[Any], num_heads: int) -> npt.NDArray[Any]:
    """What llama.cpp's converter does to Q and K of a llama model."""
    return (
        rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
    )


def random_blocks(rng: np.random.Generator, type_name: str, num_rows: int, width: int) -> npt.NDArray[np.uint8]:
    """Packed rows [num_rows, row_bytes] of a quantized type: every bit random, scales small and finite."""
    kind = gguf.GGMLQuantizationType[type_name]
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (num_rows, width // block_elements, block_bytes), dtype=np.uint8)
    scale_at = {"Q4_0": [0], "Q8_0": [0], "Q4_1": [0, 2], "Q4_K": [0, 2], "Q6_K": [208]}[type_name]
    size = {"Q4_0": 0.02, "Q8_0": 0.002, "Q4_1": 0.02, "Q4_K": 0.0005, "Q6_K": 0.00005}[type_name]
    for at in scale_at:
        scales = (rng.standard_normal(blocks.shape[:2]) * size).astype(np.float16)
        blocks[..., at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(num_rows, -1)


@dataclass(frozen=True)
class GGUFContent:
    """Fields without the architecture's prefix, and tensors: arrays, or (type name, packed rows)."""

    architecture: str
    fields: Mapping[str, Any]
    tensors: Mapping[str, npt.NDArray[Any] | tuple[str, npt.NDArray[np.uint8]]]


def write_gguf(path: Path, content: GGUFContent) -> Path:
    writer = gguf.GGUFWriter(path, content.architecture)
    for key, value in content.fields.items():
        name = f"{content.architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    for name, tensor in content.tensors.items():
        if isinstance(tensor, tuple):
            writer.add_tensor(name, tensor[1], raw_dtype=gguf.GGMLQuantizationType[tensor[0]])
        else:
            writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


LLAMA_FIELDS: Mapping[str, Any] = {
    "block_count": 1,
    "context_length": 64,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
}

LLAMA_CONFIG: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 48,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
}


def llama_weights(config: Mapping[str, Any] = LLAMA_CONFIG, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights of the shapes that `config` asks for, by their Hugging Face names."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    width, kv_width = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}self_attn.q_proj.weight": (width, hidden),
            f"{prefix}self_attn.k_proj.weight": (kv_width, hidden),
            f"{prefix}self_attn.v_proj.weight": (kv_width, hidden),
            f"{prefix}self_attn.o_proj.weight": (hidden, width),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
            f"{prefix}mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}mlp.up_proj.weight": (inner, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, inner),
        }
    return {name: torch.randn(shape, generator=generator) * 0.1 for name, shape in shapes.items()}


def write_folder(folder: Path, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    safetensors.torch.save_file(dict(weights), folder / "model.safetensors")
    return folder
