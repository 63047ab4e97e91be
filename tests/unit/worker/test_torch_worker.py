"""Plans in, tokens out: whatever the chunks, slots, preemptions and companions, a sequence gets what it gets alone."""

from __future__ import annotations

import dataclasses
import random
import types

import numpy as np
import pytest
import random_plans
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import draft_model, draft_pages, interface, sampler, slab, slots, torch_worker

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

    spec: model_spec.ModelSpec = types.SimpleNamespace(vocab_size=VOCAB)  # type: ignore[assignment]

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        pages = memory.slab.view(torch.int32)[:, : memory.block_size]
        pages[batch.token_page.long(), batch.token_row.long()] = batch.token_ids.to(torch.int32)
        rows = []
        for row in batch.sample_rows.tolist():
            chunk = int((batch.query_start <= row).sum()) - 1
            known = pages[batch.page_table[chunk].long()].flatten()[: int(batch.positions[row]) + 1]
            rows.append(toy_logits(known.tolist()))
        return torch.stack(rows) if rows else torch.empty(0, VOCAB)


class SmallModel(ToyModel):
    """Says what the other one says, but for the places where it does not."""

    def __init__(self, vocab_size: int, wrong_every: int) -> None:
        self.spec = types.SimpleNamespace(vocab_size=vocab_size)  # type: ignore[assignment]
        self._wrong_every = wrong_every
        self.num_tokens = 0

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        self.num_tokens += batch.token_ids.shape[0]
        logits = super().forward(batch, memory)
        width = self.spec.vocab_size
        logits = logits[:, :width] if width <= VOCAB else torch.nn.functional.pad(logits, (0, width - VOCAB), value=9.0)
        for row, at in enumerate(batch.sample_rows.tolist()):
            if self._wrong_every and int(batch.positions[at]) % self._wrong_every == 0:
                logits[row] = logits[row].flip(0)
        return logits.contiguous()


def make_worker(
    num_pages: int, block_size: int, num_host_pages: int = 0, small: SmallModel | None = None
) -> torch_worker.TorchWorker:
    layout = page_layout.PageLayout(page_layout.KVShape(1, 1, 1), block_size, "float32")
    facts = interface.WorkerFacts(
        kind="torch",
        device="cpu",
        dtype="float32",
        layout=layout,
        num_pages=num_pages,
        num_host_pages=num_host_pages,
        max_context_tokens=MAX_CONTEXT,
        memory_bytes={},
    )
    memory, other = (batches.KVMemory.of(slab.allocate(num_pages, layout.page_bytes), layout) for _ in range(2))
    draft = None if small is None else draft_model.Parts(small, other, num_host_pages)
    return torch_worker.TorchWorker(ToyModel(), memory, facts, NUM_SLOTS, draft=draft)


