"""A step's attention over pages as a worker would have it, for whoever measures or counts it; pages are shuffled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tidemark_kernels.device import attention, layout, work_list
from tidemark_runtime.model import batch as batches
from tidemark_runtime.planning import page_layout

HARMLESS = 60
"""Bytes below it are small finite numbers in every dtype, and so are scales made of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What of a model attention sees; the default is an 8B Llama's."""

    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16
    num_layers: int = 1
    """Of which a page holds K and V; one is read."""
    window: int | None = None
    softcap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    model: Model
    q: torch.Tensor
    slab: torch.Tensor
    segments: layout.DeviceSegments
    page_table: torch.Tensor
    work: attention.WorkTensors
    out: torch.Tensor
    workspace: torch.Tensor
    least_bytes: int
    """K, V and scales of every key that is seen once, q and out once."""
    num_scores: int
    """Pairs of a query and a key that it sees, in one head."""

    def run(self) -> torch.Tensor:
        return attention.paged_attention(
            *(self.q, self.slab, self.segments, self.page_table, self.work, self.model.block_size),
            self.model.head_dim**-0.5,
            window=self.model.window,
            softcap=self.model.softcap,
            out=self.out,
            workspace=self.workspace,
        )

    def tensors(self) -> dict[str, torch.Tensor]:
        """All memory that the op is given, by name."""
        work, segments = self.work, self.segments
        return {
            "pages": self.slab,
            "q": self.q,
            "out": self.out,
            "page table": self.page_table,
            "work list": work.buffer,
            "parts of split keys": self.workspace,
            "segments": segments.table,
            "fixed scales": segments.fixed,
        }


def make(
    device: torch.device,
    kv_dtype: str,
    counts: Sequence[int],
    contexts: Sequence[int],
    model: Model | None = None,
    q_dtype: torch.dtype = torch.bfloat16,
) -> Case:
    """`counts`: queries of each sequence, its newest tokens; `contexts`: tokens with them."""
    model = model or Model()
    made = layout_of(kv_dtype, model)
    pages = [-(-context // model.block_size) for context in contexts]
    slab = torch.empty(sum(pages), made.page_bytes, dtype=torch.uint8, device=device).random_(0, HARMLESS)
    source = batches.KVMemory.of(slab, made).segments[model.num_layers // 2]
    table = torch.zeros(len(pages), max(pages), dtype=torch.int32)
    shuffled = torch.randperm(sum(pages), dtype=torch.int32)
    for row, (start, count) in enumerate(zip(_starts(pages), pages, strict=True)):
        table[row, :count] = shuffled[start : start + count]
    shape = shape_of(kv_dtype, model)
    work = attention.WorkTensors.of(work_list.plan(counts, contexts, shape), device)
    q = torch.randn(sum(counts), model.num_heads, model.head_dim, device=device, dtype=torch.float32).to(q_dtype)
    keys = sum(_seen(count, context, model.window) for count, context in zip(counts, contexts, strict=True))
    return Case(
        model=model,
        q=q,
        slab=slab,
        segments=layout.DeviceSegments.of(source, device),
        page_table=table.to(device),
        work=work,
        out=torch.empty_like(q),
        workspace=torch.empty(max(1, work.workspace_size), dtype=torch.float32, device=device),
        least_bytes=round(keys * model.num_kv_heads * shape.kv_bytes) + 2 * q.numel() * q.element_size(),
        num_scores=sum(_scores(count, context, model.window) for count, context in zip(counts, contexts, strict=True)),
    )


def layout_of(kv_dtype: str, model: Model) -> page_layout.PageLayout:
    shape = page_layout.KVShape(model.num_layers, model.num_kv_heads, model.head_dim)
    return page_layout.PageLayout(shape, model.block_size, kv_dtype)


def shape_of(kv_dtype: str, model: Model) -> work_list.Shape:
    dtype = page_layout.KV_DTYPES[kv_dtype]
    kv_bytes = 2 * (dtype.row_bytes(model.head_dim) + dtype.scale_bytes(model.head_dim))
    return work_list.Shape(
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        kv_bytes=kv_bytes,
        window=model.window,
    )


def plan_again(case: Case, counts: Sequence[int], contexts: Sequence[int]) -> None:
    """What the host does for each step: the list, and its copy to the device."""
    case.work.copy_(work_list.plan(counts, contexts, case.work.shape))


def with_layers(model: Model, num_layers: int) -> Model:
    return dataclasses.replace(model, num_layers=num_layers)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:index]) for index in range(len(sizes))]


def _seen(count: int, context: int, window: int | None) -> int:
    """Keys that at least one query sees."""
    return context if window is None else min(context, count + window - 1)


def _scores(count: int, context: int, window: int | None) -> int:
    positions = range(context - count, context)
    return sum(min(position + 1, window or position + 1) for position in positions)
