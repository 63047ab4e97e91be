"""Tokens that depend on seed and position alone, lengths that are kept, plans that make no sense refused."""

from __future__ import annotations

import pytest

from tidemark_runtime.core import sampling, step_plan, step_time
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface, simulated, step_cost

FACTS = interface.WorkerFacts(
    kind="simulated",
    device="none",
    dtype="bfloat16",
    layout=page_layout.PageLayout(page_layout.KVShape(1, 1, 8), 4, "bfloat16"),
    num_pages=100,
    max_context_tokens=100,
    memory_bytes={},
)


class Seen:
    """A cost that keeps what it is asked, and answers 1 s."""

    page_copy_seconds = 0.25

    def __init__(self) -> None:
        self.asked: list[tuple[step_time.Work, int, int]] = []

    def seconds(self, work: step_time.Work, prompt_tokens_read: int, num_copies: int) -> step_cost.StepSeconds:
        self.asked.append((work, prompt_tokens_read, num_copies))
        return step_cost.StepSeconds(1.0, 0.25)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def worker(seen: Seen) -> simulated.SimulatedWorker:
    return simulated.SimulatedWorker(FACTS, seen)


def join(slot: int, seed: int, num_prompt: int, generated: int = 0) -> step_plan.Join:
    tokens = (
        *simulated.prompt(seed, num_prompt),
        *(simulated.token_at(seed, num_prompt + i) for i in range(generated)),
    )
    return step_plan.Join(slot, tokens, num_prompt, sampling.SamplingParams(max_tokens=50, seed=seed))


def at(seed: int, *positions: int) -> tuple[int, ...]:
    return tuple(simulated.token_at(seed, position) for position in positions)


def test_a_prompt_in_chunks_then_decodes(worker: simulated.SimulatedWorker, seen: Seen) -> None:
    first = worker.execute(
        step_plan.StepPlan(step=1, joins=(join(0, 7, 10),), chunks=(step_plan.Chunk(0, 0, 6, samples=False),))
    )
    second = worker.execute(step_plan.StepPlan(step=2, chunks=(step_plan.Chunk(0, 6, 4, samples=True),)))
    decodes = (0,)
    third = worker.execute(step_plan.StepPlan(step=3, decodes=decodes))
    fourth = worker.execute(step_plan.StepPlan(step=4, decodes=decodes))
    assert [first.token_ids, second.token_ids, third.token_ids, fourth.token_ids] == [
        (),
        at(7, 10),
        at(7, 11),
        at(7, 12),
    ]
    works = [work for work, _, _ in seen.asked]
    assert works == [
        step_time.Work(prompt_tokens=6, pairs=21),
        step_time.Work(prompt_tokens=4, pairs=4 * 6 + 10),
        step_time.Work(decodes=1, tokens_read=11),
        step_time.Work(decodes=1, tokens_read=12),
    ]
    assert seen.asked[1][1] == 6, "the second chunk reads the tokens before it"
    assert (fourth.execute_seconds, fourth.swap_seconds, fourth.logprobs) == (1.0, 0.25, (None,))


def test_others_come_and_go_without_a_trace(worker: simulated.SimulatedWorker, seen: Seen) -> None:
    chunk = step_plan.Chunk
    worker.execute(step_plan.StepPlan(step=1, joins=(join(0, 1, 4),), chunks=(chunk(0, 0, 4, samples=True),)))
    both = worker.execute(
        step_plan.StepPlan(step=2, decodes=(0,), joins=(join(1, 2, 3),), chunks=(chunk(1, 0, 3, samples=True),))
    )
    assert both.token_ids == at(1, 5) + at(2, 3), "decodes first, then chunks that sample"
    assert worker.execute(step_plan.StepPlan(step=3, decodes=(0, 1))).token_ids == at(1, 6) + at(2, 4)
    assert seen.asked[-1][0].tokens_read == 6 + 4
    assert worker.execute(step_plan.StepPlan(step=4, decodes=(1,))).token_ids == at(2, 5)
    assert worker.execute(step_plan.StepPlan(step=5, decodes=(1, 0))).token_ids == at(2, 6) + at(1, 7)


def test_who_comes_back_goes_on_where_it_was(worker: simulated.SimulatedWorker) -> None:
    back = step_plan.StepPlan(step=1, joins=(join(3, 9, 5, generated=2),), chunks=(step_plan.Chunk(3, 0, 7, True),))
    assert worker.execute(back).token_ids == at(9, 7)
    decoding = step_plan.StepPlan(step=2, joins=(join(4, 9, 5, generated=4),), decodes=(4,))
    assert worker.execute(decoding).token_ids == at(9, 9)


def test_a_lost_token_is_noticed(worker: simulated.SimulatedWorker) -> None:
    whole = join(0, 9, 5, generated=3)
    lossy = step_plan.Join(0, whole.token_ids[:6] + whole.token_ids[7:], 5, whole.params)
    with pytest.raises(ValueError, match="token 6 is"):
        worker.execute(step_plan.StepPlan(step=1, joins=(lossy,), decodes=(0,)))


@pytest.mark.parametrize(
    "chunk", [step_plan.Chunk(0, 2, 9, False), step_plan.Chunk(0, 0, 10, False), step_plan.Chunk(0, 0, 9, True)]
)
def test_a_chunk_that_contradicts_the_tokens_is_refused(
    worker: simulated.SimulatedWorker, chunk: step_plan.Chunk
) -> None:
    with pytest.raises(ValueError, match="contradicts the 10 tokens"):
        worker.execute(step_plan.StepPlan(step=1, joins=(join(0, 7, 10),), chunks=(chunk,)))


def test_copies_are_counted(worker: simulated.SimulatedWorker, seen: Seen) -> None:
    copies = (step_plan.Copy(1, 0), step_plan.Copy(2, 1))
    worker.execute(step_plan.StepPlan(step=1, swaps_out=copies, swaps_in=copies[:1]))
    assert seen.asked == [(step_time.Work(), 0, 3)]


def test_prompts_differ_but_for_what_they_share() -> None:
    one, two = simulated.prompt(1, 8, 5, 99), simulated.prompt(2, 8, 5, 99)
    assert one[:5] == two[:5] == simulated.prompt(99, 5)
    assert not set(one[5:]) & set(two[5:])
    assert simulated.prompt(1, 3, 5, 99) == simulated.prompt(99, 3), "a prompt within what is shared"
    starts = {simulated.prompt(seed, 1)[0] for seed in range(5000)}
    assert len(starts) == 5000
