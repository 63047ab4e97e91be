"""A checkpoint's own 4- or 8-bit groups, bit for bit, in our kernel: float32 sums, any number of rows."""

from __future__ import annotations

import torch

from tidemark_kernels import grouped as grouped_weights
from tidemark_kernels import ops
from tidemark_runtime.model import tensors
from tidemark_runtime.model.linear_forms import base


class GroupedLinear:
    """A row's result is bitwise the same however many rows share the step."""

    def __init__(self, weight: tensors.Grouped, bias: torch.Tensor | None) -> None:
        self._weight = pack(weight)
        self._bias = None if bias is None else bias.to(torch.float32)
        self.num_outputs: int = weight.shape[0]
        self.num_bytes: int = self._weight.num_bytes + base.tensor_bytes(self._bias)
        self.path: str = f"grouped{weight.kind}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        output = ops.grouped_linear(x, self._weight, out_dtype=torch.float32)
        if self._bias is not None:
            output += self._bias
        return output if x.dtype is torch.float32 else output.to(x.dtype)


class GroupedEmbedding:
    """A table [V, H] in groups; only the rows asked for are expanded."""

    def __init__(self, table: tensors.Grouped, dtype: torch.dtype) -> None:
        self._weight = pack(table)
        self._dtype = dtype
        self._bits = table.bits
        self.num_bytes: int = self._weight.num_bytes

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self._weight.rows(ids).to(self._dtype)

    def as_head(self) -> base.Linear:
        return GroupedHead(self._weight, self._bits)


class GroupedHead:
    """The output layer on an embedding's own groups."""

    num_bytes = 0
    """The embedding counts them."""

    def __init__(self, weight: grouped_weights.GroupedWeight, bits: int) -> None:
        self._weight = weight
        self.num_outputs: int = weight.shape[0]
        self.path: str = f"grouped{bits}"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return ops.grouped_linear(x, self._weight, out_dtype=torch.float32)


class PanelLinear:
    """A dense float32 matrix in our kernel's panels; rows do not depend on each other here, too."""

    path = "float32-panels"

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = grouped_weights.PackedDense.pack(weight)
        self._bias = None if bias is None else bias.to(torch.float32)
        self.num_outputs: int = weight.shape[0]
        self.num_bytes: int = self._weight.num_bytes + base.tensor_bytes(self._bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        output = ops.dense_linear_f32(x, self._weight, out_dtype=torch.float32)
        if self._bias is not None:
            output += self._bias
        return output if x.dtype is torch.float32 else output.to(x.dtype)


class PanelEmbedding:
    """A float32 table [V, H] in panels, so that a head can compute on it."""

    path = PanelLinear.path

    def __init__(self, table: torch.Tensor) -> None:
        self._weight = grouped_weights.PackedDense.pack(table)
        self.num_bytes: int = self._weight.num_bytes

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self._weight.rows(ids)

    def as_head(self) -> base.Linear:
        return PanelHead(self._weight)


class PanelHead:
    """The output layer on an embedding's own panels."""

    path = PanelLinear.path
    num_bytes = 0
    """The embedding counts them."""

    def __init__(self, weight: grouped_weights.PackedDense) -> None:
        self._weight = weight
        self.num_outputs: int = weight.num_outputs

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return ops.dense_linear_f32(x, self._weight, out_dtype=torch.float32)


def pack(weight: tensors.Grouped) -> grouped_weights.GroupedWeight:
    return grouped_weights.GroupedWeight.pack(
        weight.quants,
        weight.scales,
        weight.mins,
        bits=weight.bits,
        group_size=weight.group_size,
        zeros=weight.zeros,
    )
