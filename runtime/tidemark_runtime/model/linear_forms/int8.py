"""8-bit weights and 8-bit activations: int8 weights with one scale an output channel, activations scaled row by row.

Each row of activations gets its own scale (its largest magnitude), so what a row yields does not depend on the
other rows of the step. oneDNN multiplies unsigned activations with signed weights. On processors without VNNI its
kernel adds two products in 16 bits and saturates (255 * 127 * 2 > 32767); `saturates` tries it, and activations then
use 7 bits (127 * 127 * 2 = 32258 fits), which the path's name says.
"""

from __future__ import annotations

import functools
from typing import cast

import torch

from tidemark_runtime.model.linear_forms import base

_WEIGHT_LIMIT = 127
_TINY = 1e-30
"""Scale of an all-zero row; anything positive does."""


def quantize_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric 8 bits a row: [N, K] -> int8 [N, K], float32 [N]."""
    dense = weight.to(torch.float32)
    scales = (dense.abs().amax(dim=1) / _WEIGHT_LIMIT).clamp_min(_TINY)
    return (dense / scales.unsqueeze(1)).round_().to(torch.int8), scales


class _Packed:
    """int8 [N, K] in oneDNN's layout."""

    def __init__(self, quants: torch.Tensor, scales: torch.Tensor) -> None:
        self._weight = torch.ops.onednn.qlinear_prepack(quants, None)
        self._scales = scales
        self._zeros = torch.zeros(quants.shape[0], dtype=torch.int64)

    def multiply(self, x: torch.Tensor, zero_point: int) -> torch.Tensor:
        """(x - zero_point) W^T * scales: uint8 [num_rows, K] -> float32 [num_rows, N]."""
        output = torch.ops.onednn.qlinear_pointwise(
            x, 1.0, zero_point, self._weight, self._scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return cast(torch.Tensor, output)


@functools.cache
def saturates() -> bool:
    """Whether this processor's 8-bit kernel loses sums at the largest values; tried once, on the kernel itself."""
    width, highest = 64, 255
    packed = _Packed(torch.full((32, width), _WEIGHT_LIMIT, dtype=torch.int8), torch.ones(32))
    seen = packed.multiply(torch.full((4, width), highest, dtype=torch.uint8), 0)
    return bool((seen != float(width * highest * _WEIGHT_LIMIT)).any())


class Int8Linear:
    """Weights per output channel, activations per row; sums in int32, scaled in float32."""

    def __init__(
        self,
        quants: torch.Tensor,
        scales: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        activation_bits: int | None = None,
        output_dtype: torch.dtype | None = None,
    ) -> None:
        """`activation_bits` defaults to what is safe here, `output_dtype` to that of the input."""
        bits = activation_bits or (7 if saturates() else 8)
        self._packed = _Packed(quants, scales)
        self._bias = None if bias is None else bias.to(torch.float32)
        self._zero_point = 1 << (bits - 1)
        self._output_dtype = output_dtype
        self.path = f"int8-onednn-a{bits}"
        self.num_outputs: int = quants.shape[0]
        self.num_bytes: int = base.tensor_bytes(quants, scales, self._bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.to(torch.float32)
        limit = self._zero_point - 1
        scales = (rows.abs().amax(dim=1, keepdim=True) / limit).clamp_min_(_TINY)
        quants = (rows / scales).round_().add_(self._zero_point).to(torch.uint8)
        output = self._packed.multiply(quants, self._zero_point).mul_(scales)
        if self._bias is not None:
            output += self._bias
        return output.to(self._output_dtype or x.dtype)


class Int8Embedding:
    """A table of 8-bit rows. A tied head needs the same numbers once more, in oneDNN's layout: 2 bytes an element."""

    def __init__(self, table: torch.Tensor, dtype: torch.dtype) -> None:
        self._quants, self._scales = quantize_rows(table)
        self._dtype = dtype
        self.num_bytes: int = base.tensor_bytes(self._quants, self._scales)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return (self._quants[ids].to(torch.float32) * self._scales[ids].unsqueeze(1)).to(self._dtype)

    def as_head(self) -> base.Linear:
        return Int8Linear(self._quants, self._scales, None, output_dtype=torch.float32)
