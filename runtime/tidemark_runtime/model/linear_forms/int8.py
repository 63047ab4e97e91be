"""Weights in 4- or 8-bit groups times activations rounded to 8 bits, in our kernel; sums within a group are exact.

Weights that a checkpoint holds in groups stay as they are. Dense ones are rounded to 8 bits in groups of 32 inputs.
"""

from __future__ import annotations

import torch

from tidemark_kernels import grouped as grouped_weights
from tidemark_kernels import ops
from tidemark_runtime.model import tensors
from tidemark_runtime.model.linear_forms import base, grouped

WIDTH_MULTIPLE = 16
"""Dense matrices of another width cannot be cut into groups."""
_GROUP_SIZES = (32, 16)
_LIMIT = 127
_ROWS_AT_A_TIME = 4096
"""Rounded together: bounds the temporaries of a large table."""


def supports(weight: tensors.HostTensor) -> bool:
    return isinstance(weight, tensors.Grouped) or weight.shape[1] % WIDTH_MULTIPLE == 0


def quantize(weight: torch.Tensor) -> tensors.Grouped:
    """Dense [N, K] to 8 bits: a group's scale is its largest magnitude / 127. K must be a multiple of 16."""
    num_rows, width = weight.shape
    group_size = next(size for size in _GROUP_SIZES if width % size == 0)
    quants = torch.empty(num_rows, width, dtype=torch.int8)
    scales = torch.empty(num_rows, width // group_size)
    for start in range(0, num_rows, _ROWS_AT_A_TIME):
        some = slice(start, start + _ROWS_AT_A_TIME)
        groups = weight[some].to(torch.float32).reshape(-1, width // group_size, group_size)
        # As float16, which the kernel reads at half the cost; the codes are made for the scale as it is kept.
        wanted = groups.abs().amax(dim=2) / _LIMIT
        kept = wanted.half().float()
        kept = torch.where((kept > 0) & kept.isfinite(), kept, wanted)
        divisor = torch.where(kept > 0, kept, torch.ones_like(kept)).unsqueeze(2)
        quants[some] = (groups / divisor).round_().clamp_(-_LIMIT, _LIMIT).to(torch.int8).flatten(1)
        scales[some] = kept
    return tensors.Grouped(quants, scales, None, bits=8, group_size=group_size)


class Int8Linear:
    """A row's result is bitwise the same however many rows share the step."""

    def __init__(self, weight: tensors.Grouped, bias: torch.Tensor | None) -> None:
        self._weight = grouped.pack(weight)
        self._bias = None if bias is None else bias.to(torch.float32)
        self.num_outputs: int = weight.shape[0]
        self.num_bytes: int = self._weight.num_bytes + base.tensor_bytes(self._bias)
        self.path: str = _path(weight.bits)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        output = ops.grouped_linear_int8(x, self._weight, torch.float32)
        if self._bias is not None:
            output += self._bias
        return output if x.dtype is torch.float32 else output.to(x.dtype)


class Int8Embedding(grouped.GroupedEmbedding):
    """Rows come out as the groups say; a tied head multiplies the same groups."""

    def as_head(self) -> base.Linear:
        return Int8Head(self._weight, self._bits)


class Int8Head:
    """The output layer on an embedding's own groups."""

    num_bytes = 0
    """The embedding counts them."""

    def __init__(self, weight: grouped_weights.GroupedWeight, bits: int) -> None:
        self._weight = weight
        self.num_outputs: int = weight.shape[0]
        self.path: str = _path(bits)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return ops.grouped_linear_int8(x, self._weight, torch.float32)


def _path(bits: int) -> str:
    return f"int8-grouped{bits}"