def alone(prompt: list[int], params: sampling.SamplingParams) -> list[int]:
    """What the sequence generates when everything is computed again for each token."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + params.max_tokens:
        tables = slots.SlotTables(1, MAX_CONTEXT, MAX_CONTEXT)
        tables.apply(step_plan.StepPlan(step=0, joins=(step_plan.Join(0, tuple(tokens), len(prompt), params),)))
        token_ids, _ = sampler.sample(toy_logits(tokens).unsqueeze(0), tables, np.array([0]))
        tokens.append(int(token_ids[0]))
    return tokens[len(prompt) :]


CHOICES = (
    sampling.SamplingParams(max_tokens=5, temperature=0.0),
    sampling.SamplingParams(max_tokens=4, temperature=1.0, seed=7),
    sampling.SamplingParams(max_tokens=6, temperature=0.8, seed=8, top_p=0.9, frequency_penalty=0.5),
    sampling.SamplingParams(max_tokens=3, temperature=0.0, repetition_penalty=1.4, num_logprobs=2),
)


@given(
    seed=st.integers(0, 10**9),
    block_size=st.integers(1, 6),
    spare_pages=st.integers(0, 8),
    num_host_pages=st.sampled_from((0, 4, 30)),
)
@settings(deadline=None, max_examples=60)
def test_random_plans_give_what_each_sequence_gets_alone(
    seed: int, block_size: int, spare_pages: int, num_host_pages: int
) -> None:
    chance = random.Random(seed)
    beginning = [chance.randrange(VOCAB) for _ in range(10)]
    sequences = [
        random_plans.Running(
            beginning[: chance.randint(0, 10)] + [chance.randrange(VOCAB) for _ in range(chance.randint(1, 3))],
            chance.choice(CHOICES),
        )
        for _ in range(6)
    ]
    worker = make_worker(-(-19 // block_size) + spare_pages, block_size, num_host_pages)
    random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS).run(worker)
    for sequence in sequences:
        assert sequence.tokens[len(sequence.prompt) :] == alone(sequence.prompt, sequence.params)


@given(seed=st.integers(0, 10**9), block_size=st.integers(1, 6), spare_pages=st.integers(0, 8))
@settings(deadline=None, max_examples=60)
def test_with_guesses_right_or_wrong_each_sequence_gets_what_it_gets_alone(
    seed: int, block_size: int, spare_pages: int
) -> None:
    chance = random.Random(seed)
    sequences = [
        random_plans.Running([chance.randrange(VOCAB) for _ in range(chance.randint(1, 8))], chance.choice(CHOICES))
        for _ in range(5)
    ]
    texts = {id(each): [*each.prompt, *alone(each.prompt, each.params)] for each in sequences}

    def guess(entry: random_plans.Running, count: int) -> list[int]:
        known = len(entry.tokens)
        right = texts[id(entry)][known : known + count]
        return [token if chance.random() < 0.7 else chance.randrange(VOCAB) for token in right]

    worker = make_worker(-(-19 // block_size) + spare_pages, block_size, 8)
    driver = random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS, guess)
    driver.run(worker)
    for sequence in sequences:
        assert sequence.tokens == texts[id(sequence)]


@given(
    seed=st.integers(0, 10**9),
    block_size=st.integers(1, 6),
    spare_pages=st.integers(0, 8),
    num_host_pages=st.sampled_from((0, 4, 30)),
    vocab_size=st.sampled_from((VOCAB, VOCAB - 5, VOCAB + 5)),
    wrong_every=st.sampled_from((0, 0, 3)),
    catch_up=st.sampled_from((2, 512)),
)
@settings(deadline=None, max_examples=40)
def test_a_draft_model_guesses_from_the_text_whatever_became_of_its_pages(
    seed: int, block_size: int, spare_pages: int, num_host_pages: int, vocab_size: int, wrong_every: int, catch_up: int
) -> None:
    """The same model as draft is right every time, unless its pages hold something else than they should."""
    chance = random.Random(seed)
    beginning = [chance.randrange(VOCAB) for _ in range(10)]
    sequences = [
        random_plans.Running(
            beginning[: chance.randint(0, 10)] + [chance.randrange(VOCAB) for _ in range(chance.randint(1, 3))],
            chance.choice(CHOICES),
        )
        for _ in range(6)
    ]
    small = SmallModel(vocab_size, wrong_every)
    worker = make_worker(-(-19 // block_size) + spare_pages, block_size, num_host_pages, small)
    driver = random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS, lambda entry, count: [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft_pages, "CATCH_UP_TOKENS", catch_up)
        driver.run(worker)
    for sequence in sequences:
        assert sequence.tokens[len(sequence.prompt) :] == alone(sequence.prompt, sequence.params)
    if vocab_size == VOCAB:
        assert all(wrong_every and position % wrong_every == 0 for position in driver.wrong_after)


def test_a_draft_model_that_lags_far_behind_catches_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_pages, "CATCH_UP_TOKENS", 3)
    small = SmallModel(VOCAB, 0)
    worker = make_worker(8, 4, small=small)
    params = sampling.SamplingParams(max_tokens=12, temperature=1.0, seed=5)
    join = step_plan.Join(1, (3, 1, 4), 3, params, pages=(6, 2, 5, 1))
    worker.execute(step_plan.StepPlan(step=1, joins=(join,), chunks=(step_plan.Chunk(1, 0, 3, True),)))
    text = alone([3, 1, 4], params)
    for step in range(2, 7):
        worker.execute(step_plan.StepPlan(step=step, decodes=(1,)))
    assert small.num_tokens == 3, "a decode costs it nothing"
    asked = (step_plan.Verification(1, 2),)
    first, second = (worker.execute(step_plan.StepPlan(step=step, verifications=asked)) for step in (7, 8))
    assert first.verified == (step_plan.Verified(0, 1),), "five tokens are missing, three are caught up"
    assert second.verified == (step_plan.Verified(2, 3),)
    assert (*first.token_ids, *second.token_ids) == tuple(text[6:10])


@pytest.mark.parametrize("passes_before", [0, 1, 2])
def test_a_draft_without_memory_claims_no_page_that_it_has_not_written(
    passes_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails while it catches up, or at a later guess. Whoever shares the pages then is guessed for as well as ever:
    from what was computed, and nothing else."""
    small = SmallModel(VOCAB, 0)
    worker = make_worker(12, 2, small=small)
    params = sampling.SamplingParams(max_tokens=12, temperature=1.0, seed=5)
    join = step_plan.Join(1, (3, 1, 4), 3, params, pages=(6, 2, 5, 1))
    worker.execute(step_plan.StepPlan(step=1, joins=(join,), chunks=(step_plan.Chunk(1, 0, 3, True),)))
    text = alone([3, 1, 4], params)
    for step in range(2, 6):
        worker.execute(step_plan.StepPlan(step=step, decodes=(1,)))
    passes, forward = iter(range(passes_before)), small.forward

    def failing(batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        if next(passes, None) is None:
            raise MemoryError("refused")
        return forward(batch, memory)

    plan = step_plan.StepPlan(
        step=6, new_pages=(step_plan.NewPages(1, (8, 9)),), verifications=(step_plan.Verification(1, 3),)
    )
    with monkeypatch.context() as patch:
        patch.setattr(small, "forward", failing)
        with pytest.raises(errors.OutOfMemory):
            worker.execute(plan)
    known = (3, 1, 4, *text[:5])  # its first six in the pages that the sequence before left in the prefix cache
    join = step_plan.Join(2, known, 3, params, (6, 2, 5, 7, 10))
    worker.execute(step_plan.StepPlan(step=7, joins=(join,), chunks=(step_plan.Chunk(2, 6, 2, True),)))
    found = worker.execute(step_plan.StepPlan(step=8, verifications=(step_plan.Verification(2, 1),)))
    assert found.verified == (step_plan.Verified(1, 2),)
    assert list(found.token_ids) == text[6:8]


def test_the_random_plans_hold_what_they_are_meant_to() -> None:
    found: dict[str, int] = {"num_swapped_pages": 0, "num_shared_pages": 0, "num_copies_only": 0}
    for seed in range(20):
        chance = random.Random(seed)
        sequences = [random_plans.Running([1, 2, 3, 4, 5, 6], CHOICES[index % 2]) for index in range(5)]
        worker = make_worker(8, 2, 20)
        driver = random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS)
        driver.run(worker)
        found = {name: count + getattr(driver, name) for name, count in found.items()}
    assert all(count >= 20 for count in found.values()), found


