"""A device: our Triton kernels, or, for an op that none runs, plain torch on the device (`device_dispatch` says why).

Importing this imports Triton; an engine on a processor does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy.typing as npt
import torch

from tidemark_kernels import device_dispatch, reference, steps
from tidemark_kernels.device import attention, elementwise, kv_write, layout, work_list
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import rotary
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.model.backends import base
from tidemark_runtime.planning import page_layout

Windows = Mapping[int | None, attention.WorkTensors]
"""Window of sliding attention -> the step's work list for the layers that have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBatch(batches.ForwardBatch):
    """With what attention's programs do in this step. Rows that fill up a recorded step are in no list."""

    work: Windows


class WorkLists:
    """Makes them: what a model's attention does in a step, from counts and contexts alone, on the host."""

    def __init__(self, spec: model_spec.ModelSpec, page: page_layout.PageLayout) -> None:
        heads = page.shape.num_kv_heads * spec.num_layers
        windows = dict.fromkeys(spec.window(layer) for layer in range(spec.num_layers))
        self.shapes = {
            window: work_list.Shape(
                num_heads=spec.num_heads,
                num_kv_heads=spec.num_kv_heads,
                head_dim=spec.head_dim,
                kv_bytes=page.token_bytes / heads,
                window=window,
            )
            for window in windows
        }

    def plan(self, counts: npt.ArrayLike, contexts: npt.ArrayLike) -> dict[int | None, work_list.WorkList]:
        """counts and contexts `[num_chunks]`, of the step's chunks."""
        return {window: work_list.plan(counts, contexts, shape) for window, shape in self.shapes.items()}

    def room(
        self, num_rows: int, max_context_tokens: int, total_tokens: int, device: torch.device
    ) -> dict[int | None, attention.WorkTensors]:
        """For recorded steps of up to `num_rows` decodes; `total_tokens`: of their contexts together. A step with more,
        whose sequences share pages, finds no room (`fits`)."""
        found = {}
        for window, shape in self.shapes.items():
            room = work_list.capacity(num_rows, 1, max_context_tokens, total_tokens, shape)
            found[window] = attention.WorkTensors.with_room(room, shape, device, num_rows, num_rows, max_context_tokens)
        return found


def fits(planned: Mapping[int | None, work_list.WorkList], room: Windows) -> bool:
    """Whether a recorded step with `room` can do what is planned."""
    for window, work in planned.items():
        needed, most = work.capacity, room[window].room
        items = all(have <= limit for have, limit in zip(needed.items, most.items, strict=True))
        if not (items and needed.merges <= most.merges and needed.partial_rows <= most.partial_rows):
            return False
    return True


class Device:
    """Implements `base.Backend`."""

    def __init__(self, device: torch.device, choices: device_dispatch.Choices, max_positions: int) -> None:
        """`max_positions`: the longest sequence there will be, for the table of rotary angles."""
        self.device = device
        self._choices = choices
        self._max_positions = max_positions
        self.rms_norm: base.RmsNorm = elementwise.rms_norm if choices.runs_kernel("rms_norm") else _rms_norm
        self.silu_mul: base.SiluMul = elementwise.silu_mul if choices.runs_kernel("silu_mul") else _silu_mul

    def attention(self, shape: steps.HeadShape, turns: rotary.Rotary) -> base.Begin:
        cos, sin = (angles.to(self.device) for angles in turns.at(torch.arange(self._max_positions)))
        writes, attends = (self._choices.runs_kernel(op) for op in ("rope_and_write", "paged_attention"))
        known: list[tuple[object, tuple[layout.DeviceSegments, ...]]] = []

        def begin(batch: batches.ForwardBatch, memory: batches.KVMemory) -> base.Attention:
            if not isinstance(batch, DeviceBatch):
                raise ValueError(f"batch is a {type(batch).__name__}, expected a DeviceBatch, with work lists")
            if not (writes and attends):
                return _Plain(shape, batch, memory, (cos, sin))
            if not known or known[0][0] is not memory.segments:
                segments = tuple(layout.DeviceSegments.of(each, self.device) for each in memory.segments)
                known[:] = [(memory.segments, segments)]
            return _Attention(shape, batch, memory, known[0][1], (cos, sin))

        return begin


class _Attention:
    """Implements `base.Attention` by our kernels."""

    __slots__ = ("_angles", "_batch", "_block_size", "_segments", "_shape", "_slab")

    def __init__(
        self,
        shape: steps.HeadShape,
        batch: DeviceBatch,
        memory: batches.KVMemory,
        segments: Sequence[layout.DeviceSegments],
        angles: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        self._shape = shape
        self._batch = batch
        self._slab = memory.slab
        self._block_size = memory.block_size
        self._segments = segments
        self._angles = angles

    def attend(
        self,
        qkv: torch.Tensor,
        layer: int,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        shape, batch, segments = self._shape, self._batch, self._segments[layer]
        cos, sin = self._angles
        queries = kv_write.rope_and_write(
            qkv,
            cos,
            sin,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.rotary_dim,
            q_norm,
            k_norm,
            shape.eps,
            self._slab,
            segments,
            batch.token_page,
            batch.token_row,
            self._block_size,
            batch.positions,
        )
        work = batch.work[window]
        mixed = attention.paged_attention(
            queries, self._slab, segments, batch.page_table, work, self._block_size, scale, window
        )
        return mixed.view(qkv.shape[0], -1)


class _Plain:
    """Implements `base.Attention` by the references: the host waits for the device in every layer."""

    def __init__(
        self,
        shape: steps.HeadShape,
        batch: DeviceBatch,
        memory: batches.KVMemory,
        angles: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        self._shape = shape
        self._batch = batch
        self._memory = memory
        self._cos, self._sin = (table.index_select(0, batch.positions) for table in angles)

    def attend(
        self,
        qkv: torch.Tensor,
        layer: int,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        shape, batch, memory = self._shape, self._batch, self._memory
        segments = memory.segments[layer]
        queries = reference.rope_and_write(
            qkv,
            self._cos,
            self._sin,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.rotary_dim,
            q_norm,
            k_norm,
            shape.eps,
            memory.slab,
            segments,
            batch.token_page,
            batch.token_row,
        )
        places = (batch.page_table, batch.query_start, batch.context_lens, memory.block_size)
        mixed = reference.paged_attention(queries, memory.slab, segments, *places, scale, window)
        return mixed.view(qkv.shape[0], -1)


def _rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    found = reference.rms_norm(x, weight, eps, residual)
    return found if out is None else out.copy_(found)


def _silu_mul(gate_up: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    found = reference.silu_mul(gate_up)
    return found if out is None else out.copy_(found)
