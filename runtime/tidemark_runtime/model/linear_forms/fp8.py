"""Dense weights as 8-bit floats: E4M3 (Micikevicius et al., arXiv 2209.05433) with one scale a row."""

from __future__ import annotations

import torch

from tidemark_runtime.model import tensors

LARGEST = 448.0
"""Of E4M3 without infinities."""
_ROWS_AT_A_TIME = 4096
"""Rounded together: bounds the temporaries of a large matrix."""


def quantize(weight: torch.Tensor) -> tensors.Grouped:
    """Dense [N, K] to E4M3, to nearest: a row's scale is its largest magnitude / 448. K must be a multiple of 16."""
    num_rows, width = weight.shape
    quants = torch.empty(num_rows, width, dtype=torch.float8_e4m3fn)
    scales = torch.empty(num_rows, 1)
    for start in range(0, num_rows, _ROWS_AT_A_TIME):
        some = slice(start, start + _ROWS_AT_A_TIME)
        rows = weight[some].to(torch.float32)
        scale = rows.abs().amax(dim=1, keepdim=True) / LARGEST
        divisor = torch.where(scale > 0, scale, torch.ones_like(scale))
        quants[some] = (rows / divisor).clamp_(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
        scales[some] = scale
    return tensors.Grouped(quants, scales, None, bits=8, group_size=width)
