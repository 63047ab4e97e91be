"""Weights that are rounded while loading and multiplied with activations as they are: `model.quantization`'s
`int8_weight_only` and `fp8_weight_only`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from tidemark_kernels import grouped
from tidemark_runtime import errors
from tidemark_runtime.model import tensors
from tidemark_runtime.model.linear_forms import fp8, int8

WEIGHT_ONLY: Mapping[str, Callable[[torch.Tensor], tensors.Grouped]] = MappingProxyType(
    {"int8_weight_only": int8.quantize, "fp8_weight_only": fp8.quantize}
)
"""Value of the setting -> what makes groups of a dense matrix."""


def rounded(name: str, part: tensors.HostTensor, quantization: str) -> tensors.Grouped:
    """Groups as they are; a dense matrix rounded. `name` is for messages.

    Raises UnsupportedModel where it cannot be cut into groups, CorruptModel where it holds no numbers.
    """
    check_width(name, part, quantization)
    if isinstance(part, tensors.Grouped):
        return part
    made = WEIGHT_ONLY[quantization](part)
    largest = float(made.scales.max())
    limit = grouped.LARGEST_E4M3_SCALE if made.quants.dtype is torch.float8_e4m3fn else float("inf")
    if not largest < limit:
        raise errors.CorruptModel(
            f"{name}: a weight is no finite number, or too large for model.quantization {quantization} (a scale would "
            f"be {largest:g}). Check the file, or choose auto or none"
        )
    return made


def check_width(name: str, part: tensors.HostTensor, quantization: str) -> None:
    """Raises UnsupportedModel where groups do not fit."""
    if not int8.supports(part):
        raise errors.UnsupportedModel(
            f"{name}: a matrix of {part.shape[0]} x {part.shape[1]} cannot become 8-bit groups: model.quantization "
            f"{quantization} needs a multiple of {int8.WIDTH_MULTIPLE} inputs. Choose auto or none"
        )
