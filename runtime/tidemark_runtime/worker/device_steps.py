"""One step on a device: its tables written by the host, the forward pass, the sampler, and the new tokens put where the
next step finds them. Launched kernel by kernel, or, for decodes, recorded once and launched at once (`graphs`).

Nothing here waits for the device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tidemark_kernels import device_dispatch, reference_sampling
from tidemark_kernels.device import attention, work_list
from tidemark_kernels.device import sampling as device_sampling
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import parallel
from tidemark_runtime.model.backends import device as device_backend
from tidemark_runtime.worker import accelerators, device_buffers, device_slots, graphs, slots

RECORDED_FEATURES = device_sampling.Features(samples=True)
"""What the sampler of a recorded step can do. A step with more is sampled again, from the logits that it left."""

Int64 = slots.Int64
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Launched:
    """What a step will have brought, on the device."""

    slots: Int64
    """Those that sampled, in the order of the results; with guesses to check one several times."""
    sampled: device_sampling.Sampled | None
    """None where nobody samples."""
    at: Int64
    """Their rows of it."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a recorded step reads and writes, always the same memory."""

    size: int
    packed: device_buffers.Packed
    inputs: torch.Tensor
    work: Mapping[int | None, attention.WorkTensors]
    logits: torch.Tensor
    """float32 [size, V]."""
    sampled: device_sampling.Sampled


