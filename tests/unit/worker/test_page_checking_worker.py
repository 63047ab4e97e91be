"""The worker that other tests rely on: right plans give each sequence its text, and every kind of mistake shows."""

from __future__ import annotations

import random

import page_checking_worker
import pytest
import random_plans
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_runtime.core import sampling, step_plan

PARAMS = sampling.SamplingParams(max_tokens=6, temperature=0.0)
PROMPT = (1, 2, 3, 4, 5, 6)
NUM_SLOTS = 4


def make_worker(num_pages: int = 12, block_size: int = 4) -> page_checking_worker.PageCheckingWorker:
    return page_checking_worker.PageCheckingWorker(
        num_pages=num_pages, block_size=block_size, max_num_seqs=NUM_SLOTS, num_host_pages=6, page_copy_seconds=0.5
    )


def join(slot: int, *pages: int, token_ids: tuple[int, ...] = PROMPT) -> step_plan.Join:
    return step_plan.Join(slot, token_ids, len(token_ids), PARAMS, pages)


def prefill(slot: int, start: int = 0, end: int = len(PROMPT), *, samples: bool = True) -> step_plan.Chunk:
    return step_plan.Chunk(slot, start, end - start, samples)


def started() -> tuple[page_checking_worker.PageCheckingWorker, tuple[int, ...]]:
    """A worker with PROMPT in slot 0 and pages 0 and 1, and its first token."""
    worker = make_worker()
    plan = step_plan.StepPlan(step=1, joins=(join(0, 0, 1),), chunks=(prefill(0),))
    return worker, worker.execute(plan).token_ids


