"""Plans in, tokens out: whatever the chunks, slots, preemptions and companions, a sequence gets what it gets alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface, sampler, slab, slots, torch_worker

VOCAB = 40
MAX_CONTEXT = 24
NUM_SLOTS = 4


def toy_logits(tokens: list[int]) -> torch.Tensor:
    """float32 [VOCAB] that depend on every token and its place."""
    seed = 0
    for place, token in enumerate(tokens):
        seed = (seed * 1_000_003 + token * 31 + place) % (2**31)
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


class ToyModel:
    """Keeps token ids where K would be, and reads the whole context back through the page table."""

    @property
    def spec(self) -> model_spec.ModelSpec:
        raise NotImplementedError

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        pages = memory.slab.view(torch.int32)[:, : memory.block_size]
        pages[batch.token_page.long(), batch.token_row.long()] = batch.token_ids.to(torch.int32)
        rows = []
        for row in batch.sample_rows.tolist():
            chunk = int((batch.query_start <= row).sum()) - 1
            known = pages[batch.page_table[chunk].long()].flatten()[: int(batch.context_lens[chunk])]
            rows.append(toy_logits(known.tolist()))
        return torch.stack(rows) if rows else torch.empty(0, VOCAB)


def make_worker(num_pages: int, block_size: int) -> torch_worker.TorchWorker:
    layout = page_layout.PageLayout(page_layout.KVShape(1, 1, 1), block_size, "float32")
    facts = interface.WorkerFacts(
        kind="torch",
        device="cpu",
        dtype="float32",
        layout=layout,
        num_pages=num_pages,
        max_context_tokens=MAX_CONTEXT,
        memory_bytes={},
    )
    memory = batches.KVMemory.of(slab.allocate(num_pages, layout.page_bytes), layout)
    return torch_worker.TorchWorker(ToyModel(), memory, facts, NUM_SLOTS)


def alone(prompt: list[int], params: sampling.SamplingParams) -> list[int]:
    """What the sequence generates when everything is computed again for each token."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + params.max_tokens:
        tables = slots.SlotTables(1, MAX_CONTEXT, MAX_CONTEXT)
        join = step_plan.Join(0, tuple(tokens), len(prompt), params)
        tables.apply(step_plan.StepPlan(0, (join,), (step_plan.Chunk(0, 0, len(tokens), (0,), True),)))
        token_ids, _ = sampler.sample(toy_logits(tokens).unsqueeze(0), tables, np.array([0]))
        tokens.append(int(token_ids[0]))
    return tokens[len(prompt) :]


@dataclass
class Running:
    """A sequence as the driver below sees it."""

    prompt: list[int]
    params: sampling.SamplingParams
    tokens: list[int] = field(default_factory=list)
    slot: int | None = None
    num_computed: int = 0
    pages: list[int] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return len(self.tokens) == len(self.prompt) + self.params.max_tokens


