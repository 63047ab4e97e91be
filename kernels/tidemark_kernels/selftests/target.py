"""What the self-tests are told of a model: shapes and dtypes, no weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tidemark_kernels import segments as segments_module
from tidemark_kernels import steps


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's attention."""

    segments: segments_module.LayerSegments
    window: int | None = None
    """Of sliding attention, in tokens."""


@dataclass(frozen=True, slots=True, order=True)
class WeightFormat:
    """How a grouped matrix is held: `grouped.GroupedWeight`."""

    num_inputs: int
    bits: int
    group_size: int
    offset: str = ""
    """What is beside a scale: nothing, `min` or `zero`."""
    is_float: bool = False
    """Codes are E4M3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model as its kernels see it."""

    heads: steps.HeadShape
    dtype: torch.dtype
    """Of activations: float32 or bfloat16."""
    hidden_size: int
    intermediate_size: int
    block_size: int
    """Tokens a page."""
    page_bytes: int
    layers: Sequence[Layer]
    """All of them; equal ones are tested once."""
    head_norms: bool = False
    """Q and K are normalised by head before they turn."""
    formats: Sequence[WeightFormat] = ()
    """Of the grouped matrices in use."""
    half_dtypes: Sequence[torch.dtype] = ()
    """Of the matrices in use that are kept in 16 bits."""
