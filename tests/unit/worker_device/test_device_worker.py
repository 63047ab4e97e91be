"""Plans in, tokens out: on a device, too, a sequence gets what it gets alone, whatever the plans are.

The model is a toy and the device the interpreter's; a record of a step is the same code run again on the same memory.
"""

from __future__ import annotations

import random

import made_devices
import pytest
import quick_interpreter
import random_plans
import torch
import toy_model
from device_toys import CHOICES, GREEDY, NUM_SLOTS, alone, joined, made_worker
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.worker import device_worker, measuring


@given(
    seed=st.integers(0, 10**9),
    block_size=st.integers(1, 6),
    spare_pages=st.integers(0, 8),
    num_host_pages=st.sampled_from((0, 4, 30)),
)
@settings(deadline=None, max_examples=20)
def test_random_plans_give_what_each_sequence_gets_alone(
    seed: int, block_size: int, spare_pages: int, num_host_pages: int
) -> None:
    chance = random.Random(seed)
    beginning = [chance.randrange(toy_model.VOCAB) for _ in range(10)]
    sequences = [
        random_plans.Running(
            beginning[: chance.randint(0, 10)]
            + [chance.randrange(toy_model.VOCAB) for _ in range(chance.randint(1, 3))],
            chance.choice(CHOICES),
        )
        for _ in range(5)
    ]
    worker = made_worker(-(-19 // block_size) + spare_pages, block_size, num_host_pages)
    random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS).run(worker)
    for sequence in sequences:
        assert sequence.tokens[len(sequence.prompt) :] == alone(sequence.prompt, sequence.params)


def test_steps_are_launched_before_anything_of_the_steps_before_was_read() -> None:
    params = sampling.SamplingParams(max_tokens=3, temperature=1.0, seed=5)
    worker = made_worker(8, 4)
    plans = [
        step_plan.StepPlan(step=1, joins=(joined(1, [3, 1, 4], params, 6),), chunks=(step_plan.Chunk(1, 0, 3, True),)),
        step_plan.StepPlan(step=2, decodes=(1,)),
        step_plan.StepPlan(step=3, new_pages=(step_plan.NewPages(1, (2,)),), decodes=(1,)),
    ]
    launched = [worker.launch(plan) for plan in plans]
    assert [each.result().token_ids[0] for each in launched] == alone([3, 1, 4], params)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_interpreter.install(monkeypatch)


def recorded_worker(num_pages: int = 12) -> tuple[device_worker.DeviceWorker, made_devices.Recording]:
    device = made_devices.Recording()
    worker = made_worker(num_pages, 8, device=device, kernels=True)
    worker.prepare(measuring.Step(NUM_SLOTS, 16))
    return worker, device


@pytest.mark.usefixtures("quick")
def test_recorded_steps_give_the_same_and_touch_nothing_else() -> None:
    """Three sequences in the record of four: the row that is left over must leave slab and tables alone."""
    worker, device = recorded_worker()
    assert [call for call in device.calls if call.startswith("record")][-1] == "record 3 in the memory of 1"
    assert worker.facts.notes["graphs"].startswith("decode steps of 1, 2, 4 sequences")
    assert worker.facts.memory_bytes["graphs"] > 0
    prompts = {0: [3, 1, 4], 2: [1, 5], 3: [9, 2, 6, 5]}
    choices = {0: CHOICES[0], 2: CHOICES[1], 3: CHOICES[3]}
    joins = tuple(joined(slot, prompt, choices[slot], slot) for slot, prompt in prompts.items())
    chunks = tuple(step_plan.Chunk(slot, 0, len(prompt), True) for slot, prompt in prompts.items())
    found = [worker.execute(step_plan.StepPlan(step=1, joins=joins, chunks=chunks)).token_ids]
    slab = worker._steps._memory.slab
    before = slab.clone()
    device.calls.clear()
    results = [worker.execute(step_plan.StepPlan(step=2 + step, decodes=(0, 2, 3))) for step in range(2)]
    found += [result.token_ids for result in results]
    assert device.calls == ["replay 1", "replay 1"]
    for column, slot in enumerate(prompts):
        assert [tokens[column] for tokens in found] == alone(prompts[slot], choices[slot])[:3]
    assert results[0].logprobs[:2] == (None, None)
    assert results[0].logprobs[2] is not None  # sampled again, with what the record cannot do
    untouched = [page for page in range(12) if page not in prompts]
    assert torch.equal(slab[untouched], before[untouched])
    device.calls.clear()
    worker.execute(step_plan.StepPlan(step=9, decodes=(2,)))
    assert device.calls == ["replay 3"]


@pytest.mark.usefixtures("quick")
def test_a_step_with_a_prompt_is_launched_kernel_by_kernel() -> None:
    worker, device = recorded_worker()
    worker.execute(
        step_plan.StepPlan(step=1, joins=(joined(0, [3, 1], GREEDY, 4),), chunks=(step_plan.Chunk(0, 0, 2, True),))
    )
    device.calls.clear()
    plan = step_plan.StepPlan(
        step=2, joins=(joined(1, [9, 9], GREEDY, 5),), decodes=(0,), chunks=(step_plan.Chunk(1, 0, 2, True),)
    )
    assert list(worker.execute(plan).token_ids) == [alone([3, 1], GREEDY)[1], alone([9, 9], GREEDY)[0]]
    assert device.calls == []


def test_what_was_loaded_is_there_before_the_first_step_of_another_stream() -> None:
    device = made_devices.Recording()
    made_worker(4, 8, device=device)
    assert device.calls == ["give back"]  # which waits for the device


def test_without_records_the_facts_say_why() -> None:
    worker = made_worker(4, 8)
    worker.prepare(measuring.Step(NUM_SLOTS, 16))
    assert "records nothing" in worker.facts.notes["graphs"]
    plain = made_worker(4, 8, device=made_devices.Recording())
    plain.prepare(measuring.Step(NUM_SLOTS, 16))
    assert plain.facts.notes["graphs"] == "none: plain torch waits for the host in the middle of a step"


@pytest.mark.parametrize(("num_pages", "block_size"), [(1, 1), (1, 2), (3, 4), (20, 16)])
def test_warming_up_fits_any_slab_and_leaves_no_trace(num_pages: int, block_size: int) -> None:
    worker = made_worker(num_pages, block_size, 2)
    worker.prepare(measuring.Step(NUM_SLOTS, 16))
    assert worker.facts.page_copy_seconds > 0
    params = sampling.SamplingParams(max_tokens=1, temperature=0.0)
    plan = step_plan.StepPlan(step=1, joins=(joined(0, [9], params, 0),), chunks=(step_plan.Chunk(0, 0, 1, True),))
    assert list(worker.execute(plan).token_ids) == alone([9], params)


def test_a_step_waits_for_its_copies_and_says_for_how_long() -> None:
    device = made_devices.Written()
    worker = made_worker(4, 4, 3, device=device)
    first = step_plan.StepPlan(step=1, joins=(joined(0, [3, 1], GREEDY, 2),), chunks=(step_plan.Chunk(0, 0, 2, True),))
    worker.execute(first)
    device.log.clear()
    back = step_plan.StepPlan(
        step=2,
        swaps_out=(step_plan.Copy(2, 0),),
        swaps_in=(step_plan.Copy(1, 0),),
        joins=(joined(1, [3, 1, 5], GREEDY, 1),),
        decodes=(1,),
    )
    result = worker.execute(back)
    # The stream of the steps is entered first, the one of the copies inside of it.
    copies, computes = device.log.index("copies:", 1), device.log.index("steps:")
    assert device.log[copies + 1].startswith("wait")  # for the step before
    assert any(line.startswith("wait") for line in device.log[computes:])  # the step, for the copies
    assert 0 < result.swap_seconds < result.execute_seconds
    assert worker.execute(step_plan.StepPlan(step=3, decodes=(1,))).swap_seconds == 0.0


def test_a_plan_of_copies_only_computes_nothing() -> None:
    worker = made_worker(4, 4, num_host_pages=3)
    result = worker.execute(step_plan.StepPlan(step=7, swaps_out=(step_plan.Copy(1, 2),)))
    assert (result.step, result.token_ids, result.logprobs) == (7, (), ())


class Failing:
    """A model in which memory runs out, or which computes no numbers."""

    spec = toy_model.ToySpec()

    def __init__(self, broken: bool) -> None:
        self._broken = broken

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        if self._broken:
            return torch.full((len(batch.sample_rows), toy_model.VOCAB), torch.nan)
        raise torch.OutOfMemoryError("Tried to allocate 20.00 GiB")


PLAN = step_plan.StepPlan(step=2, joins=(joined(0, [1, 2, 3], GREEDY, 0, 1),), chunks=(step_plan.Chunk(0, 0, 3, True),))


def test_after_a_step_without_memory_the_worker_goes_on() -> None:
    worker = made_worker(4, 2)
    steps = worker._steps
    assert steps is not None
    model, steps._model = steps._model, Failing(broken=False)
    with pytest.raises(errors.OutOfMemory, match="memory ran out in a step: Tried to allocate"):
        worker.launch(PLAN)
    steps._model = model
    assert list(worker.execute(PLAN).token_ids) == alone([1, 2, 3], GREEDY)[:1]


def test_logits_that_are_no_numbers_end_the_step_that_computed_them() -> None:
    worker = made_worker(4, 2, model=Failing(broken=True))
    launched = worker.launch(PLAN)
    after = worker.launch(step_plan.StepPlan(step=3, decodes=(0,), new_pages=(step_plan.NewPages(0, (2,)),)))
    with pytest.raises(errors.EngineError, match=r"slot 0: its weights are damaged"):
        launched.result()
    with pytest.raises(errors.EngineError):
        after.result()


def test_a_plan_that_contradicts_the_tables_stops() -> None:
    worker = made_worker(4, 2)
    with pytest.raises(ValueError, match="contradicts"):
        worker.launch(step_plan.StepPlan(step=1, decodes=(1,)))


def test_a_closed_worker_refuses() -> None:
    worker = made_worker(1, 4)
    worker.close()
    with pytest.raises(RuntimeError, match="closed"):
        worker.execute(step_plan.StepPlan(step=1, decodes=(0,)))
