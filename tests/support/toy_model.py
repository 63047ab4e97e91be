"""A model without weights, whose next token depends on every token before it, read back from the pages."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tidemark_runtime.model import batch as batches
from tidemark_runtime.planning import page_layout

VOCAB = 40


def toy_logits(tokens: list[int]) -> torch.Tensor:
    """float32 [VOCAB] that depend on every token and its place."""
    seed = 0
    for place, token in enumerate(tokens):
        seed = (seed * 1_000_003 + token * 31 + place) % (2**31)
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


@dataclass(frozen=True)
class ToySpec:
    """What a device's worker asks of a model's."""

    num_layers: int = 1
    num_heads: int = 1
    num_kv_heads: int = 1
    head_dim: int = 1
    vocab_size: int = VOCAB

    def window(self, layer: int) -> int | None:
        return None


class ToyModel:
    """Keeps token ids where K would be, and reads the whole context back through the page table. Rows of no page, which
    fill up a recorded step, write nothing, and those of no context get any logits."""

    spec = ToySpec()

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        pages = memory.slab.view(torch.int32)[:, : memory.block_size]
        real = batch.token_page >= 0
        pages[batch.token_page[real].long(), batch.token_row[real].long()] = batch.token_ids[real].to(torch.int32)
        rows = []
        for row in batch.sample_rows.tolist():
            chunk = int((batch.query_start <= row).sum()) - 1
            if row >= int(batch.query_start[-1]):
                rows.append(torch.full((VOCAB,), torch.nan))
                continue
            known = pages[batch.page_table[chunk].long()].flatten()[: int(batch.context_lens[chunk])]
            rows.append(toy_logits(known.tolist()))
        return torch.stack(rows) if rows else torch.empty(0, VOCAB)


def memory(num_pages: int, block_size: int) -> batches.KVMemory:
    layout = page_layout.PageLayout(page_layout.KVShape(1, 1, 1), block_size, "float32")
    return batches.KVMemory.of(torch.zeros(num_pages, layout.page_bytes, dtype=torch.uint8), layout)