class Steps:
    """Runs them on one model. For the thread that launches, in its current stream."""

    def __init__(
        self,
        accelerator: accelerators.Accelerator,
        model: batches.Model,
        memory: batches.KVMemory,
        tables: device_slots.DeviceTables,
        choices: device_dispatch.Choices,
        *,
        tells_logprobs: bool = True,
        group: parallel.Group = parallel.ALONE,
    ) -> None:
        """`tells_logprobs`: to those that ask for them; False where nobody would read them. `group`: of the ranks that
        share `model`; the first one samples, and its tokens go into the tables of all."""
        self._accelerator = accelerator
        self._model = model
        self._memory = memory
        self._tables = tables
        self._work_lists = device_backend.WorkLists(model.spec, memory.layout)
        self._samples_by_kernel = choices.runs_kernel("sample")
        self._tells_logprobs = tells_logprobs
        self._group = group
        self._shared_logits: torch.Tensor | None = None
        self._shared_workspace: device_sampling.Workspace | None = None

    def launch(self, rows: slots.Rows) -> Launched:
        """Kernel by kernel."""
        tables = self._tables
        sampled_slots = rows.slots[rows.samples]
        arrays = step_arrays(tables, rows)
        packed = device_buffers.Packed.of(arrays)
        views = packed.views(tables.staging.send(arrays, packed))
        contexts = rows.starts + rows.counts
        work = {window: self._send(each) for window, each in self._work_lists.plan(rows.counts, contexts).items()}
        num_pages = -(-int(contexts.max()) // self._memory.block_size)
        logits = self._forward(views, work, num_pages)
        if not len(sampled_slots):
            return Launched(sampled_slots, None, np.arange(0))
        sampled = self._sample_and_append(logits, views, sampled_slots, self._features_of(sampled_slots))
        return Launched(sampled_slots, sampled, np.arange(len(sampled_slots)))

    def replay(self, recorded: graphs.Recorded[Room], rows: slots.Rows) -> Launched | None:
        """Rows of one token each, as recorded; None, and nothing has happened, where they need more than the record
        has."""
        room, tables = recorded.step, self._tables
        planned = self._work_lists.plan(rows.counts, rows.starts + rows.counts)
        at = np.flatnonzero(rows.samples)
        sampled_slots = rows.slots[at]
        features = self._features_of(sampled_slots)
        # Penalties are drawn after the record, and it has written its own tokens over the guesses that they count.
        if features.adjusts and len(np.unique(sampled_slots)) < len(sampled_slots):
            return None
        if not device_backend.fits(planned, room.work):
            return None
        tables.staging.send(padded(step_arrays(tables, rows), room.packed, tables, at), room.packed, room.inputs)
        for window, work in planned.items():
            self._fill(room.work[window], work)
        recorded.graph.replay()
        if not features.adjusts and features.num_top is None:
            return Launched(sampled_slots, room.sampled, at)
        count = len(rows.slots)
        views = {name: view[:count] for name, view in room.packed.views(room.inputs).items() if name in _OF_SAMPLES}
        return Launched(sampled_slots, self._sample_and_append(room.logits[:count], views, rows.slots, features), at)

    def prepare(self, size: int, most_rows: int) -> tuple[Room, Callable[[], None]]:
        """Memory for `size` rows of one token, and what computes them; `most_rows` is the largest size."""
        tables, device = self._tables, self._accelerator.device
        packed = device_buffers.Packed(_shapes(size))
        total_tokens = len(self._memory.slab) * self._memory.block_size
        most_tokens = min(tables.host.tokens.shape[1] - 1, total_tokens)
        work = self._work_lists.room(size, most_tokens, total_tokens, device)
        vocab_size = self._model.spec.vocab_size
        if self._shared_logits is None:
            self._shared_logits = torch.zeros((most_rows, vocab_size), device=device)
            self._shared_workspace = device_sampling.Workspace.allocate(
                most_rows, vocab_size, RECORDED_FEATURES, device
            )
        inputs = torch.empty(packed.num_bytes, dtype=torch.uint8, device=device)
        sampled = device_sampling.empty_sampled(size, RECORDED_FEATURES, device)
        room = Room(size, packed, inputs, work, self._shared_logits[:size], sampled)
        tables.staging.send(padded({}, packed, tables), packed, inputs)
        views, workspace = packed.views(inputs), self._shared_workspace

        def run() -> None:
            room.logits.copy_(self._forward(views, work, tables.pages.shape[1]))
            device_sampling.sample(
                room.logits,
                views["sampled_slots"],
                tables.params,
                tables.tokens,
                tables.lengths,
                tables.num_prompt_tokens,
                RECORDED_FEATURES,
                sampled,
                workspace,
                views["behind"],
            )
            self._append(views, sampled.token_ids)

        return room, run

    @property
    def num_bytes(self) -> int:
        """Of the device, kept between steps beside the tables."""
        return 0 if self._shared_logits is None else self._shared_logits.numel() * 4

    def _features_of(self, sampled_slots: slots.Int64) -> device_sampling.Features:
        found = self._tables.features_of(sampled_slots)
        return found if self._tells_logprobs else dataclasses.replace(found, num_top=None)

    def _forward(self, views: Mapping[str, torch.Tensor], work: device_backend.Windows, num_pages: int) -> torch.Tensor:
        """float32 [S, V]; the lengths of those that sample are in the tables afterwards."""
        tables = self._tables
        tables.lengths.index_copy_(0, views["sampled_slots"], views["sampled_lengths"])
        batch = device_backend.DeviceBatch(
            token_ids=tables.tokens.view(-1).index_select(0, views["token_at"]).long(),
            positions=views["positions"],
            token_page=views["token_page"],
            token_row=views["token_row"],
            page_table=tables.pages[:, :num_pages].index_select(0, views["chunk_slots"]),
            query_start=views["query_start"],
            context_lens=views["context_lens"],
            sample_rows=views["sample_rows"],
            work=work,
        )
        return self._model.forward(batch, self._memory)

    def _sample_and_append(
        self,
        logits: torch.Tensor,
        views: Mapping[str, torch.Tensor],
        sampled_slots: slots.Int64,
        features: device_sampling.Features,
    ) -> device_sampling.Sampled:
        tables = self._tables
        if not self._group.shard.is_first:
            sampled = _nothing(len(sampled_slots), logits.device)
        elif self._samples_by_kernel:
            known = (tables.tokens, tables.lengths, tables.num_prompt_tokens)
            sampled = device_sampling.sample(
                logits, views["sampled_slots"], tables.params, *known, features, behind=views["behind"]
            )
        else:
            sampled = self._sample_plainly(logits, views["behind"], sampled_slots, features)
        # In the stream, as a kernel would: no host waits for another rank's tokens.
        self._group.broadcast(sampled.token_ids)
        self._append(views, sampled.token_ids)
        return sampled

    def _append(self, views: Mapping[str, torch.Tensor], token_ids: torch.Tensor) -> None:
        self._tables.tokens.view(-1).index_copy_(0, views["sampled_at"], token_ids.to(torch.int32))

    def _sample_plainly(
        self,
        logits: torch.Tensor,
        behind: torch.Tensor,
        sampled_slots: slots.Int64,
        features: device_sampling.Features,
    ) -> device_sampling.Sampled:
        """On the host, which waits; where no kernel runs."""
        tables = self._tables
        at = torch.from_numpy(sampled_slots).to(logits.device)
        wanted = [device_slots.wanted_of(tables.host.params_of(slot)) for slot in sampled_slots.tolist()]
        tokens, lengths, num_prompt_tokens = (
            table.index_select(0, at).cpu() for table in (tables.tokens, tables.lengths, tables.num_prompt_tokens)
        )
        rows = torch.arange(len(wanted))
        found = reference_sampling.sample(
            logits.cpu(), rows, wanted, tokens, lengths, num_prompt_tokens, features.num_top, behind.cpu()
        )
        return device_sampling.Sampled(
            found.token_ids.to(logits.device), found.broken, found.logprobs, found.top_ids, found.top_logprobs
        )

    def _send(self, work: work_list.WorkList) -> attention.WorkTensors:
        found = attention.WorkTensors.with_room(
            work.capacity,
            work.shape,
            self._accelerator.device,
            work.num_chunks,
            work.num_tokens,
            work.max_context,
            max_programs=None,
        )
        self._fill(found, work)
        return found

    def _fill(self, room: attention.WorkTensors, work: work_list.WorkList) -> None:
        with self._tables.staging.lend(room.buffer.numel() * 4) as staging:
            room.copy_(work, staging.view(torch.int32))


def _nothing(num_rows: int, device: torch.device) -> device_sampling.Sampled:
    """Where the first rank's tokens go on another rank, which has no whole logits and says nothing of them."""
    token_ids = torch.empty(num_rows, dtype=torch.int64, device=device)
    return device_sampling.Sampled(token_ids, torch.zeros(num_rows, dtype=torch.int32, device=device))


def step_arrays(tables: device_slots.DeviceTables, rows: slots.Rows) -> dict[str, device_buffers.Array]:
    """What the host tells the device of a step; by token, by chunk, and by row that is sampled. What lies before such a
    row beyond the tokens that its slot is known to have are guesses: `behind`."""
    host, counts = tables.host, rows.counts
    query_start = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=query_start[1:])
    num_tokens = int(query_start[-1])
    if num_tokens == len(counts):  # one token each: the steady state of decoding
        slot_of, positions = rows.slots, rows.starts
    else:
        slot_of = np.repeat(rows.slots, counts)
        positions = np.arange(num_tokens, dtype=np.int64) + np.repeat(rows.starts - query_start[:-1], counts)
    block, width = positions // host.block_size, host.tokens.shape[1]
    contexts = rows.starts + counts
    sampled, ends = rows.slots[rows.samples], contexts[rows.samples]
    lengths = host.lengths[sampled]
    return {
        "token_at": slot_of * width + positions,
        "positions": positions,
        "chunk_slots": rows.slots,
        "sample_rows": query_start[1:][rows.samples].astype(np.int64) - 1,
        "sampled_slots": sampled,
        "sampled_lengths": lengths,
        "sampled_at": sampled * width + ends,
        "behind": ends - lengths,
        "token_page": host.pages[slot_of, block],
        "token_row": (positions - block * host.block_size).astype(np.int32),
        "query_start": query_start,
        "context_lens": contexts.astype(np.int32),
    }


