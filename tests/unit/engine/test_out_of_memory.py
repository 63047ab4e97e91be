"""Memory runs out in a step: who ran ends with an error that says so, who waits goes on, nothing is lost or counted
twice."""

from __future__ import annotations

import pytest
from engine_bench import Bench, Finish, prompt
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.core import step_plan


def failing(bench: Bench, *calls: int) -> None:
    """The steps planned as number `calls` from now on, counted from 0, come to nothing."""
    first = len(bench.plans)
    bench.fails = lambda _: len(bench.plans) - 1 - first in calls


@pytest.mark.parametrize("overlap", [True, False])
def test_those_that_ran_end_and_those_that_wait_get_all_they_asked_for(overlap: bool) -> None:
    bench = Bench(max_num_seqs=2, overlap=overlap)
    for number in range(5):
        bench.submit(f"r{number}", prompt(20, number), 12)
    bench.step(4)
    failing(bench, 0)
    bench.run()
    ran, waited = [bench.records[f"r{number}"] for number in (0, 1)], [bench.records[f"r{n}"] for n in (2, 3, 4)]
    assert {record.finish for record in ran} == {Finish.FAILED}
    assert "ended this request and 1 others that ran with it: memory ran out in a step" in ran[0].message
    assert "scheduler.maxNumBatchedTokens" in ran[0].message
    assert {record.finish for record in waited} == {Finish.LENGTH}
    assert all(record.tokens == record.solo for record in waited)
    assert bench.stats.out_of_memory_total == 1
    bench.check_all_as_alone()
    bench.check_baseline()


def test_it_is_counted_on_and_good_steps_between_are_forgiving() -> None:
    bench = Bench(max_num_seqs=1)
    for number in range(8):
        bench.submit(f"r{number}", prompt(20, number), 3)
    unlucky = {"r0", "r1", "r3", "r4", "r5", "r7"}
    bench.fails = lambda plan: bool(plan.joins) and bench.joins[-1] in unlucky
    bench.run()
    assert {name for name, record in bench.records.items() if record.finish is Finish.FAILED} == unlucky
    assert bench.stats.out_of_memory_total == len(unlucky)


def test_an_engine_without_one_good_step_gives_up() -> None:
    bench = Bench(max_num_seqs=1)
    for number in range(8):
        bench.submit(f"r{number}", prompt(20, number), 3)
    bench.fails = lambda _: True
    with pytest.raises(errors.OutOfMemory, match="memory ran out in a step: 5 of 4 bytes"):
        bench.run()
    assert sum(record.finish is Finish.FAILED for record in bench.records.values()) == 3


def test_what_the_prefix_cache_held_before_is_right_afterwards() -> None:
    bench = Bench()
    bench.submit("first", prompt(64), 4)
    bench.run()
    bench.submit("second", [*prompt(64), *prompt(40, 1)], 8)
    failing(bench, 0, 1)
    bench.run()
    assert bench.records["second"].finish is Finish.FAILED
    third = bench.submit("third", [*prompt(64), *prompt(40, 1)][:90], 8)
    bench.run()
    assert third.tokens == third.solo
    assert third.cached[0] == 64


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 1)), min_size=1, max_size=12),
    failures=st.sets(st.integers(0, 60), max_size=8),
    tokens=st.integers(80, 300),
    host_tokens=st.sampled_from([0, 200]),
    mode=st.sampled_from(["auto", "swap", "recompute"]),
    overlap=st.booleans(),
    pause=st.integers(0, 10),
)
@example(  # one is preempted in the very step that comes to nothing
    lengths=[(1, 8, 0), (1, 7, 0), (1, 8, 0), (54, 12, 0), (14, 12, 1)],
    failures={0, 21},
    tokens=80,
    host_tokens=0,
    mode="auto",
    overlap=True,
    pause=0,
)
def test_whenever_it_happens_everybody_ends_once_and_pages_add_up(
    lengths: list[tuple[int, int, int]],
    failures: set[int],
    tokens: int,
    host_tokens: int,
    mode: str,
    overlap: bool,
    pause: int,
) -> None:
    bench = Bench(
        num_pages=tokens // 8 + 8,
        block_size=8,
        num_host_pages=host_tokens // 8,
        page_copy_seconds=0.0001,
        overlap=overlap,
        max_num_seqs=4,
        max_num_batched_tokens=48,
        preemption_mode=mode,
    )
    bench.fails = lambda plan: plan.step in failures and plan.step - 1 not in failures
    for number, (length, max_tokens, family) in enumerate(lengths):
        bench.submit(f"r{number}", [*prompt(24, 1000 + family), *prompt(length, number)], max_tokens)
        if number == len(lengths) // 2:
            bench.step(pause)
    before = 0
    for _ in bench.turning(3000):
        stats = bench.stats
        assert stats.out_of_memory_total >= before
        before = stats.out_of_memory_total
        if not bench.engine.has_work:
            break
    bench.check_all_as_alone()
    bench.check_baseline()
    assert before <= len(failures)
    assert (before == 0) == all(record.finish is not Finish.FAILED for record in bench.records.values())


def test_copies_of_a_step_that_came_to_nothing_are_not_believed() -> None:
    """Who was preempted by copies in that very step computes anew: its place in the swap space was never written."""
    bench = Bench(num_pages=8, block_size=8, num_host_pages=16, page_copy_seconds=1e-6, preemption_mode="swap")
    for number in range(2):
        bench.submit(f"r{number}", prompt(20, number), 40)
    lost: list[int] = []

    def fails(plan: step_plan.StepPlan) -> bool:
        if plan.swaps_out and not lost:
            lost.append(plan.step)
        return plan.step in lost

    bench.fails = fails
    bench.run()
    assert lost
    assert bench.stats.preemptions_swap_total >= 1
    assert sorted(record.finish for record in bench.records.values()) == sorted([Finish.FAILED, Finish.LENGTH])
    bench.check_all_as_alone()
    bench.check_baseline()
