"""Writes the unquantized Hugging Face folder that a GGUF could have been made from: its weights in 16 bits."""

from __future__ import annotations

import json
from pathlib import Path

import safetensors.torch
import torch

from tidemark_runtime.model import checkpoint, gguf_file, sources, tensors
from tidemark_runtime.text import gguf_tokenizer


def convert(source: Path, folder: Path, dtype: torch.dtype = torch.float16) -> Path:
    """Of a llama GGUF; the chat template comes along."""
    opened = checkpoint.open_checkpoint(sources.resolve(str(source), source))
    spec = opened.spec
    metadata = gguf_file.read(source).metadata
    weights = {}
    for name in opened.names():
        found = opened.tensor(name)
        dense = found.dequantize() if isinstance(found, tensors.Grouped) else found
        weights[name] = dense.to(dtype).contiguous()
    folder.mkdir(parents=True)
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    config = {
        "model_type": spec.architecture,
        "hidden_act": "silu",
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "num_hidden_layers": spec.num_layers,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_context_tokens,
        "rms_norm_eps": spec.rms_eps,
        "rope_theta": spec.rope_theta,
        "tie_word_embeddings": spec.tie_embeddings,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "bos_token_id": spec.bos_id,
        "eos_token_id": list(spec.eos_ids),
    }
    (folder / "config.json").write_text(json.dumps(config))
    gguf_tokenizer.build(metadata, str(source)).save(str(folder / "tokenizer.json"))
    tokens = metadata["tokenizer.ggml.tokens"]
    settings = {
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "add_bos_token": gguf_tokenizer.adds_bos(metadata, str(source)),
        "chat_template": metadata["tokenizer.chat_template"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
