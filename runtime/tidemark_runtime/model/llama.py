"""Llama 1 to 3 (Touvron et al., arXiv 2302.13971; arXiv 2407.21783), SmolLM, and Mistral as GGUF calls it.

Pre-norm decoder: grouped-query attention with rotary positions, gated MLP, no biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import torch

from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import layers, weights
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.model.backends import base as backends


class Llama:
    """The whole decoder, in the order of computation."""

    FUSED: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    )
    """Our matrix -> the checkpoint's matrices that lie in it, one under the other."""

    def __init__(self, spec: model_spec.ModelSpec, source: weights.Weights) -> None:
        build = layers.Builder(spec, source)
        self.spec = spec
        self._begin = build.steps()
        self._embedding = build.embedding()
        self._layers = [LlamaLayer(spec, build, layer, self.FUSED) for layer in range(spec.num_layers)]
        self._head = build.head(self._embedding)

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        """Logits float32 [S, V] of `batch.sample_rows`."""
        step = self._begin(batch, memory)
        residual = self._embedding(batch.token_ids)  # [T, H]
        added: torch.Tensor | None = None
        for layer in self._layers:
            added = layer.forward(residual, added, step)
        return self._head(residual, added, batch.sample_rows)


class LlamaLayer:
    """Attention, then MLP, each behind a norm and added to the residual stream."""

    def __init__(
        self, spec: model_spec.ModelSpec, build: layers.Builder, layer: int, fused: Mapping[str, tuple[str, ...]]
    ) -> None:
        prefix = f"model.layers.{layer}"
        self._attention_norm = build.norm(f"{prefix}.input_layernorm")
        self._attention = build.attention(layer, fused["qkv_proj"], bias=spec.qkv_bias, window=spec.window(layer))
        self._mlp_norm = build.norm(f"{prefix}.post_attention_layernorm")
        self._mlp = build.mlp(layer, fused["gate_up_proj"])

    def forward(self, residual: torch.Tensor, added: torch.Tensor | None, step: backends.Attention) -> torch.Tensor:
        """`residual` [T, H] takes in what was `added` before; returns what this layer adds last, [T, H]."""
        x = self._attention_norm(residual, added)
        added = self._attention(x, step)
        x = self._mlp_norm(residual, added)
        return self._mlp(x)
