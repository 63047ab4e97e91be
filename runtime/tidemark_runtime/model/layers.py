"""The parts the families share. The residual stream and what the last part adds to it travel apart: the next norm
adds them in the same pass over memory in which it normalises."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tidemark_kernels import steps
from tidemark_runtime.model import linear, parallel, rotary, weights
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.model.backends import base as backends


class Norm:
    """RMS norm (Zhang & Sennrich, arXiv 1910.07467) that first adds to the residual stream."""

    def __init__(self, weight: torch.Tensor, eps: float, rms_norm: backends.RmsNorm) -> None:
        self._rms_norm = rms_norm
        self._weight = weight
        self._eps = eps

    def __call__(self, residual: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
        """`residual` [T, H] += `added` [T, H], in place; returns the normalised sum, [T, H], in `added`'s memory."""
        if added is None:
            return self._rms_norm(residual, self._weight, self._eps)
        return self._rms_norm(added, self._weight, self._eps, residual, out=added)


class Attention:
    """Causal attention over the pages of each sequence, fused QKV, optional norm of heads and sliding window."""

    def __init__(
        self,
        spec: model_spec.ModelSpec,
        layer: int,
        qkv: linear.Linear,
        output: linear.Linear,
        *,
        head_norms: tuple[torch.Tensor, torch.Tensor] | None,
        window: int | None,
    ) -> None:
        self._layer = layer
        self._qkv = qkv
        self._output = output
        self._q_norm: torch.Tensor | None = head_norms[0] if head_norms else None
        self._k_norm: torch.Tensor | None = head_norms[1] if head_norms else None
        self._window = window
        self._scale = spec.head_dim**-0.5

    def __call__(self, x: torch.Tensor, step: backends.Attention) -> torch.Tensor:
        """[T, H] -> [T, H]; K and V of the T tokens are in the slab afterwards."""
        mixed = step.attend(self._qkv(x), self._layer, self._q_norm, self._k_norm, self._scale, self._window)
        return self._output(mixed)


class GatedMLP:
    """silu(gate) * up, then down (Shazeer, arXiv 2002.05202); gate and up in one matrix."""

    def __init__(self, gate_up: linear.Linear, down: linear.Linear, silu_mul: backends.SiluMul) -> None:
        self._silu_mul = silu_mul
        self._gate_up = gate_up
        self._down = down

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, H] -> [T, H]."""
        return self._down(self._silu_mul(self._gate_up(x)))


class Head:
    """Last norm and output layer, for the rows that are sampled."""

    def __init__(self, norm: Norm, output: linear.Linear) -> None:
        self._norm = norm
        self._output = output

    def __call__(self, residual: torch.Tensor, added: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor:
        """[T, H] and rows int64 [S] -> logits float32 [S, V]."""
        if rows.shape[0] == 0:
            return torch.empty(0, self._output.num_outputs, device=residual.device)
        wanted = None if added is None else added.index_select(0, rows)
        return self._output(self._norm(residual.index_select(0, rows), wanted))


class Builder:
    """Makes the shared parts out of a checkpoint, by the Hugging Face names all families use."""

    def __init__(self, spec: model_spec.ModelSpec, source: weights.Weights) -> None:
        self._spec = spec
        self._source = source

    def steps(self) -> backends.Begin:
        """What begins a step: pages, chunks and rotary angles, checked once for all layers."""
        spec = self._spec
        shape = steps.HeadShape(
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            rotary_dim=spec.rope_dim,
            eps=spec.rms_eps,
        )
        return self._source.backend.attention(shape, rotary.Rotary(spec))

    def embedding(self) -> linear.Embedding:
        table = self._source.embedding("model.embed_tokens.weight", self._table_shape)
        return parallel.embedding(table, self._spec.vocab_size, self._source.group)

    def norm(self, name: str) -> Norm:
        weight = self._source.vector(f"{name}.weight", self._spec.hidden_size)
        return Norm(weight, self._spec.rms_eps, self._source.backend.rms_norm)

    def attention(
        self,
        layer: int,
        qkv_parts: Sequence[str],
        *,
        bias: bool = False,
        head_norms: bool = False,
        window: int | None = None,
    ) -> Attention:
        """`bias`: on Q, K and V. `head_norms`: RMS norms of the heads of Q and K. `window`: of sliding attention."""
        spec, prefix = self._spec, f"model.layers.{layer}.self_attn"
        width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        parts = [f"{prefix}.{part}" for part in qkv_parts]
        num_rows = (width, kv_width, kv_width)
        qkv = self._source.linear(f"{prefix}.qkv_proj", parts, num_rows, spec.hidden_size, bias=bias)
        output = self._source.linear(f"{prefix}.o_proj", [f"{prefix}.o_proj"], [spec.hidden_size], width)
        norms: tuple[torch.Tensor, torch.Tensor] | None = None
        if head_norms:
            q_norm = self._source.vector(f"{prefix}.q_norm.weight", spec.head_dim)
            k_norm = self._source.vector(f"{prefix}.k_norm.weight", spec.head_dim)
            norms = (q_norm, k_norm)
        output = parallel.summed(output, self._source.group)
        return Attention(spec, layer, qkv, output, head_norms=norms, window=window)

    def mlp(self, layer: int, gate_up_parts: Sequence[str]) -> GatedMLP:
        spec, prefix = self._spec, f"model.layers.{layer}.mlp"
        parts = [f"{prefix}.{part}" for part in gate_up_parts]
        gate_up = self._source.linear(f"{prefix}.gate_up_proj", parts, [spec.intermediate_size] * 2, spec.hidden_size)
        down = self._source.linear(
            f"{prefix}.down_proj", [f"{prefix}.down_proj"], [spec.hidden_size], spec.intermediate_size
        )
        return GatedMLP(gate_up, parallel.summed(down, self._source.group), self._source.backend.silu_mul)

    def head(self, embedding: linear.Embedding) -> Head:
        norm = self.norm("model.norm")
        if self._spec.tie_embeddings:
            output = self._source.tied_head(embedding)
        else:
            output = self._source.head("lm_head.weight", self._table_shape)
        return Head(norm, parallel.head(output, self._spec.vocab_size, self._source.group))

    @property
    def _table_shape(self) -> tuple[int, int]:
        """Of embedding and output layer: this rank's tokens."""
        return len(self._source.group.shard.tokens(self._spec.vocab_size)), self._spec.hidden_size
