"""Dense matrices held in their own 16 bits and multiplied in float32, in our kernel: the file's exact weights in half
the memory of float32, for processors that have no fast 16-bit products."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tidemark_kernels import halves, ops
from tidemark_runtime.model.linear_forms import base


def supports(parts: Sequence[object]) -> bool:
    """Whether all parts, and hence the matrix they make, can be held so."""
    dense = [part for part in parts if isinstance(part, torch.Tensor)]
    same = len(dense) == len(parts) and len({part.dtype for part in dense}) == 1
    return same and all(halves.PackedHalf.supports(part) for part in dense)


class HalfLinear:
    """A row's result is bitwise the same however many rows share the step."""

    def __init__(self, weight: torch.Tensor | halves.PackedHalf, bias: torch.Tensor | None) -> None:
        self._weight = halves.PackedHalf.pack(weight) if isinstance(weight, torch.Tensor) else weight
        self._bias = None if bias is None else bias.to(torch.float32)
        self.num_outputs: int = self._weight.num_outputs
        self.num_bytes: int = self._weight.num_bytes + base.tensor_bytes(self._bias)
        self.path: str = _path(self._weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        output = ops.half_linear(x, self._weight, out_dtype=torch.float32)
        if self._bias is not None:
            output += self._bias
        return output if x.dtype is torch.float32 else output.to(x.dtype)


class HalfEmbedding:
    """A table [V, H] of 16 bits; only the rows asked for are widened."""

    def __init__(self, table: torch.Tensor, dtype: torch.dtype) -> None:
        self._weight = halves.PackedHalf.pack(table)
        self._dtype = dtype
        self.num_bytes: int = self._weight.num_bytes
        self.path: str = _path(self._weight)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return ops.half_rows(self._weight, ids).to(self._dtype)

    def as_head(self) -> base.Linear:
        return HalfHead(self._weight)


class HalfHead:
    """The output layer on an embedding's own table."""

    num_bytes = 0
    """The embedding counts it."""

    def __init__(self, weight: halves.PackedHalf) -> None:
        self._weight = weight
        self.num_outputs: int = weight.num_outputs
        self.path: str = _path(weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return ops.half_linear(x, self._weight, out_dtype=torch.float32)


def _path(weight: halves.PackedHalf) -> str:
    return f"{str(weight.dtype).removeprefix('torch.')}-panels"