_OF_SAMPLES = ("sampled_slots", "sampled_lengths", "sampled_at", "behind")


def _shapes(size: int) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """As `step_arrays`, of `size` rows of one token that all sample."""
    wide = ("token_at", "positions", "chunk_slots", "sample_rows", *_OF_SAMPLES)
    found: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = dict.fromkeys(wide, (_INT64, (size,)))
    found |= dict.fromkeys(("token_page", "token_row", "context_lens"), (_INT32, (size,)))
    return found | {"query_start": (_INT32, (size + 1,))}


def padded(
    arrays: Mapping[str, device_buffers.Array],
    packed: device_buffers.Packed,
    tables: device_slots.DeviceTables,
    at: slots.Int64 | None = None,
) -> dict[str, device_buffers.Array]:
    """`arrays` of some rows of one token, followed by rows of the spare slot, which write to no page and read none.
    `at`: the rows that sample; the others do so for the spare slot. None: all."""
    size = packed.places["token_at"].shape[0]
    count = len(arrays["token_at"]) if arrays else 0
    spare_at = tables.spare * tables.host.tokens.shape[1]
    fill = {
        "token_at": spare_at,
        "chunk_slots": tables.spare,
        "sampled_slots": tables.spare,
        "sampled_at": spare_at,
        "token_page": -1,
        "query_start": count,
    }
    found: dict[str, device_buffers.Array] = {}
    for name, (dtype, shape) in _shapes(size).items():
        found[name] = np.full(shape, fill.get(name, 0), dtype=dtype)
        if name in arrays and name in _OF_SAMPLES and at is not None:
            found[name][at] = arrays[name]
        elif name in arrays:
            found[name][: len(arrays[name])] = arrays[name]
    found["sample_rows"][:] = np.arange(size)
    return found
