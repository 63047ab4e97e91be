"""The architectures we run: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tidemark_runtime.model import batch, llama, mistral, qwen2, qwen3, spec, weights

FAMILIES: Mapping[str, Callable[[spec.ModelSpec, weights.Weights], batch.Model]] = MappingProxyType(
    {
        "llama": llama.Llama,
        "mistral": mistral.Mistral,
        "qwen2": qwen2.Qwen2,
        "qwen3": qwen3.Qwen3,
    }
)
