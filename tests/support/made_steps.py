"""Load a made model and give it steps, without engine and worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tidemark_runtime.model import batch, checkpoint, linear, loading, sources
from tidemark_runtime.planning import page_layout

BLOCK_SIZE = 4


def plain_factory() -> linear.LinearFactory:
    return linear.LinearFactory(linear.LinearPolicy(torch.float32))


def load(path: Path, factory: linear.LinearFactory | None = None) -> batch.Model:
    opened = checkpoint.open_checkpoint(sources.resolve(str(path), path))
    return loading.load(opened, factory or plain_factory(), lambda _what, _share: None)


@dataclass(frozen=True)
class Chunk:
    """Tokens `start` and on of a sequence whose pages are `pages`."""

    pages: Sequence[int]
    token_ids: Sequence[int]
    start: int = 0


def new_memory(model: batch.Model, num_pages: int, block_size: int = BLOCK_SIZE) -> batch.KVMemory:
    layout = page_layout.PageLayout(model.spec.kv_shape, block_size, "float32")
    return batch.KVMemory.of(torch.zeros(num_pages, layout.page_bytes, dtype=torch.uint8), layout)


def batch_of(chunks: Sequence[Chunk], block_size: int = BLOCK_SIZE) -> batch.ForwardBatch:
    """All rows are sampled."""
    spots = [(chunk, chunk.start + index) for chunk in chunks for index in range(len(chunk.token_ids))]
    most_pages = max(len(chunk.pages) for chunk in chunks)
    counts = [len(chunk.token_ids) for chunk in chunks]
    return batch.ForwardBatch(
        token_ids=torch.tensor([token for chunk in chunks for token in chunk.token_ids]),
        positions=torch.tensor([position for _, position in spots]),
        token_page=torch.tensor([chunk.pages[at // block_size] for chunk, at in spots], dtype=torch.int32),
        token_row=torch.tensor([at % block_size for _, at in spots], dtype=torch.int32),
        page_table=torch.tensor(
            [[*chunk.pages, *[0] * (most_pages - len(chunk.pages))] for chunk in chunks], dtype=torch.int32
        ),
        query_start=torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32),
        context_lens=torch.tensor([chunk.start + len(chunk.token_ids) for chunk in chunks], dtype=torch.int32),
        sample_rows=torch.arange(len(spots)),
    )


def sampling(whole: batch.ForwardBatch, rows: Sequence[int]) -> batch.ForwardBatch:
    """`whole` with only `rows` sampled."""
    return dataclasses.replace(whole, sample_rows=torch.tensor(rows, dtype=torch.int64))
