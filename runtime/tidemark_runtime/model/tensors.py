"""Weights as a checkpoint holds them, before they are given the form in which they compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, slots=True)
class Grouped:
    """A matrix quantized in groups along its rows, with g = j // group_size and k = order[j] (or k = j without one):

        weight[n, k] = quants[n, j] * scales[n, g] + mins[n, g]     or     (quants[n, j] - zeros[n, g]) * scales[n, g]

    Every GGUF type we read maps to this without loss: Q4_0, Q4_1, Q4_K (4 bits, groups of 32), Q8_0 (8 bits, 32),
    Q6_K (8 bits, 16). So do AWQ and GPTQ, whose zeros are whole numbers; act-order has an `order`.
    """

    quants: torch.Tensor
    """[N, K]; uint8 in 0..15 where bits is 4, int8 or float8_e4m3fn where bits is 8."""
    scales: torch.Tensor
    """float32 [N, K / group_size]."""
    mins: torch.Tensor | None
    """float32 [N, K / group_size]; None means zero."""
    bits: int
    group_size: int
    zeros: torch.Tensor | None = None
    """float32 [N, K / group_size], whole numbers; never beside `mins`."""
    order: torch.Tensor | None = None
    """int32 [K]: which input each column is; None: as they stand."""

    @property
    def shape(self) -> tuple[int, int]:
        return (self.quants.shape[0], self.quants.shape[1])

    @property
    def kind(self) -> str:
        """`4`, `8` or `-e4m3`, for the names of paths."""
        return "-e4m3" if self.quants.dtype is torch.float8_e4m3fn else str(self.bits)

    def rows(self, which: slice | torch.Tensor) -> Grouped:
        """Some of the rows, or all in another order."""
        return replace(
            self,
            quants=self.quants[which],
            scales=self.scales[which],
            mins=None if self.mins is None else self.mins[which],
            zeros=None if self.zeros is None else self.zeros[which],
        )

    def dequantize(self) -> torch.Tensor:
        """float32 [N, K], inputs in their own order."""
        num_rows, width = self.shape
        values = self.quants.view(num_rows, -1, self.group_size).to(torch.float32)
        if self.zeros is not None:
            values = values - self.zeros.unsqueeze(-1)
        values = values * self.scales.unsqueeze(-1)
        if self.mins is not None:
            values = values + self.mins.unsqueeze(-1)
        values = values.view(num_rows, width)
        if self.order is None:
            return values
        return torch.empty_like(values).index_copy_(1, self.order.long(), values)


HostTensor = torch.Tensor | Grouped
"""A tensor of a checkpoint: dense (a view of the mapped file where possible), or grouped."""
