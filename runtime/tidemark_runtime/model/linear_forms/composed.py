"""Layers made of other layers: another order of inputs, two forms of one matrix, matrices side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tidemark_runtime.model.linear_forms import base


class Reordered:
    """Inputs of groups that act-order has put in another order than the activations'."""

    def __init__(self, inner: base.Linear, order: torch.Tensor) -> None:
        self._inner = inner
        self._order = order
        self.num_outputs: int = inner.num_outputs
        self.num_bytes: int = inner.num_bytes + base.tensor_bytes(order)
        self.path: str = f"{inner.path}-reordered"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._inner(x.index_select(1, self._order))


class ByRows:
    """Two forms of one matrix: one for steps of few rows, one for many."""

    def __init__(self, few: base.Linear, many: base.Linear, most_few_rows: int) -> None:
        self._few = few
        self._many = many
        self._most_few_rows = most_few_rows
        self.num_outputs: int = few.num_outputs
        self.num_bytes: int = few.num_bytes + many.num_bytes
        self.path: str = f"rows<={most_few_rows}: {few.path}, more: {many.path}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._few(x) if x.shape[0] <= self._most_few_rows else self._many(x)


class SideBySide:
    """Parts stored differently (a Q6_K V beside Q4_K Q and K): computed apart, outputs concatenated."""

    def __init__(self, layers: Sequence[base.Linear]) -> None:
        self._layers = tuple(layers)
        self.num_outputs: int = sum(layer.num_outputs for layer in layers)
        self.num_bytes: int = sum(layer.num_bytes for layer in layers)
        self.path: str = " | ".join(dict.fromkeys(layer.path for layer in layers))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([layer(x) for layer in self._layers], dim=1)