class Driver:
    """Makes random but valid plans, and checks nothing itself."""

    def __init__(self, chance: random.Random, sequences: list[Running], num_pages: int, block_size: int) -> None:
        self._chance = chance
        self._sequences = sequences
        self._block_size = block_size
        self._free_pages = list(range(num_pages))
        self._free_slots = list(range(NUM_SLOTS))
        self._step = 0

    def plan(self) -> tuple[step_plan.StepPlan | None, list[Running]]:
        """The next plan and the sequences that sample in it; None where chance picked nothing."""
        joins: list[step_plan.Join] = []
        chunks: list[step_plan.Chunk] = []
        sampling_now: list[Running] = []
        for sequence in self._chance.sample(self._sequences, len(self._sequences)):
            if sequence.done or self._chance.random() < 0.3:
                continue
            if sequence.slot is not None and self._chance.random() < 0.1:
                self.leave(sequence)
                continue
            chunk = self._chunk(sequence, joins)
            if chunk is not None:
                chunks.append(chunk)
                sampling_now += [sequence] if chunk.samples else []
        self._step += 1
        return (step_plan.StepPlan(self._step, tuple(joins), tuple(chunks)) if chunks else None), sampling_now

    def leave(self, sequence: Running) -> None:
        """Finished or preempted: slot and pages are free for others at once."""
        if sequence.slot is not None:
            self._free_slots.append(sequence.slot)
        self._free_pages += sequence.pages
        self._chance.shuffle(self._free_pages)
        sequence.slot, sequence.num_computed, sequence.pages = None, 0, []

    def _chunk(self, sequence: Running, joins: list[step_plan.Join]) -> step_plan.Chunk | None:
        count = self._chance.randint(1, len(sequence.tokens) - sequence.num_computed)
        end = sequence.num_computed + count
        num_new = -(-end // self._block_size) - len(sequence.pages)
        if num_new > len(self._free_pages) or (sequence.slot is None and not self._free_slots):
            return None
        if sequence.slot is None:
            sequence.slot = self._free_slots.pop()
            tokens, num_prompt = tuple(sequence.tokens), len(sequence.prompt)
            joins.append(step_plan.Join(sequence.slot, tokens, num_prompt, sequence.params))
        new_pages = tuple(self._free_pages.pop() for _ in range(num_new))
        sequence.pages += new_pages
        chunk = step_plan.Chunk(sequence.slot, sequence.num_computed, count, new_pages, end == len(sequence.tokens))
        sequence.num_computed = end
        return chunk


CHOICES = (
    sampling.SamplingParams(max_tokens=5, temperature=0.0),
    sampling.SamplingParams(max_tokens=4, temperature=1.0, seed=7),
    sampling.SamplingParams(max_tokens=6, temperature=0.8, seed=8, top_p=0.9, frequency_penalty=0.5),
    sampling.SamplingParams(max_tokens=3, temperature=0.0, repetition_penalty=1.4, num_logprobs=2),
)


@given(seed=st.integers(0, 10**9), block_size=st.integers(1, 6), spare_pages=st.integers(0, 8))
@settings(deadline=None, max_examples=60)
def test_random_plans_give_what_each_sequence_gets_alone(seed: int, block_size: int, spare_pages: int) -> None:
    chance = random.Random(seed)
    sequences = [
        Running([chance.randrange(VOCAB) for _ in range(chance.randint(1, 12))], chance.choice(CHOICES))
        for _ in range(6)
    ]
    for sequence in sequences:
        sequence.tokens = list(sequence.prompt)
    num_pages = -(-18 // block_size) + spare_pages
    worker = make_worker(num_pages, block_size)
    driver = Driver(chance, sequences, num_pages, block_size)
    while not all(sequence.done for sequence in sequences):
        plan, sampling_now = driver.plan()
        if plan is None:
            stuck = [sequence for sequence in sequences if sequence.slot is not None]
            if stuck and chance.random() < 0.5:
                driver.leave(chance.choice(stuck))
            continue
        result = worker.execute(plan)
        assert result.step == plan.step
        assert len(result.token_ids) == len(result.logprobs) == len(sampling_now)
        for sequence, token, logprobs in zip(sampling_now, result.token_ids, result.logprobs, strict=True):
            assert (logprobs is not None) == (sequence.params.num_logprobs is not None)
            sequence.tokens.append(token)
            if sequence.done:
                driver.leave(sequence)
    for sequence in sequences:
        assert sequence.tokens[len(sequence.prompt) :] == alone(sequence.prompt, sequence.params)


def test_the_next_plan_needs_no_value_from_the_one_before() -> None:
    """One step ahead: both plans are made before the first has run."""
    params = sampling.SamplingParams(max_tokens=3, temperature=1.0, seed=5)
    worker = make_worker(8, 4)
    join = step_plan.Join(1, (3, 1, 4), 3, params)
    plans = [
        step_plan.StepPlan(1, (join,), (step_plan.Chunk(1, 0, 3, (6,), True),)),
        step_plan.StepPlan(2, (), (step_plan.Chunk(1, 3, 1, (), True),)),
        step_plan.StepPlan(3, (), (step_plan.Chunk(1, 4, 1, (2,), True),)),
    ]
    assert [worker.execute(plan).token_ids[0] for plan in plans] == alone([3, 1, 4], params)


@pytest.mark.parametrize(("num_pages", "block_size"), [(1, 1), (1, 2), (3, 4), (20, 16)])
def test_warming_up_fits_any_slab_and_leaves_no_trace(num_pages: int, block_size: int) -> None:
    worker = make_worker(num_pages, block_size)
    worker.warm_up()
    params = sampling.SamplingParams(max_tokens=1, temperature=0.0)
    plan = step_plan.StepPlan(1, (step_plan.Join(0, (9,), 1, params),), (step_plan.Chunk(0, 0, 1, (0,), True),))
    assert list(worker.execute(plan).token_ids) == alone([9], params)


def test_a_closed_worker_refuses() -> None:
    worker = make_worker(1, 4)
    worker.close()
    plan = step_plan.StepPlan(1, (), (step_plan.Chunk(0, 0, 1, (0,), False),))
    with pytest.raises(RuntimeError, match="closed"):
        worker.execute(plan)
