"""Attention of a step over pages: decode steps, chunks of prompts and drafts in up to three launches and a merge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tidemark_kernels import checks
from tidemark_kernels.device import arguments, layout, work_list
from tidemark_kernels.jit import attention as jit
from tidemark_kernels.jit import attention_merge as merge_jit
from tidemark_kernels.tuning import attention as tuning
from tidemark_kernels.tuning import attention_rows

MAX_PROGRAMS = 528
"""Of a launch in a captured graph, which has as many whatever there is to do: four a processor of a large card."""
MAX_HEAD_DIM = 256


@dataclass(slots=True)
class WorkTensors:
    """A work list on a device: of one step, or room for any step of a captured graph, which `copy_` fills anew."""

    shape: work_list.Shape
    room: work_list.Capacity
    buffer: torch.Tensor
    """int32: number of items of each size of the ladder, number of merges, merges, items of each size."""
    programs: tuple[int, ...]
    """Of each launch: one for each size of the ladder, and the merge."""
    num_chunks: int
    num_tokens: int
    max_context: int
    """The most that a step has."""

    @classmethod
    def of(cls, work: work_list.WorkList, device: torch.device) -> WorkTensors:
        """Of this step alone."""
        found = cls.with_room(
            work.capacity, work.shape, device, work.num_chunks, work.num_tokens, work.max_context, max_programs=None
        )
        found.copy_(work)
        return found

    @classmethod
    def with_room(
        cls,
        room: work_list.Capacity,
        shape: work_list.Shape,
        device: torch.device,
        num_chunks: int,
        num_tokens: int,
        max_context: int,
        max_programs: int | None = MAX_PROGRAMS,
    ) -> WorkTensors:
        """For a captured graph: nothing to do until `copy_`. Steps have at most so many chunks, tokens and context."""
        buffer = torch.zeros(_size(room), dtype=torch.int32, device=device)
        programs = tuple(each * shape.num_kv_heads for each in (*room.items, room.merges))
        if max_programs is not None:
            programs = tuple(min(each, max_programs) for each in programs)
        return cls(shape, room, buffer, programs, num_chunks, num_tokens, max_context)

    def copy_(self, work: work_list.WorkList, staging: torch.Tensor | None = None) -> None:
        """Writes a step's list in one copy. staging: int32 on the host, as long as `buffer`; pinned, the host does not
        wait, and must not write to it again before the copy is done. Raises `ValueError` where there is no room."""
        if work.shape != self.shape:
            raise ValueError(f"the work list is of {work.shape}, expected {self.shape}")
        work_list.check_capacity(work, self.room)
        for name, needed, room in (
            ("chunks", work.num_chunks, self.num_chunks),
            ("tokens", work.num_tokens, self.num_tokens),
            ("tokens of context", work.max_context, self.max_context),
        ):
            if needed > room:
                raise ValueError(f"the work list has {needed} {name}, expected at most {room}")
        if staging is None:
            staging = torch.zeros(len(self.buffer), dtype=torch.int32)
        arguments.tensor("staging", staging, (torch.int32,), (len(self.buffer),), torch.device("cpu"))
        _write(staging.numpy(), work, self.room)
        self.buffer.copy_(staging, non_blocking=True)

    def counts(self, launch: int) -> torch.Tensor:
        return self.buffer[4 * launch :]

    def items(self, launch: int) -> torch.Tensor:
        return self.buffer[_start(self.room) + 8 * (self.room.merges + sum(self.room.items[:launch])) :]

    @property
    def merges(self) -> torch.Tensor:
        return self.buffer[_start(self.room) :]

    @property
    def workspace_size(self) -> int:
        """Floats."""
        return self.room.partial_rows * self.shape.num_kv_heads * (self.shape.head_dim + 2)


def paged_attention(
    q: torch.Tensor,
    slab: torch.Tensor,
    segments: layout.DeviceSegments,
    page_table: torch.Tensor,
    work: WorkTensors,
    block_size: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of each chunk's queries over the keys of its pages: `[num_tokens, num_heads, head_dim]`.

    q `[num_tokens, num_heads, head_dim]` bfloat16, float16 or float32, chunk after chunk; slab uint8 `[num_pages,
    page_bytes]`, pages and segments at multiples of 16 bytes; page_table int32 `[num_chunks, pages]`, of which entries
    that no query sees are not read; work: of this step, made with the same heads and window; block_size: tokens a page,
    a power of two; softcap: scores become softcap * tanh(score / softcap). out: as q; rows of no chunk stay as they
    are. workspace: float32 `[work.workspace_size]` or larger, whose contents do not matter.

    The host does not wait, and what is launched depends on `work.room` and `work.programs` alone.
    """
    _check(q, slab, segments, page_table, work, block_size)
    _check_limits(work, window, softcap)
    if out is None:
        out = torch.empty_like(q)
    arguments.tensor("out", out, (q.dtype,), tuple(q.shape), q.device)
    if workspace is None:
        workspace = q.new_empty(work.workspace_size, dtype=torch.float32)
    arguments.tensor("workspace", workspace, (torch.float32,), (-1,), q.device)
    if len(workspace) < work.workspace_size:
        raise ValueError(f"workspace has {len(workspace)} floats, expected at least {work.workspace_size}")
    sums = work.room.partial_rows * work.shape.num_kv_heads * work.shape.head_dim
    for launch in range(len(work.room.items)):
        if work.programs[launch]:
            _attend(launch, q, slab, segments, page_table, work, block_size, scale, softcap, out, workspace, sums)
    if work.programs[-1]:
        merge_jit.merge[(work.programs[-1],)](
            *(workspace, workspace[sums:], work.merges, work.counts(len(work.room.items)), out),
            *(work.shape.num_kv_heads, work.shape.group),
            HEAD_DIM=work.shape.head_dim,
            COLUMNS=tuning.merge_columns(work.shape.head_dim),
            SPLITS=tuning.MERGE_SPLITS,
            num_warps=tuning.MERGE_WARPS,
        )
    return out


