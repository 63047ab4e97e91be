"""Guesses on a device: what each sequence gets is what it gets alone, however many were right and whatever comes after.

As in `test_device_worker`, the model is a toy that reads every token back from the pages.
"""

from __future__ import annotations

import random

import made_devices
import pytest
import quick_interpreter
import random_plans
import torch
import toy_model
from device_toys import CHOICES, GREEDY, MAX_CONTEXT, NUM_SLOTS, SmallModel, alone, joined, made_worker, told_alone
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.worker import device_worker, draft_pages, measuring

LONG = sampling.SamplingParams(max_tokens=12, temperature=1.0, seed=5)
PENALTIES = sampling.SamplingParams(
    max_tokens=12, temperature=0.7, seed=3, frequency_penalty=0.9, repetition_penalty=1.3, num_logprobs=2
)


def made_sequences(chance: random.Random) -> list[random_plans.Running]:
    beginning = [chance.randrange(toy_model.VOCAB) for _ in range(10)]
    return [
        random_plans.Running(
            beginning[: chance.randint(0, 10)]
            + [chance.randrange(toy_model.VOCAB) for _ in range(chance.randint(1, 3))],
            chance.choice(CHOICES),
        )
        for _ in range(5)
    ]


@given(
    seed=st.integers(0, 10**9),
    block_size=st.integers(1, 6),
    spare_pages=st.integers(0, 8),
    right=st.sampled_from((0.5, 0.9)),
)
@settings(deadline=None, max_examples=15)
def test_guesses_right_and_wrong_change_no_text(seed: int, block_size: int, spare_pages: int, right: float) -> None:
    chance = random.Random(seed)
    sequences = made_sequences(chance)
    texts = {id(each): [*each.prompt, *alone(each.prompt, each.params)] for each in sequences}

    def guess(entry: random_plans.Running, count: int) -> list[int]:
        known = len(entry.tokens)
        return [
            token if chance.random() < right else chance.randrange(toy_model.VOCAB)
            for token in texts[id(entry)][known : known + count]
        ]

    worker = made_worker(-(-19 // block_size) + spare_pages, block_size, 8, num_guesses=6)
    random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS, guess).run(worker)
    for sequence in sequences:
        assert sequence.tokens == texts[id(sequence)]


@given(
    seed=st.integers(0, 10**9),
    block_size=st.integers(1, 6),
    spare_pages=st.integers(0, 8),
    num_host_pages=st.sampled_from((0, 4, 30)),
    vocab_size=st.sampled_from((toy_model.VOCAB, toy_model.VOCAB - 5, toy_model.VOCAB + 5)),
    wrong_every=st.sampled_from((0, 0, 3)),
    catch_up=st.sampled_from((2, 512)),
)
@settings(deadline=None, max_examples=15)
def test_a_draft_model_guesses_from_the_text_whatever_became_of_its_pages(
    seed: int, block_size: int, spare_pages: int, num_host_pages: int, vocab_size: int, wrong_every: int, catch_up: int
) -> None:
    """The same model as draft is right every time, unless its pages hold something else than they should."""
    chance = random.Random(seed)
    sequences = made_sequences(chance)
    small = SmallModel(vocab_size, wrong_every)
    worker = made_worker(-(-19 // block_size) + spare_pages, block_size, num_host_pages, num_guesses=6, small=small)
    driver = random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS, lambda entry, count: [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft_pages, "CATCH_UP_TOKENS", catch_up)
        driver.run(worker)
    for sequence in sequences:
        assert sequence.tokens[len(sequence.prompt) :] == alone(sequence.prompt, sequence.params)
    if vocab_size == toy_model.VOCAB:
        assert all(wrong_every and position % wrong_every == 0 for position in driver.wrong_after)


# ------------------------------------------------------------------------------------------- one verification

PROMPT = [3, 1, 4]
PAGES = (6, 2, 5, 1)


def begun(worker: device_worker.DeviceWorker, params: sampling.SamplingParams, slot: int = 1) -> None:
    """The prompt is computed, and the first token known."""
    plan = step_plan.StepPlan(
        step=1, joins=(joined(slot, PROMPT, params, *PAGES),), chunks=(step_plan.Chunk(slot, 0, len(PROMPT), True),)
    )
    worker.execute(plan)


def checked(step: int, *guesses: int, slot: int = 1) -> step_plan.StepPlan:
    return step_plan.StepPlan(step=step, verifications=(step_plan.Verification(slot, len(guesses), tuple(guesses)),))


@pytest.mark.parametrize("params", [GREEDY, LONG, PENALTIES])
@pytest.mark.parametrize("wrong_at", [0, 1, 2, None])
def test_the_next_steps_go_on_where_the_first_wrong_guess_was(
    params: sampling.SamplingParams, wrong_at: int | None
) -> None:
    told = told_alone(PROMPT, params)
    text = [token for token, _ in told]
    guesses = text[1:4]
    if wrong_at is not None:
        guesses[wrong_at] = (guesses[wrong_at] + 1) % toy_model.VOCAB
    worker = made_worker(8, 6, num_guesses=3)
    begun(worker, params)
    result = worker.execute(checked(2, *guesses))
    num = 4 if wrong_at is None else wrong_at + 1
    assert result.verified == (step_plan.Verified(3, num),)
    assert list(result.token_ids) == text[1 : 1 + num]
    for seen, (_, expected) in zip(result.logprobs, told[1:], strict=False):
        assert (seen is None) == (expected is None)
        if seen is not None and expected is not None:
            assert seen.top_ids == expected.top_ids
            assert seen.chosen == pytest.approx(expected.chosen, abs=1e-5)
    known = 1 + num
    while known < len(text):  # decodes and verifications in turns
        plan = step_plan.StepPlan(step=2 + known, decodes=(1,))
        if known % 2 and known + 2 <= len(text):
            plan = checked(2 + known, text[known])
        found = worker.execute(plan).token_ids
        assert list(found) == text[known : known + len(found)]
        known += len(found)


def test_a_step_may_hold_decodes_a_prompt_and_guesses() -> None:
    worker = made_worker(12, 6, num_guesses=3)
    begun(worker, LONG)
    other = step_plan.StepPlan(
        step=2, joins=(joined(2, [9, 2], GREEDY, 8),), chunks=(step_plan.Chunk(2, 0, 2, True),), decodes=(1,)
    )
    worker.execute(other)
    text, text_of_other = alone(PROMPT, LONG), alone([9, 2], GREEDY)
    mixed = step_plan.StepPlan(
        step=3,
        joins=(joined(0, [7, 7, 7], CHOICES[3], 9),),
        decodes=(2,),
        chunks=(step_plan.Chunk(0, 0, 3, True),),
        verifications=(step_plan.Verification(1, 3, (text[2], text[3], 0)),),
    )
    result = worker.execute(mixed)
    first_of_new, told_of_new = told_alone([7, 7, 7], CHOICES[3])[0]
    assert result.token_ids == (text_of_other[1], first_of_new, *text[2:5])
    assert result.verified == (step_plan.Verified(3, 3),)
    assert [each is None for each in result.logprobs] == [True, False, True, True, True]
    assert told_of_new is not None
    assert result.logprobs[1].top_ids == told_of_new.top_ids


def test_guesses_reach_to_the_last_token_of_the_context() -> None:
    """The token after the last guess is the one that is never computed; the slot behind must not get it."""
    prompt = [5] * (MAX_CONTEXT - 4)
    params = sampling.SamplingParams(max_tokens=5, temperature=0.0)
    text = alone(prompt, params)
    worker = made_worker(8, 6, num_guesses=3)
    joins = (joined(1, prompt, params, 0, 1, 2, 3), joined(2, [9, 9], GREEDY, 4))
    chunks = (step_plan.Chunk(1, 0, len(prompt), True), step_plan.Chunk(2, 0, 2, True))
    worker.execute(step_plan.StepPlan(step=1, joins=joins, chunks=chunks))
    result = worker.execute(checked(2, *text[1:4]))
    assert list(result.token_ids) == text[1:5]
    assert list(worker.execute(step_plan.StepPlan(step=3, decodes=(2,))).token_ids) == alone([9, 9], GREEDY)[1:2]
    other = made_worker(8, 6, num_guesses=4)
    other.execute(step_plan.StepPlan(step=1, joins=joins, chunks=chunks))
    with pytest.raises(ValueError, match="behind"):
        other.execute(checked(2, 0, 0, 0, 0))


def test_pages_with_wrong_guesses_are_swapped_shared_and_come_back() -> None:
    """A wrong guess lies behind the text in a page that is copied out; a page of right ones is another's prefix."""
    text = alone(PROMPT, LONG)
    worker = made_worker(12, 2, 6, num_guesses=3)
    plan = step_plan.StepPlan(
        step=1, joins=(joined(1, PROMPT, LONG, 0, 1, 2, 3),), chunks=(step_plan.Chunk(1, 0, 3, True),)
    )
    worker.execute(plan)
    worker.execute(checked(2, text[1], text[2], (text[3] + 1) % toy_model.VOCAB))
    known = [*PROMPT, *text[:4]]  # six of them computed, in three pages
    worker.execute(step_plan.StepPlan(step=3, swaps_out=tuple(step_plan.Copy(page, page) for page in range(3))))
    back = step_plan.StepPlan(
        step=4,
        swaps_in=tuple(step_plan.Copy(7 + page, page) for page in range(3)),
        joins=(step_plan.Join(3, tuple(known), 3, LONG, (7, 8, 9, 10, 11)),),
        verifications=(step_plan.Verification(3, 2, (text[4], text[5])),),
    )
    assert list(worker.execute(back).token_ids) == text[4:7]
    sharing = step_plan.StepPlan(
        step=5,
        joins=(step_plan.Join(0, (*known, *text[4:6]), 7, GREEDY, (7, 8, 9, 4, 5)),),
        chunks=(step_plan.Chunk(0, 6, 3, True),),
        decodes=(3,),
    )
    shared = [*known, *text[4:6]]
    assert list(worker.execute(sharing).token_ids) == [text[7], alone(shared, GREEDY)[0]]


def test_whoever_launches_after_guesses_waits_for_what_they_came_to() -> None:
    text = alone(PROMPT, LONG)
    worker = made_worker(8, 6, num_guesses=3)
    begun(worker, LONG)
    launched = [
        worker.launch(plan)
        for plan in (
            checked(2, text[1], text[2]),
            checked(3, text[4], 0),
            step_plan.StepPlan(step=4, decodes=(1,)),
            step_plan.StepPlan(step=5, decodes=(1,)),
        )
    ]
    found = [token for each in launched for token in each.result().token_ids]
    right = 2 if text[5] != 0 else 3
    assert found == text[1 : 1 + 3 + right + 2]


def test_a_step_with_guesses_takes_as_long_as_the_device_waited_for_it() -> None:
    """Its price is judged by that; a line of the log is a millisecond."""
    text = alone(PROMPT, LONG)
    device = made_devices.Written()
    worker = made_worker(8, 6, num_guesses=3, device=device)
    begun(worker, LONG)
    seconds = []
    for plan in (
        step_plan.StepPlan(step=2, decodes=(1,)),
        checked(3, text[2]),
        step_plan.StepPlan(step=4, decodes=(1,)),
    ):
        device.log += ["the host plans"] * 500
        seconds.append(worker.execute(plan).execute_seconds)
    assert seconds[0] < 0.5 <= seconds[1]
    assert seconds[2] < 0.5


class Broken(toy_model.ToyModel):
    """Computes no numbers after so many tokens."""

    def __init__(self, from_position: int) -> None:
        self._from = from_position

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        logits = super().forward(batch, memory)
        logits[batch.positions[batch.sample_rows] >= self._from] = torch.nan
        return logits


def test_logits_that_are_no_numbers_matter_where_the_guess_before_was_right() -> None:
    text = alone(PROMPT, LONG)
    for guess, is_right in ((text[1], True), ((text[1] + 1) % toy_model.VOCAB, False)):
        worker = made_worker(8, 6, num_guesses=3, model=Broken(len(PROMPT) + 1))
        begun(worker, LONG)
        launched = worker.launch(checked(2, guess))
        if is_right:
            with pytest.raises(errors.EngineError, match=r"slot 1: its weights are damaged"):
                launched.result()
        else:
            assert list(launched.result().token_ids) == text[1:2]
        new = step_plan.StepPlan(
            step=3, joins=(joined(1, [8, 8], GREEDY, 0),), chunks=(step_plan.Chunk(1, 0, 2, True),)
        )
        assert list(worker.execute(new).token_ids) == alone([8, 8], GREEDY)[:1]


# ------------------------------------------------------------------------------------------- the draft model


def test_a_draft_that_computes_no_numbers_ends_the_step_and_says_whose_they_are() -> None:
    worker = made_worker(8, 6, num_guesses=3, small=Broken(len(PROMPT)))
    begun(worker, LONG)
    plan = step_plan.StepPlan(step=2, verifications=(step_plan.Verification(1, 2),))
    with pytest.raises(errors.EngineError, match=r"^the draft model: .* slot 1.*speculative.draftModel"):
        worker.execute(plan)


def test_a_draft_model_that_lags_far_behind_catches_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_pages, "CATCH_UP_TOKENS", 3)
    small = SmallModel()
    worker = made_worker(8, 4, num_guesses=3, small=small)
    begun(worker, LONG)
    text = alone(PROMPT, LONG)
    for step in range(2, 7):
        worker.execute(step_plan.StepPlan(step=step, decodes=(1,)))
    assert small.num_tokens == 3, "a decode costs it nothing"
    asked = (step_plan.Verification(1, 2),)
    first, second = (worker.execute(step_plan.StepPlan(step=step, verifications=asked)) for step in (7, 8))
    assert first.verified == (step_plan.Verified(0, 1),), "five tokens are missing, three are caught up"
    assert second.verified == (step_plan.Verified(2, 3),)
    assert (*first.token_ids, *second.token_ids) == tuple(text[6:10])


@pytest.mark.parametrize("fails_after", [0, 1, 2])
def test_a_draft_without_memory_claims_no_page_that_it_has_not_written(fails_after: int) -> None:
    """It fails while it catches up, or at a later guess. Whoever shares the pages then is guessed for as well as ever:
    from what was computed, and nothing else."""
    small = SmallModel()
    worker = made_worker(12, 2, num_guesses=4, small=small)
    begun(worker, LONG)
    text = alone(PROMPT, LONG)
    for step in range(2, 6):
        worker.execute(step_plan.StepPlan(step=step, decodes=(1,)))
    small.fails_after = fails_after
    plan = step_plan.StepPlan(
        step=6,
        new_pages=(step_plan.NewPages(1, (8, 9)),),
        verifications=(step_plan.Verification(1, 3),),
    )
    with pytest.raises(errors.OutOfMemory, match="in a step"):
        worker.launch(plan)
    small.fails_after = None
    known = [*PROMPT, *text[:5]]  # its first six in the pages that the sequence before left in the prefix cache
    join = step_plan.Join(2, tuple(known), 3, LONG, (*PAGES[:3], 7, 10))
    worker.execute(step_plan.StepPlan(step=7, joins=(join,), chunks=(step_plan.Chunk(2, 6, 2, True),)))
    asked = step_plan.StepPlan(step=8, verifications=(step_plan.Verification(2, 1),))
    found = worker.execute(asked)
    assert found.verified == (step_plan.Verified(1, 2),)
    assert list(found.token_ids) == text[6:8]


# ------------------------------------------------------------------------------------------- recorded steps


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_interpreter.install(monkeypatch)


@pytest.mark.usefixtures("quick")
def test_guesses_run_as_recorded_in_the_places_of_sequences() -> None:
    device = made_devices.Recording()
    worker = made_worker(12, 8, device=device, kernels=True, num_guesses=2)
    worker.prepare(measuring.Step(NUM_SLOTS, 16))
    assert worker.facts.notes["graphs"].startswith("decode steps of 1, 2, 4, 8, 12 sequences")
    assert worker.facts.notes["graphs"].endswith("a guess takes the place of a sequence")
    prompts = {0: [3, 1, 4], 2: [1, 5], 3: [9, 2, 6, 5]}
    choices = {0: GREEDY, 2: CHOICES[1], 3: PENALTIES}
    joins = tuple(joined(slot, prompt, choices[slot], slot) for slot, prompt in prompts.items())
    chunks = tuple(step_plan.Chunk(slot, 0, len(prompt), True) for slot, prompt in prompts.items())
    worker.execute(step_plan.StepPlan(step=1, joins=joins, chunks=chunks))
    texts = {slot: alone(prompt, choices[slot]) for slot, prompt in prompts.items()}
    device.calls.clear()
    slab = worker._steps._memory.slab
    before = slab.clone()
    verifications = (
        step_plan.Verification(0, 2, (texts[0][1], (texts[0][2] + 1) % toy_model.VOCAB)),
        step_plan.Verification(2, 1, (texts[2][1],)),
    )
    result = worker.execute(step_plan.StepPlan(step=2, decodes=(3,), verifications=verifications))
    assert device.calls == [], "the penalties of one: those of the others are drawn without the record, too"
    assert result.token_ids == (texts[3][1], *texts[0][1:3], *texts[2][1:3])
    again = step_plan.StepPlan(
        step=3, verifications=(step_plan.Verification(0, 1, (texts[0][3],)), step_plan.Verification(2, 1, (0,)))
    )
    result = worker.execute(again)
    assert device.calls == ["replay 3"], "four rows"
    assert result.token_ids[:2] == tuple(texts[0][3:5])
    assert result.token_ids[2] == texts[2][3]
    untouched = [page for page in range(12) if page not in prompts]
    assert torch.equal(slab[untouched], before[untouched])


@pytest.mark.usefixtures("quick")
def test_a_draft_model_runs_as_recorded_also_where_a_token_is_missing() -> None:
    """After guesses that were all right its first row is two tokens, of which it must not sample after the first."""
    device = made_devices.Recording()
    small = SmallModel(toy_model.VOCAB - 5, wrong_every=0)
    worker = made_worker(12, 8, device=device, kernels=True, num_guesses=2, small=small)
    worker.prepare(measuring.Step(NUM_SLOTS, 16))
    assert "of the draft model steps of 1, 2, 4, 8, 12 rows" in worker.facts.notes["graphs"]
    begun_with = sampling.SamplingParams(max_tokens=12, temperature=0.0)
    seeds = [prompt for prompt in range(30) if all(token < 35 for token in alone([prompt], begun_with)[:8])]
    prompt = [seeds[0]]
    text = alone(prompt, begun_with)
    join = joined(1, prompt, begun_with, 4, 5)
    worker.execute(step_plan.StepPlan(step=1, joins=(join,), chunks=(step_plan.Chunk(1, 0, 1, True),)))
    device.calls.clear()
    found: list[int] = []
    for step in (2, 3):
        result = worker.execute(step_plan.StepPlan(step=step, verifications=(step_plan.Verification(1, 2),)))
        assert result.verified == (step_plan.Verified(2, 3),)
        found += result.token_ids
    assert found == text[1:7]
    # Of the draft one and one row, of the model three in the record of four; then two rows of the draft, and one.
    of_model, of_draft = ("replay 3", ("replay 10", "replay 9"))
    assert device.calls == [of_draft[0], of_draft[0], of_model, of_draft[1], of_draft[0], of_model]


class Counting(made_devices.Recording):
    """Tensors grow by 5000 bytes in every step."""

    def allocated_bytes(self) -> int:
        return 1

    def peak_bytes(self) -> int:
        return 5001


def test_what_a_draft_models_largest_step_takes_is_told_in_its_own_part() -> None:
    small = SmallModel()
    worker = made_worker(12, 8, device=Counting(), num_guesses=2, small=small)
    worker.prepare(measuring.Step(NUM_SLOTS, 16), why_no_graphs="not in this test")
    facts = worker.facts
    assert facts.memory_bytes["activations"] == 5000
    assert facts.memory_bytes["speculation"] == 5000, "nothing was planned"
    assert facts.notes["draftActivations"] == "measured with 16 tokens"
    used = small.num_tokens
    worker.execute(
        step_plan.StepPlan(step=1, joins=(joined(0, [9], GREEDY, 0),), chunks=(step_plan.Chunk(0, 0, 1, True),))
    )
    assert small.num_tokens == used + 1, "it follows again"