def test_the_next_plan_needs_no_value_from_the_one_before() -> None:
    """One step ahead: all plans are made before the first has run."""
    params = sampling.SamplingParams(max_tokens=3, temperature=1.0, seed=5)
    worker = make_worker(8, 4)
    join = step_plan.Join(1, (3, 1, 4), 3, params, pages=(6,))
    decodes = (1,)
    plans = [
        step_plan.StepPlan(step=1, joins=(join,), chunks=(step_plan.Chunk(1, 0, 3, True),)),
        step_plan.StepPlan(step=2, decodes=decodes),
        step_plan.StepPlan(step=3, new_pages=(step_plan.NewPages(1, (2,)),), decodes=decodes),
    ]
    assert [worker.execute(plan).token_ids[0] for plan in plans] == alone([3, 1, 4], params)


def test_tokens_come_for_the_decodes_first_and_then_for_the_chunks() -> None:
    greedy = sampling.SamplingParams(max_tokens=2, temperature=0.0)
    worker = make_worker(8, 4)
    prompts = {2: [3, 1, 4], 0: [1, 5], 3: [9, 2, 6], 1: [5, 3]}
    joins = tuple(
        step_plan.Join(slot, tuple(prompt), len(prompt), greedy, pages=(slot, slot + 4))
        for slot, prompt in prompts.items()
    )
    first = step_plan.StepPlan(
        step=1, joins=joins, chunks=(step_plan.Chunk(2, 0, 2, False), step_plan.Chunk(0, 0, 1, False))
    )
    assert worker.execute(first).token_ids == ()
    chunks = (step_plan.Chunk(1, 0, 2, True), step_plan.Chunk(3, 0, 3, True))
    found = worker.execute(step_plan.StepPlan(step=2, decodes=(2, 0), chunks=chunks)).token_ids
    assert list(found) == [alone(prompts[slot], greedy)[0] for slot in (2, 0, 1, 3)]


def test_a_plan_of_copies_only_computes_nothing() -> None:
    worker = make_worker(4, 4, num_host_pages=3)
    result = worker.execute(step_plan.StepPlan(step=7, swaps_out=(step_plan.Copy(1, 2),)))
    assert (result.step, result.token_ids, result.logprobs) == (7, (), ())
    assert 0 < result.swap_seconds <= result.execute_seconds


