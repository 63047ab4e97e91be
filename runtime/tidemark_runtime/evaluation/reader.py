"""Runs a loaded model over token sequences, with K and V in a slab of its own, divided as a layout says."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from tidemark_kernels import reference
from tidemark_runtime.model import batch as batches
from tidemark_runtime.planning import fixed_scales, page_layout

LOGIT_NUMBERS = 1 << 24
"""Logits computed at once, at most: 64 MiB in float32, and the comparison holds some copies."""
LARGEST_CHUNK_TOKENS = 512


@dataclass(slots=True)
class Spent:
    """Tokens that went through the model and the seconds it took."""

    tokens: int = 0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.tokens += tokens
        self.seconds += seconds


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next tokens of the sequence in lane `lane`, from position `start`."""

    lane: int
    start: int
    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Rows:
    """Logits of consecutive rows of a sequence."""

    start: int
    """The first row's position: its logits are for the token after it."""
    logits: torch.Tensor
    """float32 [rows, vocabulary]."""


@dataclass(slots=True)
class Reader:
    """One configuration of KV memory. Lanes are sequences that decode together; each begins anew at position 0."""

    model: batches.Model
    layout: page_layout.PageLayout
    max_tokens: int
    """The longest sequence in a lane."""
    num_lanes: int = 1
    scales: fixed_scales.Scales = field(default_factory=dict)
    """Where the layout has fixed ones."""
    prompt: Spent = field(default_factory=Spent)
    """Tokens read many at once."""
    decode: Spent = field(default_factory=Spent)
    """Tokens generated one a step."""
    _memory: batches.KVMemory = field(init=False)

    def __post_init__(self) -> None:
        num_pages = self.num_lanes * self._lane_pages
        slab = torch.zeros(num_pages, self.layout.page_bytes, dtype=torch.uint8)
        self._memory = batches.KVMemory.of(slab, self.layout, self.scales)

    @property
    def _lane_pages(self) -> int:
        return self.layout.pages_for(self.max_tokens)

    def read(self, token_ids: Sequence[int], wanted_from: int = 0, lane: int = 0) -> Iterator[Rows]:
        """The sequence in chunks; logits of all positions from `wanted_from` on. What the lane held is overwritten."""
        for start, end in chunks(len(token_ids), self.model.spec.vocab_size):
            first = min(end, max(start, wanted_from))
            logits = self.forward([Chunk(lane, start, token_ids[start:end])], range(first - start, end - start))
            if first < end:
                yield Rows(first, logits)

    def forward(self, parts: Sequence[Chunk], rows: Sequence[int]) -> torch.Tensor:
        """One step: logits float32 [len(rows), vocabulary] of `rows` among the tokens of all parts."""
        started = time.perf_counter()
        with torch.inference_mode():
            logits = self.model.forward(self._batch(parts, rows), self._memory).float()
        count = sum(len(part.token_ids) for part in parts)
        spent = self.decode if count == len(parts) else self.prompt
        spent.add(count, time.perf_counter() - started)
        return logits

    def _batch(self, parts: Sequence[Chunk], rows: Sequence[int]) -> batches.ForwardBatch:
        size, pages = self.layout.block_size, self._lane_pages
        lengths = [len(part.token_ids) for part in parts]
        positions = torch.cat([torch.arange(part.start, part.start + len(part.token_ids)) for part in parts])
        lanes = torch.tensor([part.lane for part in parts])
        first_page = torch.repeat_interleave(lanes * pages, torch.tensor(lengths))
        return batches.ForwardBatch(
            token_ids=torch.tensor([token for part in parts for token in part.token_ids], dtype=torch.int64),
            positions=positions,
            token_page=(first_page + positions // size).int(),
            token_row=(positions % size).int(),
            page_table=(lanes[:, None] * pages + torch.arange(pages)[None]).int(),
            query_start=torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32),
            context_lens=torch.tensor([part.start + len(part.token_ids) for part in parts], dtype=torch.int32),
            sample_rows=torch.tensor(list(rows), dtype=torch.int64),
        )

    def kept(self, layer: int, kind: page_layout.Kind, num_tokens: int, lane: int = 0) -> torch.Tensor:
        """K or V of the lane's first tokens as the pages hold them, float32 [heads, num_tokens, head_dim]."""
        size, shape = self.layout.block_size, self.layout.shape
        pages = torch.arange(self.layout.pages_for(num_tokens)) + lane * self._lane_pages
        slab, segments = self._memory.slab, self._memory.segments[layer]
        heads = [
            reference.numbers(
                *reference.head_views(slab, segments, head, kind, size, shape.head_dim), pages, torch.float32
            )
            for head in range(shape.num_kv_heads)
        ]
        return torch.stack([head.flatten(0, 1)[:num_tokens] for head in heads])

    def continue_greedily(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[list[int]]:
        """Each prompt in a lane of its own, then all together, token by token; ends are not looked for."""
        found: list[list[int]] = []
        for lane, prompt in enumerate(prompts):
            *_, last = self.read(prompt, wanted_from=len(prompt) - 1, lane=lane)
            found.append([int(last.logits[-1].argmax())])
        for step in range(num_tokens - 1):
            parts = [Chunk(lane, len(prompts[lane]) + step, tokens[-1:]) for lane, tokens in enumerate(found)]
            logits = self.forward(parts, range(len(parts)))
            for tokens, token in zip(found, logits.argmax(-1).tolist(), strict=True):
                tokens.append(int(token))
        return found


def chunks(num_tokens: int, vocab_size: int) -> Iterator[tuple[int, int]]:
    """[start, end) of the steps in which a sequence is read."""
    size = max(16, min(LARGEST_CHUNK_TOKENS, LOGIT_NUMBERS // vocab_size))
    for start in range(0, num_tokens, size):
        yield start, min(num_tokens, start + size)
