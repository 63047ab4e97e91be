"""Unquantized weights: plain, or in oneDNN's own blocked layout."""

from __future__ import annotations

from typing import cast

import torch
from torch.nn import functional

from tidemark_kernels import dispatch
from tidemark_runtime.model.linear_forms import base


class PlainLinear:
    """`functional.linear` on `weight` [N, K] as it lies."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    @property
    def num_outputs(self) -> int:
        return self._weight.shape[0]

    @property
    def num_bytes(self) -> int:
        return base.tensor_bytes(self._weight, self._bias)

    @property
    def path(self) -> str:
        return str(self._weight.dtype).removeprefix("torch.")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        watch = dispatch.current().watch
        began = watch.now()
        output = functional.linear(x, self._weight, self._bias)
        if began:
            watch.stopped(base.TIMED_AS, began)
        return output


def bfloat16_is_fast() -> bool:
    """Whether oneDNN has bfloat16 kernels for this processor (AVX-512 at least)."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class BlockedLinear:
    """Weights reordered once into the layout oneDNN's kernels want; saves reordering on every call. Mostly bfloat16."""

    _ROWS_HINT = 32
    """The row count the layout is chosen for; it works for all."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._bias = None if bias is None else bias.to(dtype)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), self._ROWS_HINT)
        self.num_outputs: int = weight.shape[0]
        self.num_bytes: int = weight.numel() * dtype.itemsize + base.tensor_bytes(self._bias)
        self.path: str = f"{str(dtype).removeprefix('torch.')}-onednn"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        watch = dispatch.current().watch
        began = watch.now()
        output = torch.ops.mkldnn._linear_pointwise(x.to(self._dtype), self._weight, self._bias, "none", [], "")
        if began:
            watch.stopped(base.TIMED_AS, began)
        return cast(torch.Tensor, output).to(x.dtype)


class PlainEmbedding:
    """A table [V, H] in the policy's dtype."""

    def __init__(self, table: torch.Tensor) -> None:
        self._table = table
        self.num_bytes: int = base.tensor_bytes(table)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self._table)

    def as_head(self) -> base.Linear:
        return Float32Output(PlainLinear(self._table, None), shares_memory=True)


class Float32Output:
    """A head: logits in float32 whatever the activations are."""

    def __init__(self, inner: base.Linear, *, shares_memory: bool = False) -> None:
        self._inner = inner
        self._shares_memory = shares_memory

    @property
    def num_outputs(self) -> int:
        return self._inner.num_outputs

    @property
    def num_bytes(self) -> int:
        """0 for a tied head: the embedding counts the table."""
        return 0 if self._shares_memory else self._inner.num_bytes

    @property
    def path(self) -> str:
        return self._inner.path

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._inner(x).to(torch.float32)
