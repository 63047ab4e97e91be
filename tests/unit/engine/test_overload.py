"""More comes than can be served: who is refused, when it may come back, and that first tries do not notice retries."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from engine_bench import Bench, Finish, Record, per_token, prompt

from tidemark_runtime.core import overload

Reason = overload.Reason


def full(*, places: int, **more: object) -> Bench:
    """One runs, and `places` may wait."""
    bench = Bench(max_num_seqs=1, max_queued_requests=places, **more)  # type: ignore[arg-type]
    bench.submit("runs", prompt(20, 0), 200, priority=100)
    bench.step(2)
    return bench


def wait(bench: Bench, name: str, **more: object) -> Record:
    return bench.submit(name, prompt(10, 1 + len(bench.records)), 3, **more)


def is_refused(record: Record, reason: Reason) -> bool:
    return record.finish is Finish.REJECTED and record.reject is reason


# ---- who goes --------------------------------------------------------------------------------------------------------


def test_a_full_queue_loses_its_lowest_priority_first_and_of_these_the_last() -> None:
    bench = full(places=4)
    for index, priority in enumerate([0, 1, 0, 1]):
        wait(bench, f"p{priority}-{index}", priority=priority)
    first = wait(bench, "first", priority=2)
    assert first.finish is None
    assert is_refused(bench.records["p0-2"], Reason.SHED)
    assert wait(bench, "second", priority=2).finish is None
    assert is_refused(bench.records["p0-0"], Reason.SHED)
    assert wait(bench, "third", priority=2).finish is None
    assert is_refused(bench.records["p1-3"], Reason.SHED)
    assert is_refused(wait(bench, "low", priority=1), Reason.QUEUE_FULL)
    assert is_refused(wait(bench, "low too", priority=0), Reason.QUEUE_FULL)
    for record in bench.records.values():
        if record.finish is Finish.REJECTED:
            assert record.retry_after >= 1
            assert record.message
    bench.abort("runs")
    bench.run()
    assert [name for name in bench.joins if name != "runs"] == ["first", "second", "third", "p1-1"]


def test_a_first_try_does_not_push_out_a_first_try_of_its_own_class() -> None:
    bench = full(places=2)
    waiting = [wait(bench, name) for name in "ab"]
    assert is_refused(wait(bench, "c"), Reason.QUEUE_FULL)
    assert [record.finish for record in waiting] == [None, None]


def test_a_first_try_pushes_out_a_retry_of_its_own_class_but_none_of_a_higher_one() -> None:
    bench = full(places=4, retry_share=0.5)
    wait(bench, "first")
    kept = wait(bench, "important retry", is_retry=True, priority=1)
    gone = wait(bench, "retry", is_retry=True)
    wait(bench, "another first")
    assert wait(bench, "newcomer").finish is None
    assert is_refused(gone, Reason.SHED)
    assert is_refused(wait(bench, "one more"), Reason.QUEUE_FULL)
    assert kept.finish is None


def test_a_retry_pushes_out_nobody_of_its_own_class() -> None:
    bench = full(places=4, retry_share=0.5)
    waiting = [wait(bench, "a"), wait(bench, "b"), wait(bench, "c"), wait(bench, "r", is_retry=True)]
    late = wait(bench, "late retry", is_retry=True)
    assert late.finish is Finish.REJECTED
    assert late.reject in (Reason.QUEUE_FULL, Reason.RETRY_BUDGET)
    assert [record.finish for record in waiting] == [None] * 4


def test_those_who_run_are_never_shed() -> None:
    bench = full(places=1)
    wait(bench, "a", priority=1)
    wait(bench, "b", priority=2)
    wait(bench, "c", priority=3)
    assert bench.records["runs"].finish is None
    bench.run()
    assert bench.records["runs"].finish is Finish.LENGTH
    bench.check_all_as_alone()


def test_one_that_was_preempted_is_not_shed_it_has_had_its_turn() -> None:
    """A preempted request never fails for it."""
    bench = Bench(max_queued_requests=1)
    low = bench.submit("low", prompt(400, 1), 100)
    bench.run_until(lambda: low.tokens)
    bench.submit("high", prompt(700, 2), 100, priority=1)
    bench.run_until(lambda: bench.stats.preemptions_total == 1)
    for index in range(5):
        wait(bench, f"more{index}", priority=2 + index)
    bench.run()
    assert low.finish is Finish.LENGTH
    bench.check_all_as_alone()


def test_n_choices_push_out_n_or_nobody() -> None:
    bench = full(places=4)
    for index in range(4):
        wait(bench, str(index), priority=index % 2)
    bench.submit_all([(f"choice{index}", prompt(5, 90 + index), 3) for index in range(3)], priority=1)
    assert all(is_refused(bench.records[f"choice{index}"], Reason.QUEUE_FULL) for index in range(3))
    assert [bench.records[str(index)].finish for index in range(4)] == [None] * 4
    bench.submit_all([(f"again{index}", prompt(5, 90 + index), 3) for index in range(2)], priority=1)
    assert [bench.records[f"again{index}"].finish for index in range(2)] == [None, None]
    assert [is_refused(bench.records[str(index)], Reason.SHED) for index in range(4)] == [True, False, True, False]


def test_a_limit_of_tokens_sheds_until_there_is_room() -> None:
    bench = Bench(max_num_seqs=1, max_queued_tokens=300)
    bench.submit("runs", prompt(20, 0), 200, priority=9)
    bench.step(2)
    small = [bench.submit(f"small{index}", prompt(50, 1 + index), 50) for index in range(3)]
    assert bench.submit("important", prompt(100, 9), 50, priority=1).finish is None
    assert [is_refused(record, Reason.SHED) for record in small] == [False, True, True]


# ---- retries ---------------------------------------------------------------------------------------------------------


def test_retries_have_a_tenth_of_the_queue() -> None:
    bench = full(places=20, retry_share=0.1)
    assert [wait(bench, f"r{index}", is_retry=True).finish for index in range(2)] == [None, None]
    assert is_refused(wait(bench, "r2", is_retry=True), Reason.RETRY_BUDGET)
    for index in range(18):
        assert wait(bench, f"f{index}").finish is None


def test_the_share_of_retries_is_hot() -> None:
    bench = full(places=20, retry_share=0.0)
    assert is_refused(wait(bench, "a", is_retry=True), Reason.RETRY_BUDGET)
    bench.configure(retry_share=0.1)
    assert wait(bench, "b", is_retry=True).finish is None


def test_a_retry_on_an_idle_engine_is_a_request_like_any_other() -> None:
    for share in (0.0, 0.1):
        bench = Bench(retry_share=share)
        record = wait(bench, "r", is_retry=True)
        bench.run()
        assert record.finish is Finish.LENGTH


def test_retries_start_after_first_tries() -> None:
    bench = full(places=20, retry_share=0.5, aging_seconds=1000.0)
    for index in range(3):
        wait(bench, f"r{index}", is_retry=True)
    for index in range(3):
        wait(bench, f"f{index}")
    bench.abort("runs")
    bench.run()
    assert bench.joins[1:] == ["f0", "f1", "f2", "r0", "r1", "r2"]


@dataclass(frozen=True)
class Outcome:
    served: int
    """First tries that ended by themselves within the time."""
    retries_served: int
    first_tokens_median: float


CAPACITY = 8 / (11 * 0.1)
"""Requests a second: 8 at a time, 11 steps of 0.1 s each."""


def storm(
    first_tries: float, retries: float, seconds: float = 60.0, *, react: bool = False, aging_seconds: float = 10.0
) -> Outcome:
    """Arrivals at random, at so many times the capacity, first tries the same ones in every run. `react`: a refused
    first try comes back as a retry after 1 s, and again, up to five times. The queue is about 5 s long."""
    bench = Bench(
        overlap=False,
        step_seconds=per_token(0.1),
        max_queued_requests=40,
        max_queue_seconds=20.0,
        aging_seconds=aging_seconds,
        prefix_caching=False,
    )
    arrivals = [
        (at, kind, 0)
        for kind, rate in (("first", first_tries), ("retry", retries))
        for at in times(rate * CAPACITY, seconds, seed=kind)
    ]
    arrivals.sort()
    number = 0
    while bench.now < seconds:
        while arrivals and arrivals[0][0] <= bench.now:
            _, kind, tries = arrivals.pop(0)
            number += 1
            record = bench.submit(f"{kind}{number}", prompt(8, number), 10, is_retry=kind == "retry")
            if record.finish is Finish.REJECTED and react and tries < 5:
                arrivals.append((bench.now + 1.0, "retry", tries + 1))
                arrivals.sort()
        if bench.engine.has_work:
            bench.step()
        else:
            bench.now = arrivals[0][0] if arrivals else seconds
    served = {kind: [each for each in ended(bench) if each.name.startswith(kind)] for kind in ("first", "retry")}
    waits = sorted(each.seconds_to_first_token for each in served["first"])
    return Outcome(len(served["first"]), len(served["retry"]), waits[len(waits) // 2])


def ended(bench: Bench) -> list[Record]:
    return [record for record in bench.records.values() if record.finish is Finish.LENGTH]


def times(rate: float, seconds: float, seed: str) -> list[float]:
    numbers, at, found = random.Random(seed), 0.0, list[float]()
    while rate and (at := at + numbers.expovariate(rate)) < seconds:
        found.append(at)
    return found


@pytest.mark.parametrize("load", [0.8, 1.3])
def test_a_storm_of_retries_at_three_times_the_load_leaves_first_tries_what_they_had(load: float) -> None:
    calm, pressed = storm(load, 0.0), storm(load, 3.0)
    assert calm.served > 0.9 * min(load, 1.0) * CAPACITY * 60 - 20, "the calm run is what it should be"
    assert pressed.served >= 0.95 * calm.served
    if load < 1:
        assert pressed.retries_served > 0, "what first tries leave, retries get"


def test_a_storm_of_retries_that_have_aged_leaves_first_tries_what_they_had() -> None:
    """A queue that is longer than `aging_seconds`: all that wait are old, first tries and retries."""
    calm, pressed = storm(1.3, 0.0, aging_seconds=2.0), storm(1.3, 3.0, aging_seconds=2.0)
    assert pressed.served >= 0.95 * calm.served


def test_clients_that_try_again_do_not_push_out_first_tries() -> None:
    """The storm that overload makes by itself: each refusal comes back, up to five times."""
    calm, pressed = storm(1.5, 0.0), storm(1.5, 0.0, react=True)
    assert pressed.served >= 0.95 * calm.served


def test_without_places_to_wait_only_who_starts_at_once_is_taken() -> None:
    bench = Bench(max_num_seqs=1, max_queued_requests=0)
    assert wait(bench, "starts").finish is None
    bench.step()
    assert is_refused(wait(bench, "waits"), Reason.QUEUE_FULL)
    bench.run()
    assert wait(bench, "starts too").finish is None


# ---- when to come back -----------------------------------------------------------------------------------------------


def overloaded(**scheduler: object) -> Bench:
    """Twenty seconds at 1.5 times the capacity: what waits is predictable from then on."""
    bench = Bench(overlap=False, step_seconds=per_token(0.1), prefix_caching=False, **scheduler)  # type: ignore[arg-type]
    bring(bench, 20.0)
    return bench


def bring(bench: Bench, seconds: float, times_capacity: float = 1.5) -> None:
    end = bench.now + seconds
    next_at = bench.now
    while bench.now < end:
        while next_at <= bench.now:
            number = len(bench.records)
            bench.submit(f"bring{number}", prompt(8, number), 10)
            next_at += 1 / (times_capacity * CAPACITY)
        bench.step()


def test_retry_after_is_about_as_long_as_what_waits_takes() -> None:
    bench = overloaded(max_queued_requests=40)
    for index in range(3):
        refused = bench.submit(f"one more{index}", prompt(8, 70_000 + index), 10)
    assert is_refused(refused, Reason.QUEUE_FULL)
    waiting = [record for record in bench.records.values() if record.finish is None and not record.join_steps]
    assert 40 <= len(waiting) <= 48, "places in the queue, and those in the batch that have just become free"
    asked = bench.now
    bench.run_until(lambda: all(record.join_steps for record in waiting))
    assert refused.retry_after == pytest.approx(bench.now - asked, rel=0.3)


def test_retry_after_of_a_higher_priority_counts_only_what_is_ahead_of_it() -> None:
    bench = overloaded(max_queued_requests=40)
    low = bench.submit("low", prompt(8, 70_000), 10)
    for index in range(40):
        bench.submit(f"high{index}", prompt(8, 71_000 + index), 10, priority=1)
    shed = [record for record in bench.records.values() if record.reject is Reason.SHED]
    assert len(shed) == 40
    assert low.retry_after > 2
    assert all(record.retry_after >= 1 for record in shed)


def test_what_would_be_late_anyway_is_refused_early() -> None:
    """About 5 s of work wait: who has 1 s is told at once, who has 30 is served in time."""
    bench = overloaded(max_queued_requests=40)
    waiting = [name for name, record in bench.records.items() if record.finish is None and not record.join_steps]
    bench.abort(*waiting[:2])
    late = bench.submit("late", prompt(8, 70_000), 10, deadline_seconds=1.0)
    assert is_refused(late, Reason.DEADLINE)
    assert late.retry_after >= 1
    assert "1" in late.message
    good = bench.submit("good", prompt(8, 70_001), 10, deadline_seconds=30.0)
    bench.run()
    assert good.finish is Finish.LENGTH


def test_on_an_idle_engine_no_deadline_is_refused_early() -> None:
    bench = overloaded(max_queued_requests=40)
    bench.run()
    bench.now += 1.0
    record = bench.submit("r", prompt(8, 70_000), 10, deadline_seconds=1.5)
    bench.run()
    assert record.finish is Finish.LENGTH


def test_who_would_wait_longer_than_allowed_is_refused_at_once_and_hardly_anybody_waits_for_nothing() -> None:
    """A queue of any length, and 3 s to wait at most. Waiting for a turn that never comes is the worst answer."""
    bench = overloaded(max_queued_requests=100_000, max_queue_seconds=3.0)
    bring(bench, 40.0)
    bench.run()
    refused = [record for record in bench.records.values() if record.reject is Reason.QUEUE_TIME]
    late = [record for record in bench.records.values() if record.finish is Finish.TIMEOUT]
    served = ended(bench)
    assert len(served) >= 0.97 * CAPACITY * 60, "the engine is never idle for it"
    assert len(late) <= 0.1 * len(refused)
    assert all(record.retry_after >= 1 for record in refused + late)
    assert max(record.seconds_to_first_token for record in served) <= 3.0 + 0.2


def test_a_slow_time_is_forgotten() -> None:
    """Nobody started for a minute behind one long answer. When it has gone, the next are not refused for that."""
    bench = Bench(max_num_seqs=1, max_queue_seconds=600.0, overlap=False, step_seconds=per_token(0.05))
    bench.submit("long", prompt(20, 1), 1200)
    bench.step(2)
    bench.submit("waits", prompt(20, 2), 5)
    bench.run()
    bench.submit("runs", prompt(20, 3), 20)
    bench.step()
    records = [bench.submit(f"next{index}", prompt(20, 4 + index), 5, deadline_seconds=30.0) for index in range(3)]
    bench.run()
    assert [record.finish for record in records] == [Finish.LENGTH] * 3
