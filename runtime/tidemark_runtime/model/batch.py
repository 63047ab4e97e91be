"""What a forward pass is given: the tokens of a step, and the KV memory they read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch

from tidemark_kernels import segments
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.planning import fixed_scales, page_layout

_TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "float32": torch.float32,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
        "fp8_e4m3": torch.float8_e4m3fn,
        "fp8_e5m2": torch.float8_e5m2,
        "int8": torch.int8,
        "int4": segments.INT4,
    },
)


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The T tokens of a step: C chunks, each some consecutive tokens of one sequence, one after the other."""

    token_ids: torch.Tensor
    """int64 [T]."""
    positions: torch.Tensor
    """int64 [T], of each token in its sequence, from 0."""
    token_page: torch.Tensor
    """int32 [T], page where the token's K and V go."""
    token_row: torch.Tensor
    """int32 [T], row inside that page, 0 to block_size - 1."""
    page_table: torch.Tensor
    """int32 [C, P], pages of each chunk's sequence in order; what lies beyond its context is not read."""
    query_start: torch.Tensor
    """int32 [C + 1], chunk c holds tokens query_start[c] to query_start[c + 1] of T."""
    context_lens: torch.Tensor
    """int32 [C], tokens of the sequence, this chunk included."""
    sample_rows: torch.Tensor
    """int64 [S], rows of T whose next token is wanted."""


@dataclass(frozen=True, slots=True)
class KVMemory:
    """The slab, and where each layer's segments lie in a page of it."""

    slab: torch.Tensor
    """uint8 [num_pages, page_bytes]."""
    layout: page_layout.PageLayout
    segments: tuple[segments.LayerSegments, ...]
    """One entry per layer."""
    block_size: int
    """Tokens a page."""

    @classmethod
    def of(
        cls, slab: torch.Tensor, layout: page_layout.PageLayout, scales: fixed_scales.Scales | None = None
    ) -> KVMemory:
        """`slab` uint8 [num_pages, layout.page_bytes], divided as `layout` says; `scales` where it has fixed ones.

        Raises ValueError for a segment whose scale is missing: none is assumed.
        """
        layers = tuple(_segments(layout, layer, scales or {}) for layer in range(layout.shape.num_layers))
        return cls(slab, layout, layers, layout.block_size)


class Model(Protocol):
    """A decoder with its weights."""

    @property
    def spec(self) -> model_spec.ModelSpec: ...

    def forward(self, batch: ForwardBatch, memory: KVMemory) -> torch.Tensor:
        """Write the step's K and V into `memory`; return logits float32 [S, V] of `batch.sample_rows`."""
        ...


def _segments(layout: page_layout.PageLayout, layer: int, scales: fixed_scales.Scales) -> segments.LayerSegments:
    """Kernels read torch dtypes and byte offsets; the layout speaks of names, so that planning needs no torch."""
    keys = [layout.segment(layer, head, "k") for head in range(layout.shape.num_kv_heads)]
    values = [layout.segment(layer, head, "v") for head in range(layout.shape.num_kv_heads)]
    return segments.LayerSegments.from_offsets(
        [segment.offset_bytes for segment in keys],
        [segment.offset_bytes for segment in values],
        [_TORCH_DTYPES[segment.dtype.name] for segment in keys],
        [_TORCH_DTYPES[segment.dtype.name] for segment in values],
        [_scales_of(segment) for segment in keys],
        [_scales_of(segment) for segment in values],
        [_fixed_scale(segment, scales) for segment in keys],
        [_fixed_scale(segment, scales) for segment in values],
    )


def _scales_of(segment: page_layout.Segment) -> int:
    found = segment.scales_offset_bytes
    return segments.NO_SCALES if found is None else found


def _fixed_scale(segment: page_layout.Segment, scales: fixed_scales.Scales) -> float:
    return scales.get((segment.layer, segment.head, segment.kind), 0.0) if segment.needs_fixed_scale else 0.0
