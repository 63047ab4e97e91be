"""What a decode step costs with quantized pages, beside pages of 16 bits: the section `speed` of kv_memory.py.

Attention alone, and the whole step of the real model, over a slab that is filled with made K and V: reading them does
not take longer for what they mean. One thread, and its CPU time: whoever else computes here is not counted. Dtypes take
turns within a round, each round gives a ratio, and the median of the ratios is what is shown.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import kv_accuracy
import torch
from kv_table import Row, Table, at_most

from tidemark_kernels import ops
from tidemark_runtime.evaluation import configurations, subject
from tidemark_runtime.model import batch as batches
from tidemark_runtime.planning import page_layout

CONTEXTS = (512, 2048, 4096, 8192)
FROM_TOKENS = 2048
"""From this context on, int8 may not cost more than 16 bits."""
ROUNDS = 15
BASE = "bfloat16"
TORCH_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}


@dataclass(frozen=True, slots=True)
class Bench:
    """One configuration of K and V, with as many pages as the longest context takes."""

    memory: batches.KVMemory

    @classmethod
    def made(cls, shape: page_layout.KVShape, kept: configurations.Configuration) -> Bench:
        layout = kept.layout(shape)
        slab = torch.zeros(layout.pages_for(max(CONTEXTS)), layout.page_bytes, dtype=torch.uint8)
        for segment in layout.segments:
            _fill(slab, segment, layout)
        return cls(batches.KVMemory.of(slab, layout))

    def batch(self, context: int) -> batches.ForwardBatch:
        """One sequence's next token, the last of `context`."""
        block, last = self.memory.block_size, context - 1
        return batches.ForwardBatch(
            token_ids=torch.tensor([17]),
            positions=torch.tensor([last]),
            token_page=torch.tensor([last // block], dtype=torch.int32),
            token_row=torch.tensor([last % block], dtype=torch.int32),
            page_table=torch.arange(self.memory.layout.pages_for(context), dtype=torch.int32)[None],
            query_start=torch.tensor([0, 1], dtype=torch.int32),
            context_lens=torch.tensor([context], dtype=torch.int32),
            sample_rows=torch.tensor([0]),
        )


def _fill(slab: torch.Tensor, segment: page_layout.Segment, layout: page_layout.PageLayout) -> None:
    numbers = torch.randn(len(slab), layout.block_size * layout.shape.head_dim)
    dtype = TORCH_DTYPES[segment.dtype.name]
    elements = (numbers * 30).clamp(-127, 127).to(dtype) if segment.dtype.scaled else numbers.to(dtype)
    as_bytes = elements.view(torch.uint8)
    slab[:, segment.offset_bytes : segment.offset_bytes + as_bytes.shape[1]] = as_bytes
    if segment.scales_offset_bytes is not None:
        scales = torch.full((len(slab), layout.block_size), 1 / 30).view(torch.uint8)
        slab[:, segment.scales_offset_bytes : segment.scales_offset_bytes + scales.shape[1]] = scales


def attention(bench: Bench, num_heads: int, context: int) -> Callable[[], object]:
    """One decode token through the attention of all layers."""
    memory, batch = bench.memory, bench.batch(context)
    query = torch.randn(1, num_heads, memory.layout.shape.head_dim)

    def step() -> None:
        for segments in memory.segments:
            ops.paged_attention(
                query,
                memory.slab,
                segments,
                batch.page_table,
                batch.query_start,
                batch.context_lens,
                memory.block_size,
                0.125,
            )

    return step


def ratios(calls: Mapping[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Name -> (milliseconds, times `BASE`), medians."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            started = time.thread_time()
            call()
            if number:
                took[name].append(time.thread_time() - started)
    return {
        name: (
            1e3 * statistics.median(times),
            statistics.median(mine / base for mine, base in zip(times, took[BASE], strict=True)),
        )
        for name, times in took.items()
    }


def speed(tested: subject.Subject) -> tuple[bool, list[str]]:
    """Two tables, and whether int8 costs no more than 16 bits."""
    torch.set_num_threads(1)
    spec = tested.model.spec
    names = [BASE, "float16", "int8", "fp8_e4m3", "fp8_e5m2"]
    kept = [configurations.Configuration(name, name) for name in names]
    kept.append(configurations.chosen(["int8"], kv_accuracy.read_map(), tested.target("int8"))[1])
    benches = {one.name: Bench.made(spec.kv_shape, one) for one in kept}

    def whole(bench: Bench, context: int) -> Callable[[], object]:
        batch = bench.batch(context)
        return lambda: tested.model.forward(batch, bench.memory)

    with torch.inference_mode():
        parts = {
            f"Attention of all {spec.num_layers} layers, one sequence": _measure(
                benches, lambda bench, context: attention(bench, spec.num_heads, context)
            ),
            "The whole step, one sequence": _measure(benches, whole),
        }
    words = (
        f"One decode token of SmolLM2-135M over made K and V, one thread, its CPU time, median of {ROUNDS} rounds in "
        f"which the dtypes take turns. Cells are milliseconds and times {BASE}."
    )
    lines, met = [words], True
    for title, found in parts.items():
        table = Table(title, [f"{context:,} tokens" for context in CONTEXTS], [_row(one, found) for one in benches])
        lines += ["", *table.lines()]
        met = met and table.met
    return met, lines


Found = Mapping[int, Mapping[str, tuple[float, float]]]


def _measure(benches: Mapping[str, Bench], step: Callable[[Bench, int], Callable[[], object]]) -> Found:
    found = {}
    for context in CONTEXTS:
        print(f"\r\033[K{context} tokens", end="", file=sys.stderr, flush=True)
        found[context] = ratios({name: step(bench, context) for name, bench in benches.items()})
    return found


def _row(name: str, found: Found) -> Row:
    cells: Sequence[str] = [f"{found[context][name][0]:.2f}, {found[context][name][1]:.2f} ×" for context in CONTEXTS]
    if name != "int8":
        return Row(name, cells)
    worst = max(found[context][name][1] for context in CONTEXTS if context >= FROM_TOKENS)
    check = at_most(f"≤ {BASE} from {FROM_TOKENS:,} tokens on", worst, 1.0)
    return Row(name, cells, [check] if check is not None else [])