@given(seed=st.integers(0, 10**9), block_size=st.integers(1, 6), spare_pages=st.integers(0, 8))
@settings(deadline=None, max_examples=40)
def test_random_plans_give_what_each_sequence_gets_alone(seed: int, block_size: int, spare_pages: int) -> None:
    chance = random.Random(seed)
    sequences = [random_plans.Running([7] * chance.randint(0, 8) + [chance.randrange(9)], PARAMS) for _ in range(6)]
    worker = make_worker(-(-15 // block_size) + spare_pages, block_size)
    random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS).run(worker)
    for sequence in sequences:
        assert sequence.tokens[len(sequence.prompt) :] == page_checking_worker.solo(sequence.prompt, PARAMS.max_tokens)


def test_alone_is_one_token_after_the_other() -> None:
    tokens = list(PROMPT)
    for _ in range(5):
        tokens.append(page_checking_worker.next_token(tokens))
    assert page_checking_worker.solo(PROMPT, 5) == tokens[6:]
    assert page_checking_worker.solo(PROMPT, 5, stop_token_ids=(tokens[7],)) == tokens[6:8]


def test_copies_take_the_time_that_was_given() -> None:
    worker, _ = started()
    result = worker.execute(
        step_plan.StepPlan(step=2, swaps_out=(step_plan.Copy(0, 3),), swaps_in=(step_plan.Copy(5, 3),))
    )
    assert (result.token_ids, result.swap_seconds, result.execute_seconds) == ((), 1.0, 1.0)


def resumed(*copies_in: tuple[int, int], pages: tuple[int, ...], late: bool = False, reuse: bool = False) -> bool:
    """PROMPT is swapped out and comes back; whether its second token is the right one."""
    worker, first = started()
    out = (step_plan.Copy(0, 4), step_plan.Copy(1, 5))
    other = (join(1, 0, 1, token_ids=(9,) * 6),) if reuse else ()
    chunks = tuple(prefill(1) for _ in other)
    worker.execute(step_plan.StepPlan(step=2, swaps_out=() if late else out, joins=other, chunks=chunks))
    if late:
        worker.execute(step_plan.StepPlan(step=3, swaps_out=out))
    swaps_in = tuple(step_plan.Copy(*pair) for pair in copies_in)
    joins = (join(2, *pages, token_ids=(*PROMPT, *first)),)
    plan = step_plan.StepPlan(step=4, swaps_in=swaps_in, joins=joins, decodes=(2,))
    return list(worker.execute(plan).token_ids) == page_checking_worker.solo(PROMPT, 2)[1:]


def test_swapped_out_and_in_the_text_goes_on() -> None:
    assert resumed((7, 4), (8, 5), pages=(7, 8))
    assert resumed((7, 4), (8, 5), pages=(7, 8), reuse=True)
    assert resumed((0, 4), (1, 5), pages=(0, 1), reuse=True)


def test_pages_in_the_wrong_order_change_the_text() -> None:
    """The last page is full here only of what fits: reading it first meets rows nobody wrote."""
    with pytest.raises(page_checking_worker.WrongPlan, match="reads what nobody wrote"):
        resumed((7, 5), (8, 4), pages=(7, 8))


def test_a_page_reused_before_its_copy_changes_the_text() -> None:
    assert not resumed((7, 4), (8, 5), pages=(7, 8), late=True, reuse=True)


def test_a_page_not_copied_back_stops() -> None:
    with pytest.raises(page_checking_worker.WrongPlan, match="reads what nobody wrote"):
        resumed((7, 4), pages=(7, 8))


def test_a_host_page_given_to_another_too_early_changes_the_text() -> None:
    worker, first = started()
    worker.execute(
        step_plan.StepPlan(
            step=2,
            swaps_out=(step_plan.Copy(0, 4), step_plan.Copy(1, 5)),
            joins=(join(1, 2, 3, token_ids=(9,) * 6),),
            chunks=(prefill(1),),
        )
    )
    plan = step_plan.StepPlan(
        step=3,
        swaps_out=(step_plan.Copy(2, 4),),  # before the copies in: what they were meant to find is gone
        swaps_in=(step_plan.Copy(7, 4), step_plan.Copy(8, 5)),
        joins=(join(2, 7, 8, token_ids=(*PROMPT, *first)),),
        decodes=(2,),
    )
    assert list(worker.execute(plan).token_ids) != page_checking_worker.solo(PROMPT, 2)[1:]


def test_a_page_handed_out_twice_changes_the_text() -> None:
    worker, first = started()
    worker.execute(step_plan.StepPlan(step=2, joins=(join(1, 1, token_ids=(9, 9)),), chunks=(prefill(1, 0, 2),)))
    found = worker.execute(step_plan.StepPlan(step=3, decodes=(0,))).token_ids
    assert [*first, *found] != page_checking_worker.solo(PROMPT, 2)


def test_a_hit_shares_pages_and_a_hit_after_another_beginning_changes_the_text() -> None:
    """The second page of both holds the same tokens: only what came before differs, and that is enough."""
    same, other = (1, 2, 3, 4), (4, 3, 2, 1)
    tail = (5, 6, 7, 8)
    worker = make_worker()
    joins = (join(0, 0, 1, token_ids=same + tail), join(1, 2, 3, token_ids=other + tail))
    worker.execute(step_plan.StepPlan(step=1, joins=joins, chunks=(prefill(0, 0, 8), prefill(1, 0, 8))))
    tokens = (*same, *tail, 9)
    right = step_plan.StepPlan(step=2, joins=(join(2, 0, 1, 6, token_ids=tokens),), chunks=(prefill(2, 8, 9),))
    wrong = step_plan.StepPlan(step=3, joins=(join(3, 0, 3, 7, token_ids=tokens),), chunks=(prefill(3, 8, 9),))
    expected = page_checking_worker.solo(tokens, 1)
    assert list(worker.execute(right).token_ids) == expected
    assert list(worker.execute(wrong).token_ids) != expected


def test_what_a_step_writes_cannot_be_relied_on_in_the_same_step() -> None:
    joins = (join(0, 0, 1), join(1, 0, 2))
    plan = step_plan.StepPlan(step=1, joins=joins, chunks=(prefill(0), prefill(1, 4)))
    with pytest.raises(page_checking_worker.WrongPlan, match="reads what nobody wrote, 4 of 4"):
        make_worker().execute(plan)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (step_plan.StepPlan(step=2), "holds nothing"),
        (step_plan.StepPlan(step=1, decodes=(0,)), "comes after a later step"),
        (step_plan.StepPlan(step=2, decodes=(4,)), "a slot that there is not"),
        (step_plan.StepPlan(step=2, decodes=(1,)), "is not within 0 tokens"),
        (step_plan.StepPlan(step=2, decodes=(0, 0)), "computes twice"),
        (step_plan.StepPlan(step=2, decodes=(0,), chunks=(prefill(0, 6, 7),)), "computes twice"),
        (step_plan.StepPlan(step=2, joins=(join(1), join(1))), "two sequences join"),
        (step_plan.StepPlan(step=2, swaps_out=(step_plan.Copy(2, 0),)), "a page that nobody wrote to"),
        (step_plan.StepPlan(step=2, swaps_in=(step_plan.Copy(2, 0),)), "a page that nobody wrote to"),
        (step_plan.StepPlan(step=2, swaps_out=(step_plan.Copy(0, 6),)), "a page that there is not"),
        (step_plan.StepPlan(step=2, swaps_out=(step_plan.Copy(0, 1), step_plan.Copy(1, 1))), "write twice to a page"),
        (step_plan.StepPlan(step=2, new_pages=(step_plan.NewPages(0, (1,)),)), "holds a page twice"),
        (step_plan.StepPlan(step=2, new_pages=(step_plan.NewPages(0, (12,)),)), "are not all pages of the slab"),
        (step_plan.StepPlan(step=2, chunks=(prefill(0, 6, 8),)), "is not within 7 tokens"),
        (step_plan.StepPlan(step=2, chunks=(prefill(0, 5, 6),)), "after its last known token only"),
        (step_plan.StepPlan(step=2, chunks=(prefill(0, 6, 7, samples=False),)), "after its last known token only"),
        (step_plan.StepPlan(step=2, joins=(join(1, 2),), chunks=(prefill(1),)), r"has 1 pages of 4"),
        (
            step_plan.StepPlan(step=2, joins=(join(1, 2, 3), join(2, 2, 4)), chunks=(prefill(1), prefill(2))),
            "writes where another of this step writes",
        ),
    ],
)
def test_what_no_scheduler_can_mean_stops(plan: step_plan.StepPlan, message: str) -> None:
    worker, _ = started()
    with pytest.raises(page_checking_worker.WrongPlan, match=message):
        worker.execute(plan)


def test_a_page_copied_before_it_is_written_stops() -> None:
    plan = step_plan.StepPlan(step=1, swaps_out=(step_plan.Copy(0, 0),), joins=(join(0, 0, 1),), chunks=(prefill(0),))
    with pytest.raises(page_checking_worker.WrongPlan, match="a page that nobody wrote to"):
        make_worker().execute(plan)
