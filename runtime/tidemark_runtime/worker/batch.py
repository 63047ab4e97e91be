"""From a step plan and the slot tables to the tensors of one forward pass; indexing only, no loop over sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tidemark_runtime.model import batch
from tidemark_runtime.worker import slots


def build(tables: slots.SlotTables, rows: slots.Rows) -> batch.ForwardBatch:
    """What `rows` name, one after the other; at least one row."""
    counts = rows.counts
    num_chunks = counts.shape[0]
    query_start = np.zeros(num_chunks + 1, dtype=np.int32)
    np.cumsum(counts, out=query_start[1:])
    num_tokens = int(query_start[-1])
    if num_tokens == num_chunks:  # one token each: the steady state of decoding
        slot_of, positions = rows.slots, rows.starts
    else:
        slot_of = np.repeat(rows.slots, counts)
        positions = np.arange(num_tokens, dtype=np.int64) + np.repeat(rows.starts - query_start[:-1], counts)
    block = positions // tables.block_size
    contexts = rows.starts + counts
    num_pages = -(-int(contexts.max()) // tables.block_size)
    return batch.ForwardBatch(
        token_ids=_tensor(tables.tokens[slot_of, positions].astype(np.int64)),
        positions=_tensor(positions),
        token_page=_tensor(tables.pages[slot_of, block]),
        token_row=_tensor((positions - block * tables.block_size).astype(np.int32)),
        page_table=_tensor(tables.pages[rows.slots, :num_pages]),
        query_start=_tensor(query_start),
        context_lens=_tensor(contexts.astype(np.int32)),
        sample_rows=_tensor(_sample_rows(rows, query_start)),
    )


def _sample_rows(rows: slots.Rows, query_start: npt.NDArray[np.int32]) -> slots.Int64:
    """The last row of each that samples; of a verification all of them."""
    last = query_start[1:][rows.samples].astype(np.int64) - 1
    if rows.guesses is None:
        return last
    before = np.maximum(rows.guesses[rows.samples], 0)
    counts = before + 1
    ends = np.cumsum(counts)
    first: slots.Int64 = np.repeat(last - before - (ends - counts), counts)
    first += np.arange(int(ends[-1]), dtype=np.int64)
    return first


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
