"""Weights on a device: dense ones in torch's own products (cuBLAS), groups in our packed kernel, read once a step.

Each tensor is copied when its layer is made and the caller then gives the host's memory back, so that beside the
finished layers there is one matrix in work. Under Triton's interpreter the device may be the processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from tidemark_kernels.device import packed_linear, packed_weight
from tidemark_runtime.model import tensors
from tidemark_runtime.model.linear_forms import base


class DenseDeviceLinear:
    """`functional.linear` on `weight` [N, K], which is on a device."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, *, shares_memory: bool = False) -> None:
        """`shares_memory`: another object counts `weight`."""
        self._weight = weight
        self._bias = bias
        self.num_outputs: int = weight.shape[0]
        self.num_bytes: int = 0 if shares_memory else base.tensor_bytes(weight, bias)
        self.path: str = str(weight.dtype).removeprefix("torch.")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self._weight, self._bias)


class PackedLinear:
    """The checkpoint's own groups, exactly. With 16 rows or fewer weights are exact in the product, too; with more they
    are rounded to the dtype of x."""

    def __init__(
        self,
        weight: packed_weight.PackedWeight,
        bias: torch.Tensor | None,
        path: str,
        out_dtype: torch.dtype | None = None,
        *,
        shares_memory: bool = False,
    ) -> None:
        """`out_dtype`: None is that of x. `shares_memory`: another object counts `weight`."""
        self._weight = weight
        self._bias = bias
        self._out_dtype = out_dtype
        self.num_outputs: int = weight.num_outputs
        self.num_bytes: int = 0 if shares_memory else weight.num_bytes + base.tensor_bytes(bias)
        self.path: str = path

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape[0], self.num_outputs, dtype=self._out_dtype or x.dtype, device=x.device)
        return packed_linear.packed_linear(x, self._weight, self._bias, out)


class DenseDeviceEmbedding:
    """A table [V, H] on a device, in the policy's dtype."""

    def __init__(self, table: torch.Tensor) -> None:
        self._table = table
        self.num_bytes: int = base.tensor_bytes(table)
        self.path: str = str(table.dtype).removeprefix("torch.")

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self._table)

    def as_head(self) -> base.Linear:
        return DenseHead(self._table, shares_memory=True)


class DenseHead(DenseDeviceLinear):
    """The output layer: logits in float32."""

    def __init__(self, weight: torch.Tensor, *, shares_memory: bool = False) -> None:
        super().__init__(weight, None, shares_memory=shares_memory)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x).to(torch.float32)


class PackedEmbedding:
    """A table [V, H] in groups on a device; only the rows asked for are expanded."""

    def __init__(self, table: packed_weight.PackedWeight, dtype: torch.dtype, path: str) -> None:
        self._table = table
        self._dtype = dtype
        self.num_bytes: int = table.num_bytes
        self.path: str = path

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return packed_linear.packed_rows(ids, self._table, self._dtype)

    def as_head(self) -> base.Linear:
        return PackedLinear(self._table, None, self.path, torch.float32, shares_memory=True)


DeviceTable = DenseDeviceEmbedding | PackedEmbedding


def make_device_form(
    parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None, dtype: torch.dtype, device: torch.device
) -> base.Linear:
    """`parts` [N_i, K] as one matrix on `device`; `dtype`: of activations, and of dense weights.

    All parts dense, or all groups of one storage, group size and order, as `model.linear` makes runs of them. What a
    policy rounds (int8_weight_only, fp8_weight_only) is groups already. Raises `ValueError` for parts that do not fit.
    """
    if not any(isinstance(part, tensors.Grouped) for part in parts):
        moved = None if bias is None else bias.to(device, dtype)
        return DenseDeviceLinear(_dense(parts, dtype, device), moved)
    weight, path = _packed(parts, device)
    return PackedLinear(weight, None if bias is None else bias.to(device, torch.float32), path)


def make_device_head(matrix: tensors.HostTensor, dtype: torch.dtype, device: torch.device) -> base.Linear:
    """The output layer from a matrix of its own: [num_rows, K] -> float32 [num_rows, V]."""
    if isinstance(matrix, tensors.Grouped):
        weight, path = _packed([matrix], device)
        return PackedLinear(weight, None, path, torch.float32)
    return DenseHead(_dense([matrix], dtype, device))


def make_device_embedding(table: tensors.HostTensor, dtype: torch.dtype, device: torch.device) -> DeviceTable:
    """A table [V, H], as it is stored where that is groups; `as_head()` shares it."""
    if isinstance(table, tensors.Grouped):
        weight, path = _packed([table], device)
        return PackedEmbedding(weight, dtype, path)
    return DenseDeviceEmbedding(_dense([table], dtype, device))


def _dense(parts: Sequence[tensors.HostTensor], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """One matrix on `device`, part after part; a part that is there already, alone, is not copied."""
    dense = [part for part in parts if isinstance(part, torch.Tensor)]
    if len(dense) == 1:
        return dense[0].to(device, dtype).contiguous()
    matrix = torch.empty(sum(len(part) for part in dense), dense[0].shape[1], dtype=dtype, device=device)
    start = 0
    for part in dense:
        matrix[start : start + len(part)].copy_(part)
        start += len(part)
    return matrix


def _packed(parts: Sequence[tensors.HostTensor], device: torch.device) -> tuple[packed_weight.PackedWeight, str]:
    groups = [part for part in parts if isinstance(part, tensors.Grouped)]
    _check_alike(parts, groups)
    first = groups[0]
    has_mins = any(part.mins is not None for part in groups)
    mins = [torch.zeros_like(part.scales) if part.mins is None else part.mins for part in groups]
    zeros = [part.zeros for part in groups if part.zeros is not None]
    quants = first.quants
    if len(groups) > 1:
        quants = torch.cat([part.quants.view(torch.uint8) for part in groups]).view(quants.dtype)
    weight = packed_weight.PackedWeight.pack(
        quants,
        torch.cat([part.scales for part in groups]),
        torch.cat(mins) if has_mins else None,
        first.group_size,
        torch.cat(zeros) if zeros else None,
        first.order,
        device,
    )
    return weight, f"packed{first.kind}{'' if first.order is None else '-reordered'}"


def _check_alike(parts: Sequence[tensors.HostTensor], groups: Sequence[tensors.Grouped]) -> None:
    seen = {(part.quants.dtype, part.group_size, part.zeros is None, part.shape[1]) for part in groups}
    orders = [part.order for part in groups]
    same_order = all(
        order is orders[0] or (order is not None and orders[0] is not None and torch.equal(order, orders[0]))
        for order in orders
    )
    if len(groups) < len(parts) or len(seen) > 1 or not same_order:
        dense = len(parts) - len(groups)
        raise ValueError(
            f"parts are {dense} dense and {len(groups)} of groups (code dtype, group size, no zeros, width) "
            f"{sorted(map(str, seen))}, expected all dense, or all of one kind and one order of inputs"
        )
