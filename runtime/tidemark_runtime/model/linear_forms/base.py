"""What every form of a weight matrix offers."""

from __future__ import annotations

from typing import Protocol

import torch

TIMED_AS = "linear"
"""What products in torch's own kernels are called where the time of a step is told by op."""


class Linear(Protocol):
    """`y = x W^T + b`: [num_rows, K] -> [num_rows, N] in the dtype of x; a head's output is float32."""

    @property
    def num_outputs(self) -> int:
        """N."""
        ...

    @property
    def num_bytes(self) -> int:
        """Memory the weights hold in this form; 0 where another object, that shares them, counts them."""
        ...

    @property
    def path(self) -> str:
        """Name of what runs, for `kernel_paths`."""
        ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


class Embedding(Protocol):
    """Rows of a table: ids int64 [num_tokens] -> [num_tokens, H] in the policy's dtype."""

    @property
    def num_bytes(self) -> int: ...

    def __call__(self, ids: torch.Tensor) -> torch.Tensor: ...

    def as_head(self) -> Linear:
        """The output layer that shares this table (tied weights): [num_rows, H] -> float32 [num_rows, V]."""
        ...


def tensor_bytes(*tensors: torch.Tensor | None) -> int:
    """Bytes the tensors' elements take; None counts nothing."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
