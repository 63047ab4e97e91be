"""A step of paged attention over a slab in which nothing but the keys and values that it needs is a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import kernel_case
import torch

from tidemark_kernels import reference
from tidemark_kernels import segments as segments_module
from tidemark_kernels.device import attention, layout, work_list

CPU = torch.device("cpu")
NO_PAGE = 10**6
"""In page tables where no page may be looked up."""
TOLERANCES = {torch.float32: 1e-5, torch.float16: 0.01, torch.bfloat16: 0.04}
"""By the dtype of q: one rounding of the largest result, beside which those of weights are small."""

Dtypes = torch.dtype | Sequence[torch.dtype]


@dataclass(frozen=True, kw_only=True)
class Problem:
    counts: tuple[int, ...] = (1,)
    contexts: tuple[int, ...] = (37,)
    num_kv_heads: int = 2
    group: int = 2
    head_dim: int = 16
    block_size: int = 16
    k: Dtypes = torch.float32
    v: Dtypes = torch.float32
    q: torch.dtype = torch.float32
    fixed: bool = False
    window: int | None = None
    softcap: float | None = None
    kv_bytes: float = 1e6
    """Large: parts are as short as they may be."""
    broken: tuple[tuple[str, int, int, int], ...] = ()
    """("k" or "v", chunk, KV head, key) of rows that hold a NaN."""
    v_spread: float = 0.0
    """Values of a row are multiplied by 10 to a random power up to so much."""
    q_factor: float = 1.0
    seed: int = 0

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group

    @property
    def shape(self) -> work_list.Shape:
        return work_list.Shape(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            kv_bytes=self.kv_bytes,
            window=self.window,
        )

    @property
    def work(self) -> work_list.WorkList:
        return work_list.plan(self.counts, self.contexts, self.shape)

    def built(self) -> Built:
        return Built(self)


@dataclass
class Built:
    problem: Problem
    segments: segments_module.LayerSegments = field(init=False)
    slab: torch.Tensor = field(init=False)
    page_table: torch.Tensor = field(init=False)
    q: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        asked = self.problem
        generator = torch.Generator().manual_seed(asked.seed)
        self.segments, page_bytes = _segments(asked)
        pages = [-(-context // asked.block_size) for context in asked.contexts]
        shuffled = torch.randperm(sum(pages) + 3, generator=generator).int()
        self.slab = torch.full((len(shuffled), page_bytes), 0xFF, dtype=torch.uint8)
        self.page_table = torch.full((len(pages), max(pages, default=0) + 1), NO_PAGE, dtype=torch.int32)
        for chunk, last in enumerate(accumulate(pages)):
            self.page_table[chunk, : pages[chunk]] = shuffled[last - pages[chunk] : last]
            self._fill(chunk, generator)
            if asked.window is not None:
                first = asked.contexts[chunk] - asked.counts[chunk] - asked.window + 1
                self.page_table[chunk, : max(0, first) // asked.block_size] = NO_PAGE
        self.q = torch.randn(sum(asked.counts), asked.num_heads, asked.head_dim, generator=generator)
        self.q = (self.q * asked.q_factor).to(asked.q)

    def _fill(self, chunk: int, generator: torch.Generator) -> None:
        asked = self.problem
        token = torch.arange(asked.contexts[chunk])
        page, row = self.page_table[chunk, token // asked.block_size].long(), token % asked.block_size
        for head in range(asked.num_kv_heads):
            for kind in ("k", "v"):
                rows, scales = reference.head_views(
                    self.slab, self.segments, head, kind, asked.block_size, asked.head_dim
                )
                x = torch.randn(len(token), asked.head_dim, generator=generator)
                if kind == "v":
                    x *= 10.0 ** (asked.v_spread * torch.rand(len(token), 1, generator=generator))
                for what, of_chunk, of_head, key in asked.broken:
                    if (what, of_chunk, of_head) == (kind, chunk, head):
                        x[key, 3] = torch.nan
                if scales is None:
                    rows[page, row] = x.to(rows.dtype)
                elif asked.fixed:
                    rows[page, row] = reference.quantized_by(FIXED[kind], x, rows.dtype)
                else:
                    rows[page, row], scales[page, row] = reference.quantized(x, rows.dtype)

    def run(
        self, work: attention.WorkTensors | None = None, out: torch.Tensor | None = None, **changes: Any
    ) -> torch.Tensor:
        asked = self.problem
        work = attention.WorkTensors.of(asked.work, CPU) if work is None else work
        workspace = torch.full((work.workspace_size,), torch.nan)
        arguments: dict[str, Any] = {
            "q": self.q,
            "slab": self.slab,
            "segments": layout.DeviceSegments.of(self.segments, CPU),
            "page_table": self.page_table,
            "work": work,
            "block_size": asked.block_size,
            "scale": self.scale,
            "window": asked.window,
            "softcap": asked.softcap,
            "out": torch.full_like(self.q, torch.nan) if out is None else out,
            "workspace": workspace,
        }
        return attention.paged_attention(**arguments | changes)

    @property
    def scale(self) -> float:
        return float(self.problem.head_dim**-0.5) / self.problem.q_factor

    def expected(self) -> torch.Tensor:
        asked = self.problem
        return reference.paged_attention(
            self.q.double(),
            self.slab,
            self.segments,
            self.page_table,
            torch.tensor([0, *accumulate(asked.counts)]),
            torch.tensor(asked.contexts, dtype=torch.int64),
            asked.block_size,
            self.scale,
            asked.window,
            asked.softcap,
            compute=torch.float64,
        )

    def compared(self) -> list[kernel_case.Compared]:
        return [kernel_case.Compared(self.run(), self.expected(), TOLERANCES[self.problem.q])]


FIXED = {"k": 0.02, "v": 0.03}


def _segments(asked: Problem) -> tuple[segments_module.LayerSegments, int]:
    """Segments at multiples of 64 bytes, scales behind them, and the bytes of a page."""
    dtypes = {
        kind: [found] * asked.num_kv_heads if isinstance(found, torch.dtype) else list(found)
        for kind, found in (("k", asked.k), ("v", asked.v))
    }
    offsets: dict[str, list[int]] = {"k": [], "v": []}
    scales: dict[str, list[int]] = {"k": [], "v": []}
    end = 64
    for head in range(asked.num_kv_heads):
        for kind in ("k", "v"):
            has_scales = dtypes[kind][head].itemsize == 1 and not asked.fixed
            offsets[kind].append(end)
            end += asked.block_size * asked.head_dim * dtypes[kind][head].itemsize
            scales[kind].append(end if has_scales else segments_module.NO_SCALES)
            end = -(-(end + 4 * asked.block_size * has_scales) // 64) * 64
    fixed = {
        kind: [FIXED[kind] if asked.fixed and dtype.itemsize == 1 else 0.0 for dtype in dtypes[kind]] for kind in dtypes
    }
    found = segments_module.LayerSegments.from_offsets(
        *(offsets["k"], offsets["v"], dtypes["k"], dtypes["v"]),
        *(scales["k"], scales["v"], fixed["k"], fixed["v"]),
    )
    return found, end
