"""Every byte of a page goes where its page goes, scales included, and a token writes its own rows and nothing else.

Slab and swap space hold a pattern in which no two pages, and hardly two neighbouring bytes, are the same: whatever is
moved short, too far or to another place is seen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import made_models
import made_steps
import numpy as np
import numpy.typing as npt
import pytest
import torch

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface, slab, torch_worker

HEADS, LAYERS, BLOCK = 2, 2, 4
NUM_PAGES, NUM_HOST_PAGES, MAX_CONTEXT = 12, 7, 32
GREEDY = sampling.SamplingParams(max_tokens=4, temperature=0.0, ignore_stop_tokens=True)

Precision = Mapping[tuple[int, int, page_layout.Kind], str]
Bytes = npt.NDArray[np.uint8]

KEPT: Precision = {(0, 0, "k"): "bfloat16", (1, 1, "v"): "float32"}
MIXED: Precision = {
    (0, 0, "k"): "float16",
    (0, 0, "v"): "fp8_e5m2",
    (0, 1, "k"): "int8",
    (1, 0, "v"): "fp8_e4m3",
    (1, 1, "k"): "bfloat16",
}
LAYOUTS: list[tuple[str, Precision]] = [
    *((name, {}) for name in sorted(page_layout.KV_DTYPES)),
    ("int8", KEPT),
    ("fp8_e4m3", KEPT),
    ("fp8_e5m2", MIXED),
    ("bfloat16", MIXED),
]
HEAD_DIMS = [64, 72]
all_layouts = pytest.mark.parametrize(("dtype", "precision"), LAYOUTS)


@pytest.fixture(scope="module", params=HEAD_DIMS)
def model(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> batches.Model:
    sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": HEADS}
    config = {**made_models.LLAMA_CONFIG, **sizes, "head_dim": request.param}
    folder: Path = tmp_path_factory.mktemp("llama")
    return made_steps.load(made_models.write_folder(folder, config, made_models.llama_weights(config)))


class Bench:
    """A worker over a slab that the test looks into."""

    def __init__(self, model: batches.Model, dtype: str, precision: Precision) -> None:
        self.layout = page_layout.PageLayout(model.spec.kv_shape, BLOCK, dtype, precision)
        facts = interface.WorkerFacts(
            kind="torch",
            device="cpu",
            dtype="float32",
            layout=self.layout,
            num_pages=NUM_PAGES,
            num_host_pages=NUM_HOST_PAGES,
            max_context_tokens=MAX_CONTEXT,
            memory_bytes={},
        )
        self.slab = slab.allocate(NUM_PAGES, self.layout.page_bytes)
        self.slab[:] = torch.from_numpy(pattern(NUM_PAGES, self.layout.page_bytes))
        self.worker = torch_worker.TorchWorker(model, batches.KVMemory.of(self.slab, self.layout), facts, 4)
        self._step = 0

    @property
    def pages(self) -> Bytes:
        """What the slab holds now."""
        return self.slab.numpy().copy()

    def copy(self, out: list[step_plan.Copy], back: list[step_plan.Copy]) -> None:
        self._step += 1
        plan = step_plan.StepPlan(step=self._step, swaps_out=tuple(out), swaps_in=tuple(back))
        assert self.worker.execute(plan).token_ids == ()

    def compute(self, slot: int, tokens: list[int], pages: list[int], start: int = 0, end: int | None = None) -> None:
        """Tokens from `start` to `end`, the last one where left out; those before are in `pages` already."""
        self._step += 1
        join = step_plan.Join(slot, tuple(tokens), len(tokens), GREEDY, tuple(pages))
        count = (end or len(tokens)) - start
        chunk = step_plan.Chunk(slot, start, count, samples=start + count == len(tokens))
        self.worker.execute(step_plan.StepPlan(step=self._step, joins=(join,), chunks=(chunk,)))


def pattern(num_pages: int, page_bytes: int) -> Bytes:
    """Different in every page. Bytes under 120 only: as floats of any size they are small numbers, never NaN."""
    return np.random.default_rng(num_pages).integers(0, 60, (num_pages, page_bytes), dtype=np.uint8)


def written_by(layout: page_layout.PageLayout, rows: list[int]) -> npt.NDArray[np.bool_]:
    """[page_bytes]: what tokens in `rows` of a page may change."""
    mask = np.zeros(layout.page_bytes, dtype=np.bool_)
    for segment in layout.segments:
        end = segment.scales_offset_bytes or segment.offset_bytes + segment.size_bytes
        row_bytes = (end - segment.offset_bytes) // BLOCK
        for row in rows:
            mask[segment.offset_bytes + row * row_bytes :][:row_bytes] = True
            if segment.scales_offset_bytes is not None:
                scale_bytes = (segment.offset_bytes + segment.size_bytes - segment.scales_offset_bytes) // BLOCK
                mask[segment.scales_offset_bytes + row * scale_bytes :][:scale_bytes] = True
    return mask


@all_layouts
def test_swaps_move_every_byte_of_a_page_and_no_other(model: batches.Model, dtype: str, precision: Precision) -> None:
    bench = Bench(model, dtype, precision)
    expected, host = bench.pages, np.zeros((NUM_HOST_PAGES, bench.layout.page_bytes), dtype=np.uint8)
    assert len({page.tobytes() for page in expected}) == NUM_PAGES
    chance = random.Random(3)
    filled: set[int] = set()
    for _ in range(30):
        count = chance.randint(0, NUM_HOST_PAGES)
        out = list(map(step_plan.Copy, chance.sample(range(NUM_PAGES), count), chance.sample(range(7), count)))
        for copy in out:
            host[copy.host_page] = expected[copy.page]
        filled |= {copy.host_page for copy in out}
        sources = chance.sample(sorted(filled), chance.randint(0, len(filled)))
        back = list(map(step_plan.Copy, chance.sample(range(NUM_PAGES), len(sources)), sources))
        for copy in back:
            expected[copy.page] = host[copy.host_page]
        bench.copy(out, back)
        assert np.array_equal(bench.pages, expected)


@all_layouts
def test_a_round_trip_brings_a_computed_page_back_to_another_place_byte_for_byte(
    model: batches.Model, dtype: str, precision: Precision
) -> None:
    bench = Bench(model, dtype, precision)
    before = bench.pages
    bench.compute(0, [5, 6, 7, 8, 9], [3, 8])
    computed = bench.pages
    assert np.array_equal(np.delete(computed, [3, 8], axis=0), np.delete(before, [3, 8], axis=0))
    bench.copy([step_plan.Copy(3, 6), step_plan.Copy(8, 0)], [])
    bench.compute(0, [1, 2, 3, 4, 5, 6, 7, 8], [3, 8])  # somebody else is there meanwhile
    assert not np.array_equal(bench.pages[3], computed[3])
    bench.copy([], [step_plan.Copy(11, 6), step_plan.Copy(0, 0)])
    assert np.array_equal(bench.pages[11], computed[3])
    assert np.array_equal(bench.pages[0], computed[8])


@all_layouts
def test_a_token_writes_its_row_and_scale_in_each_segment_and_nothing_else(
    model: batches.Model, dtype: str, precision: Precision
) -> None:
    bench = Bench(model, dtype, precision)
    before = bench.pages
    bench.compute(0, [11, 12, 13, 14, 15, 16], [2, 9])
    after = bench.pages
    expected = np.zeros(after.shape, dtype=np.bool_)
    expected[2], expected[9] = written_by(bench.layout, [0, 1, 2, 3]), written_by(bench.layout, [0, 1])
    assert not (before != after)[~expected].any()
    # Nearly all of what may change does: a byte may happen to be what it was.
    assert (before != after)[expected].mean() > 0.9
    for page, rows in ((2, [0, 1, 2, 3]), (9, [0, 1])):
        for row in rows:
            mask = written_by(bench.layout, [row])
            assert (before[page] != after[page])[mask].mean() > 0.9


@all_layouts
def test_a_prefix_hit_reads_shared_pages_and_leaves_every_byte_of_them(
    model: batches.Model, dtype: str, precision: Precision
) -> None:
    """What follows a hit is written as if all had been computed by the same sequence: scales were shared, too."""
    bench = Bench(model, dtype, precision)
    shared, own = [21, 22, 23, 24, 25, 26, 27, 28], [31, 32, 33]
    # All of it, in two chunks: torch's products round differently for other numbers of rows, ours would not.
    bench.compute(0, [*shared, *own], [4, 1, 6], end=len(shared))
    bench.compute(0, [*shared, *own], [4, 1, 6], start=len(shared))
    whole = bench.pages
    bench.compute(1, [*shared, *own], [4, 1, 10], start=len(shared))  # hits two pages
    after = bench.pages
    assert np.array_equal(np.delete(after, 10, axis=0), np.delete(whole, 10, axis=0))
    rows = written_by(bench.layout, [0, 1, 2])
    assert np.array_equal(after[10][rows], whole[6][rows])
