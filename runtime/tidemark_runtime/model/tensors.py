"""Weights as a checkpoint holds them, before they are given the form in which they compute."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Grouped:
    """A matrix quantized in groups along its rows, with g = k // group_size:

        weight[n, k] = quants[n, k] * scales[n, g] + mins[n, g]

    Every GGUF type we read maps to this without loss: Q4_0, Q4_1, Q4_K (4 bits, groups of 32), Q8_0 (8 bits, 32),
    Q6_K (8 bits, 16).
    """

    quants: torch.Tensor
    """[N, K]; uint8 in 0..15 where bits is 4, int8 where bits is 8."""
    scales: torch.Tensor
    """float32 [N, K / group_size]."""
    mins: torch.Tensor | None
    """float32 [N, K / group_size]; None means zero."""
    bits: int
    group_size: int

    @property
    def shape(self) -> tuple[int, int]:
        return (self.quants.shape[0], self.quants.shape[1])

    def dequantize(self) -> torch.Tensor:
        """float32 [N, K]."""
        num_rows, width = self.shape
        values = self.quants.view(num_rows, -1, self.group_size).to(torch.float32) * self.scales.unsqueeze(-1)
        if self.mins is not None:
            values = values + self.mins.unsqueeze(-1)
        return values.view(num_rows, width)


HostTensor = torch.Tensor | Grouped
"""A tensor of a checkpoint: dense (a view of the mapped file where possible), or grouped."""
