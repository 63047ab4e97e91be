"""What the ops on packed weights compute, in plain torch: same names, same arguments."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn import functional


class Dequantizable(Protocol):
    """`device.packed_weight.PackedWeight`, which this module is below."""

    def dequantize(self) -> torch.Tensor:
        """float32 `[num_outputs, num_inputs]`, inputs in their own order."""
        ...


def packed_linear(
    x: torch.Tensor,
    weight: Dequantizable,
    bias: torch.Tensor | None = None,
    compute: torch.dtype = torch.float32,
) -> torch.Tensor:
    """x `[num_tokens, num_inputs]` -> `[num_tokens, num_outputs]` of `compute`."""
    return functional.linear(x.to(compute), weight.dequantize().to(compute), None if bias is None else bias.to(compute))


def packed_rows(ids: torch.Tensor, weight: Dequantizable, compute: torch.dtype = torch.float32) -> torch.Tensor:
    """ids `[num_tokens]` -> `[num_tokens, num_inputs]` of `compute`; NaN where an id is no row."""
    table = weight.dequantize()
    is_row = (ids >= 0) & (ids < len(table))
    return torch.where(is_row[:, None], table[torch.where(is_row, ids, 0)].to(compute), torch.nan)
