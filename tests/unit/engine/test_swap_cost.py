"""What swapping costs is learned from what it took, and `auto` decides by that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from engine_bench import Bench, per_token, prompt

from tidemark_runtime.core import step_plan, step_time, victims

CHEAP, DEAR = 0.0016, 0.05
"""Seconds a page: 27 pages there and back take 0.09 or 2.7 s. To compute their 420 tokens again takes 0.42 s."""


def bench(measured: float, mode: str = "auto") -> Bench:
    """Measured at the start: `measured` seconds a page."""
    seconds = per_token(0.002, decode=0.0005, prompt_token=0.001)
    return Bench(num_host_pages=64, page_copy_seconds=measured, step_seconds=seconds, preemption_mode=mode)


def copies_take(made: Bench, seconds: Callable[[step_plan.StepPlan], float]) -> None:
    execute = made.worker.execute

    def slower(plan: step_plan.StepPlan) -> step_plan.StepResult:
        took = seconds(plan)
        return dataclasses.replace(execute(plan), execute_seconds=took, swap_seconds=took)

    made.worker.execute = slower  # type: ignore[method-assign]


def each(page: float) -> Callable[[step_plan.StepPlan], float]:
    return lambda plan: page * (len(plan.swaps_out) + len(plan.swaps_in))


def the_first_ones_more(first: float, page: float) -> Callable[[step_plan.StepPlan], float]:
    """The system provides the memory of the swap space when it is written for the first time."""
    written: set[int] = set()

    def seconds(plan: step_plan.StepPlan) -> float:
        fresh = {copy.host_page for copy in plan.swaps_out} - written
        written.update(fresh)
        return first * len(fresh) + page * (len(plan.swaps_out) + len(plan.swaps_in) - len(fresh))

    return seconds


def way_back(made: Bench, turn: int, num_tokens: int = 400) -> str:
    """Of a request that has to give way."""
    before = made.stats.preemptions_swap_total
    low = made.submit(f"low{turn}", prompt(num_tokens, 2 * turn), 100)
    made.run_until(lambda: len(low.tokens) >= 20)
    made.submit(f"high{turn}", prompt(1000 - num_tokens // 2, 2 * turn + 1), 10, priority=1)
    made.run()
    made.check_all_as_alone()
    made.check_baseline()
    assert low.num_preemptions == 1
    return "swap" if made.stats.preemptions_swap_total > before else "recompute"


def test_copies_that_turn_out_dear_are_made_once() -> None:
    made = bench(CHEAP)
    copies_take(made, each(DEAR))
    assert [way_back(made, turn) for turn in range(4)] == ["swap", "recompute", "recompute", "recompute"]


def test_copies_that_turn_out_cheap_are_made_from_then_on() -> None:
    made = bench(DEAR)
    copies_take(made, each(CHEAP))
    assert way_back(made, 0) == "recompute"
    made.configure(preemption_mode="swap")
    assert way_back(made, 1) == "swap"
    made.configure(preemption_mode="auto")
    assert [way_back(made, turn) for turn in range(2, 4)] == ["swap", "swap"]


def test_as_measured_at_the_start_nothing_changes() -> None:
    made = bench(CHEAP)
    copies_take(made, each(CHEAP))
    assert [way_back(made, turn) for turn in range(3)] == ["swap"] * 3


def test_only_the_first_copy_into_a_page_of_the_swap_space_is_dear() -> None:
    """28 pages have been written by then, and that is what the second one needs; the third needs more."""
    made = bench(CHEAP)
    copies_take(made, the_first_ones_more(DEAR, CHEAP))
    assert [way_back(made, turn) for turn in range(2)] == ["swap", "swap"]
    assert way_back(made, 2, num_tokens=800) == "recompute"
    assert way_back(made, 3) == "swap"


# ---- the prices --------------------------------------------------------------------------------------------------


def costs(measured: float = CHEAP) -> victims.Costs:
    return victims.Costs(step_time.StepTime(), measured)


def copies(*host_pages: int) -> tuple[step_plan.Copy, ...]:
    return tuple(step_plan.Copy(page, page) for page in host_pages)


def test_before_the_first_copy_the_measurement_counts() -> None:
    assert costs().swap_seconds(10, 10) == pytest.approx(20 * CHEAP)
    assert costs().page_copy_seconds == CHEAP


def test_first_copies_and_others_are_told_apart() -> None:
    learned = costs()
    for turn in range(200):
        learned.observe(copies(2 * turn, 2 * turn + 1), 1, 2 * DEAR + CHEAP)
    assert learned.page_copy_seconds == CHEAP
    assert learned.swap_seconds(10, 4) == pytest.approx(4 * DEAR + 16 * CHEAP, rel=0.01)
    for _ in range(200):
        learned.observe(copies(0, 1), 2, 4 * CHEAP / 2)
    assert learned.page_copy_seconds == pytest.approx(CHEAP / 2, rel=0.01)


def test_what_was_dear_once_is_tried_again_after_a_while() -> None:
    learned = costs()
    learned.observe(copies(*range(27)), 0, 27 * DEAR)
    learned.observe((), 27, 27 * DEAR)
    assert learned.swap_seconds(27, 27) > 2.0
    for _ in range(step_time.MEMORY_STEPS):
        learned.observe((), 0, 0.0)
    assert learned.swap_seconds(27, 27) > 1.0, "not at once"
    for _ in range(10 * step_time.MEMORY_STEPS):
        learned.observe((), 0, 0.0)
    assert learned.swap_seconds(27, 27) < 0.1


def test_an_engine_without_swap_space_has_no_price() -> None:
    learned = costs(0.0)
    learned.observe((), 0, 0.0)
    assert learned.page_copy_seconds == 0.0
