"""Shapes of known models, by their public `config.json`: for plans of models that are not on this machine.

A test compares the number of parameters that follows from each shape with the published one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemark_runtime.planning import capacity, weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """One model of the Llama kind: what its memory depends on."""

    name: str
    max_context_tokens: int
    matrices: weight_bytes.MatrixShape
    qk_norm: bool = False

    @property
    def num_params(self) -> int:
        """Weights, biases and norms; a shared table once."""
        own = self.matrices
        layer = sum(outputs * inputs for outputs, inputs in own.layer_matrices) + own.bias_elements
        layer += 2 * own.hidden_size + (2 * own.head_dim if self.qk_norm else 0)
        tables = (1 if own.tie_embeddings else 2) * own.vocab_size * own.hidden_size
        return own.num_layers * layer + tables + own.hidden_size

    def shape(self, weights_bytes: int) -> capacity.ModelShape:
        """With weights that take so many bytes."""
        return shape_of(self.matrices, self.max_context_tokens, weights_bytes)


def shape_of(matrices: weight_bytes.MatrixShape, max_context_tokens: int, weights_bytes: int) -> capacity.ModelShape:
    """What the planner knows of a model with these matrices."""
    return capacity.ModelShape(
        num_layers=matrices.num_layers,
        num_heads=matrices.num_heads,
        num_kv_heads=matrices.num_kv_heads,
        head_dim=matrices.head_dim,
        hidden_size=matrices.hidden_size,
        intermediate_size=matrices.intermediate_size,
        vocab_size=matrices.vocab_size,
        max_context_tokens=max_context_tokens,
        weights_bytes=weights_bytes,
    )


def _model(
    name: str,
    sizes: tuple[int, int, int],
    heads: tuple[int, int, int],
    vocab_size: int,
    max_context_tokens: int,
    *,
    tied: bool = False,
    qkv_bias: bool = False,
    qk_norm: bool = False,
) -> KnownModel:
    """`sizes`: layers, hidden, MLP. `heads`: query heads, KV heads, elements of a head."""
    matrices = weight_bytes.MatrixShape(
        num_layers=sizes[0],
        hidden_size=sizes[1],
        intermediate_size=sizes[2],
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=heads[2],
        vocab_size=vocab_size,
        tie_embeddings=tied,
        qkv_bias=qkv_bias,
    )
    return KnownModel(name=name, max_context_tokens=max_context_tokens, matrices=matrices, qk_norm=qk_norm)


_QWEN25 = 32_768
"""Tokens of context without YaRN."""
_LLAMA31 = 131_072

MODELS: Mapping[str, KnownModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            _model("qwen2.5-0.5b", (24, 896, 4864), (14, 2, 64), 151_936, _QWEN25, tied=True, qkv_bias=True),
            _model("qwen2.5-1.5b", (28, 1536, 8960), (12, 2, 128), 151_936, _QWEN25, tied=True, qkv_bias=True),
            _model("qwen2.5-3b", (36, 2048, 11_008), (16, 2, 128), 151_936, _QWEN25, tied=True, qkv_bias=True),
            _model("qwen2.5-7b", (28, 3584, 18_944), (28, 4, 128), 152_064, _QWEN25, qkv_bias=True),
            _model("qwen2.5-14b", (48, 5120, 13_824), (40, 8, 128), 152_064, _QWEN25, qkv_bias=True),
            _model("qwen2.5-32b", (64, 5120, 27_648), (40, 8, 128), 152_064, _QWEN25, qkv_bias=True),
            _model("qwen2.5-72b", (80, 8192, 29_568), (64, 8, 128), 152_064, _QWEN25, qkv_bias=True),
            _model("qwen3-8b", (36, 4096, 12_288), (32, 8, 128), 151_936, 40_960, qk_norm=True),
            _model("qwen3-32b", (64, 5120, 25_600), (64, 8, 128), 151_936, 40_960, qk_norm=True),
            _model("llama-3.2-1b", (16, 2048, 8192), (32, 8, 64), 128_256, _LLAMA31, tied=True),
            _model("llama-3.2-3b", (28, 3072, 8192), (24, 8, 128), 128_256, _LLAMA31, tied=True),
            _model("llama-3.1-8b", (32, 4096, 14_336), (32, 8, 128), 128_256, _LLAMA31),
            _model("llama-3.1-70b", (80, 8192, 28_672), (64, 8, 128), 128_256, _LLAMA31),
            _model("smollm2-135m", (30, 576, 1536), (9, 3, 64), 49_152, 8192, tied=True),
            _model("mistral-7b-v0.3", (32, 4096, 14_336), (32, 8, 128), 32_768, 32_768),
        )
    }
)
"""By the name that `tidemark plan --model` takes."""