def _attend(
    launch: int,
    q: torch.Tensor,
    slab: torch.Tensor,
    segments: layout.DeviceSegments,
    page_table: torch.Tensor,
    work: WorkTensors,
    block_size: int,
    scale: float,
    softcap: float | None,
    out: torch.Tensor,
    workspace: torch.Tensor,
    sums: int,
) -> None:
    shape = work.shape
    rows = attention_rows.ladder(shape.head_dim)[launch]
    form = tuning.form(rows, shape.head_dim, segments.forms, q.dtype, tuning.capability(q.device))
    jit.attend[(work.programs[launch],)](
        *(q, slab, page_table, segments.table, segments.fixed, work.items(launch), work.counts(launch)),
        *(out, workspace, workspace[sums:]),
        *(slab.shape[1], page_table.shape[1], shape.num_kv_heads, shape.group, block_size.bit_length() - 1),
        *(scale, softcap or 0.0, shape.window or 2**31 - 1),
        HEAD_DIM=shape.head_dim,
        ROWS=rows,
        KEYS=form.keys,
        STAGES=form.num_stages,
        CAPPED=softcap is not None,
        FORMS=segments.forms,
        DIALECT=tuning.dialect(q.device),
        num_warps=form.num_warps,
        num_stages=form.num_stages,
    )


def _check(
    q: torch.Tensor,
    slab: torch.Tensor,
    segments: layout.DeviceSegments,
    page_table: torch.Tensor,
    work: WorkTensors,
    block_size: int,
) -> None:
    shape = work.shape
    arguments.tensor("q", q, arguments.FLOATS, (-1, shape.num_heads, shape.head_dim))
    if q.shape[0] < work.num_tokens:
        raise ValueError(f"q has {q.shape[0]} tokens, expected at least {work.num_tokens} as in work")
    _check_head_dim(shape.head_dim, segments)
    arguments.pages(slab, q.device)
    if block_size < 8 or block_size & (block_size - 1):
        raise ValueError(f"block_size is {block_size}, expected a power of two from 8 on")
    checks.layer(segments.source, shape.num_kv_heads, slab.shape[1], block_size, shape.head_dim)
    arguments.segments_in_pages(segments.source)
    arguments.tensor("segments.table", segments.table, (torch.int64,), (2, shape.num_kv_heads, 3), q.device)
    arguments.tensor("page_table", page_table, (torch.int32,), (-1, -1), q.device)
    pages = -(-work.max_context // block_size)
    if page_table.shape[0] < work.num_chunks or page_table.shape[1] < pages:
        raise ValueError(
            f"page_table is {list(page_table.shape)}, expected at least [{work.num_chunks}, {pages}] as in work"
        )
    arguments.tensor("work.buffer", work.buffer, (torch.int32,), (-1,), q.device)


def _check_head_dim(head_dim: int, segments: layout.DeviceSegments) -> None:
    """Rows of all segments must begin at multiples of 16 bytes."""
    multiple = 16 if max((*segments.k_codes, *segments.v_codes)) >= 3 else 8
    if head_dim % multiple or not 16 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"head_dim is {head_dim}, expected a multiple of {multiple} from 16 to {MAX_HEAD_DIM}")


def _check_limits(work: WorkTensors, window: int | None, softcap: float | None) -> None:
    if window != work.shape.window:
        raise ValueError(f"window is {window}, expected {work.shape.window} as in work")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap is {softcap}, expected more than 0, or None")


# ------------------------------------------------------------------------------------------------ the buffer's layout


def _start(room: work_list.Capacity) -> int:
    """Where merges begin: after the numbers of items and of merges, each at a multiple of 16 bytes as all that follows,
    so that one compiled form serves every launch."""
    return 4 * (len(room.items) + 1)


def _size(room: work_list.Capacity) -> int:
    return _start(room) + 8 * (room.merges + sum(room.items))


def _write(buffer: work_list.Int32, work: work_list.WorkList, room: work_list.Capacity) -> None:
    at = _start(room)
    buffer[:at:4] = [*(len(each) for each in work.items), len(work.merges)]
    for rows, most in ((work.merges, room.merges), *zip(work.items, room.items, strict=True)):
        buffer[at : at + rows.size] = np.ravel(rows)
        at += 8 * most
