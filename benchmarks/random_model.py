"""A model of any size with random weights, without writing them: headers on disk, numbers from a pool in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tidemark_runtime.model import checkpoint as checkpoints

LLAMA_8B: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
TINY: Mapping[str, Any] = {
    **LLAMA_8B,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 64,
    "max_position_embeddings": 256,
}
POOL = 2**24
"""Random numbers there are; matrices repeat them."""


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of a Llama with this `config.json`."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    ends: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config["vocab_size"], hidden),
    }
    layers = range(config["num_hidden_layers"])
    return ends | {f"model.layers.{index}.{name}.weight": shape for index in layers for name, shape in layer.items()}


def write_headers(folder: Path, config: Mapping[str, Any]) -> Path:
    """A folder as Hugging Face has it, whose safetensors file has its full size and no data on the disk."""
    header, end = {}, 0
    for name, shape in shapes(config).items():
        size = 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return folder


class Random:
    """A checkpoint whose matrices are random and whose norms are 1."""

    def __init__(self, headers: checkpoints.Checkpoint, config: Mapping[str, Any]) -> None:
        self._headers = headers
        self._shapes = shapes(config)
        numbers = torch.randn(POOL, generator=torch.Generator().manual_seed(1)) * config["hidden_size"] ** -0.5
        largest = max(torch.Size(shape).numel() for shape in self._shapes.values())
        self._pool = numbers.bfloat16().repeat(-(-largest // POOL))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._headers, name)

    def tensor(self, name: str) -> torch.Tensor:
        shape = torch.Size(self._shapes[name])
        return torch.ones(shape, dtype=torch.bfloat16) if len(shape) == 1 else self._pool[: shape.numel()].view(shape)