def test_without_copies_no_time_is_spent_on_them() -> None:
    worker = make_worker(4, 4, num_host_pages=3)
    params = sampling.SamplingParams(max_tokens=1, temperature=0.0)
    join = step_plan.Join(0, (9,), 1, params, pages=(0,))
    result = worker.execute(step_plan.StepPlan(step=1, joins=(join,), decodes=(0,)))
    assert result.swap_seconds == 0.0
    assert len(result.token_ids) == 1


def test_a_page_that_changes_hands_in_the_plan_of_its_copy_keeps_the_old_bytes() -> None:
    """Out, to another sequence and written anew, all in one plan; then back in, elsewhere."""
    params = sampling.SamplingParams(max_tokens=3, temperature=0.0)
    worker = make_worker(3, 4, num_host_pages=1)
    first = step_plan.Join(0, (3, 1, 4), 3, params, pages=(2,))
    other = step_plan.Join(0, (8, 8, 8, 8), 4, params, pages=(2, 0))
    start = worker.execute(
        step_plan.StepPlan(step=1, joins=(first,), chunks=(step_plan.Chunk(0, 0, 3, True),))
    ).token_ids
    worker.execute(
        step_plan.StepPlan(
            step=2,
            swaps_out=(step_plan.Copy(2, 0),),
            joins=(other,),
            chunks=(step_plan.Chunk(0, 0, 4, True),),
        )
    )
    back = step_plan.Join(1, (3, 1, 4, *start), 3, params, pages=(1,))
    third = worker.execute(
        step_plan.StepPlan(step=3, swaps_in=(step_plan.Copy(1, 0),), joins=(back,), decodes=(1,))
    ).token_ids
    assert [*start, *third] == alone([3, 1, 4], params)[:2]


@pytest.mark.parametrize(("num_pages", "block_size"), [(1, 1), (1, 2), (3, 4), (20, 16)])
@pytest.mark.parametrize("num_host_pages", [0, 2])
def test_warming_up_fits_any_slab_and_leaves_no_trace(num_pages: int, block_size: int, num_host_pages: int) -> None:
    worker = make_worker(num_pages, block_size, num_host_pages)
    worker.warm_up()
    assert (worker.facts.page_copy_seconds > 0) == (num_host_pages > 0)
    params = sampling.SamplingParams(max_tokens=1, temperature=0.0)
    join = step_plan.Join(0, (9,), 1, params, pages=(0,))
    plan = step_plan.StepPlan(step=1, joins=(join,), chunks=(step_plan.Chunk(0, 0, 1, True),))
    assert list(worker.execute(plan).token_ids) == alone([9], params)


def test_copies_without_swap_space_stop() -> None:
    worker = make_worker(2, 4)
    with pytest.raises(ValueError, match="the swap space has 0"):
        worker.execute(step_plan.StepPlan(step=1, swaps_out=(step_plan.Copy(0, 0),)))


def test_a_closed_worker_refuses() -> None:
    worker = make_worker(1, 4)
    worker.close()
    with pytest.raises(RuntimeError, match="closed"):
        worker.execute(step_plan.StepPlan(step=1, decodes=(0,)))


PARAMS = sampling.SamplingParams(max_tokens=3, temperature=0.0)


def test_one_step_in_many_tells_where_its_time_went() -> None:
    worker = make_worker(4, 2)
    join = step_plan.Join(slot=0, token_ids=(1, 2, 3), num_prompt_tokens=3, params=PARAMS, pages=(0, 1, 2))
    first = worker.execute(step_plan.StepPlan(step=1, joins=(join,), chunks=(step_plan.Chunk(0, 0, 3, True),)))
    second = worker.execute(step_plan.StepPlan(step=2, decodes=(0,)))
    assert first.op_seconds is not None
    assert {"sampler", "other"} <= set(first.op_seconds)
    assert sum(first.op_seconds.values()) == pytest.approx(first.execute_seconds)
    assert second.op_seconds is None


def test_after_a_step_without_memory_the_worker_goes_on() -> None:
    worker = make_worker(4, 2)
    model = worker._model

    class Greedy:
        spec = None

        def forward(self, *_: object) -> torch.Tensor:
            return torch.empty(1 << 60, dtype=torch.uint8)

    join = step_plan.Join(slot=0, token_ids=(1, 2, 3), num_prompt_tokens=3, params=PARAMS, pages=(0, 1, 2))
    plan = step_plan.StepPlan(step=2, joins=(join,), chunks=(step_plan.Chunk(0, 0, 3, True),))
    worker._model = Greedy()
    with pytest.raises(errors.OutOfMemory, match="memory ran out in a step"):
        worker.execute(plan)
    worker._model = model
    want = make_worker(4, 2).execute(plan)
    assert worker.execute(dataclasses.replace(plan, step=3)).token_ids == want.token_ids
