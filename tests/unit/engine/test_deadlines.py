"""A request's own deadline: its end is told apart from that of a queue that was too long."""

from __future__ import annotations

import pytest
from engine_bench import Bench, Finish, prompt


@pytest.fixture(params=[True, False], ids=["overlap", "in-turn"])
def overlap(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_deadline_that_passes_while_it_waits(overlap: bool) -> None:
    bench = Bench(overlap=overlap, max_num_seqs=1, max_queue_seconds=100.0)
    runs = bench.submit("runs", prompt(20, 0), 60)
    waits = bench.submit("waits", prompt(20, 1), 3, deadline_seconds=4.0)
    bench.step(3)
    bench.now = 3.9
    bench.step()
    assert waits.finish is None
    bench.now = 4.0
    bench.step()
    assert (waits.finish, waits.tokens) == (Finish.DEADLINE, [])
    assert waits.message == "the request's deadline of 4 s has passed: it took 4.0 s without a first turn"
    assert waits.retry_after >= 1
    bench.run()
    assert runs.finish is Finish.LENGTH
    bench.check_all_as_alone()
    bench.check_baseline()


def test_who_waits_too_long_for_the_queue_is_told_that_even_with_a_deadline(overlap: bool) -> None:
    bench = Bench(overlap=overlap, max_num_seqs=1, max_queue_seconds=3.0)
    bench.submit("runs", prompt(20, 0), 60)
    waits = bench.submit("waits", prompt(20, 1), 3, deadline_seconds=4.0)
    bench.step(3)
    bench.now = 3.5
    bench.step()
    assert waits.finish is Finish.TIMEOUT


def test_a_deadline_that_passes_while_it_runs_says_how_far_it_came(overlap: bool) -> None:
    bench = Bench(overlap=overlap)
    runs = bench.submit("runs", prompt(20, 0), 60, deadline_seconds=4.0)
    bench.run_until(lambda: len(runs.tokens) >= 7)
    bench.now = 4.5
    bench.step()
    assert runs.finish is Finish.DEADLINE
    told = f"and had {len(runs.tokens)} of at most 60 tokens"
    assert runs.message == f"the request's deadline of 4 s has passed: it took 4.5 s, {told}"
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


def test_a_deadline_that_passes_after_a_preemption(overlap: bool) -> None:
    bench = Bench(overlap=overlap)
    low = bench.submit("low", prompt(400, 1), 100, deadline_seconds=50.0)
    bench.run_until(lambda: len(low.tokens) >= 3)
    bench.submit("high", prompt(700, 2), 200, priority=1)
    bench.run_until(lambda: bench.stats.preemptions_total == 1)
    bench.now = 51.0
    bench.step()
    assert low.finish is Finish.DEADLINE
    assert "tokens" in low.message, "it has had its first turn"
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()
