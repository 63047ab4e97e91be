"""The real model in transformers, from the same GGUF: dequantized by the `gguf` package, not by our code.

transformers' own GGUF loader needs one more package (accelerate) and ten seconds for the tokenizer's lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from made_models import gguf_name, permuted

from tidemark_runtime.model import gguf_file


def load(path: Path) -> Any:
    """LlamaForCausalLM in float32, ready to be called."""
    file = gguf_file.read(path)
    fields = {key.removeprefix("llama."): value for key, value in file.metadata.items()}
    config = transformers.LlamaConfig(
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        hidden_size=fields["embedding_length"],
        intermediate_size=fields["feed_forward_length"],
        num_hidden_layers=fields["block_count"],
        num_attention_heads=fields["attention.head_count"],
        num_key_value_heads=fields["attention.head_count_kv"],
        max_position_embeddings=fields["context_length"],
        rms_norm_eps=fields["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["rope.freq_base"]},
        tie_word_embeddings="output.weight" not in file.tensors,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    weights = {}
    for name, parameter in model.named_parameters():
        array = _dequantized(file.tensors[gguf_name(name)])
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        if heads:
            array = array[np.argsort(permuted(np.arange(array.shape[0]), heads))]
        weights[name] = torch.from_numpy(array).view(parameter.shape)
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def _dequantized(info: gguf_file.TensorInfo) -> Any:
    kind = gguf.GGMLQuantizationType[info.type_name]
    rows = info.data.reshape(info.shape[0] if len(info.shape) > 1 else 1, -1)
    packed = rows.view(np.float32) if info.type_name == "F32" else rows
    return np.ascontiguousarray(gguf.quants.dequantize(packed, kind), dtype=np.float32)
