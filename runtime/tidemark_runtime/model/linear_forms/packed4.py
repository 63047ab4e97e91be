"""4-bit groups in the layout of torch's own packed kernel."""

from __future__ import annotations

from typing import cast

import torch

from tidemark_kernels import dispatch
from tidemark_runtime.model import tensors
from tidemark_runtime.model.linear_forms import base

GROUP_SIZES = (32, 64, 128, 256)
_ROW_MULTIPLE = 16
"""The kernel takes only matrices whose N is a multiple of this."""
_ZERO_POINT = 8
"""The kernel computes (q - 8) * scale + zero."""


def supports(weight: tensors.Grouped) -> bool:
    """Whether torch's packed kernel can hold these groups at all."""
    return weight.bits == 4 and weight.group_size in GROUP_SIZES and weight.shape[0] % _ROW_MULTIPLE == 0


class Packed4Linear:
    """`_weight_int4pack_mm_for_cpu`; scales and zeros in the dtype of the activations, as the kernel requires."""

    path = "packed4-torch"

    def __init__(self, weight: tensors.Grouped, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        scales = weight.scales
        mins = torch.zeros_like(scales) if weight.mins is None else weight.mins
        zeros = mins + _ZERO_POINT * scales
        if weight.zeros is not None:
            zeros = (_ZERO_POINT - weight.zeros) * scales
        self._group_size = weight.group_size
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(weight.quants.to(torch.int32), 1)
        self._scales_and_zeros = torch.stack([scales.t(), zeros.t()], dim=-1).contiguous().to(dtype)
        self._bias = None if bias is None else bias.to(dtype)
        self.num_outputs: int = weight.shape[0]
        self.num_bytes: int = base.tensor_bytes(self._packed, self._scales_and_zeros, self._bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        watch = dispatch.current().watch
        began = watch.now()
        output = cast(
            torch.Tensor,
            torch.ops.aten._weight_int4pack_mm_for_cpu(
                x.contiguous(), self._packed, self._group_size, self._scales_and_zeros
            ),
        )
        if began:
            watch.stopped(base.TIMED_AS, began)
        return output if self._bias is None else output + self._bias
