"""Which keys are due, with time as a plain argument."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator import settings
from tidemark_operator.reconcile import queue

QUICK = settings.QueueSettings(min_interval_seconds=1, backoff_seconds=2, max_backoff_seconds=30, jitter_ratio=0)


def ledger(quick: settings.QueueSettings = QUICK) -> queue.Ledger[str]:
    return queue.Ledger(quick, random.Random(1))


def test_a_key_is_there_once_however_often_it_is_added() -> None:
    made = ledger()
    for _ in range(100):
        made.add("a", 0)
    assert made.start(0) == ["a"]
    assert made.start(0) == []


def test_events_during_a_pass_cause_exactly_one_more() -> None:
    made = ledger()
    made.add("a", 0)
    made.start(0)
    for second in (1, 2, 3):
        made.add("a", second)
        assert made.start(second) == []
    made.succeeded("a", 4, None)
    assert made.start(4) == ["a"]
    made.succeeded("a", 5, None)
    assert made.start(100) == []
    assert made.next_start(100) is None


def test_a_key_starts_no_more_often_than_the_interval() -> None:
    made = ledger()
    made.add("a", 0)
    made.start(0)
    made.succeeded("a", 0.1, None)
    made.add("a", 0.1)
    assert made.start(0.9) == []
    assert made.next_start(0.9) == pytest.approx(0.1)
    assert made.start(1) == ["a"]


def test_failures_wait_longer_each_time_up_to_the_cap_and_success_forgets_them() -> None:
    made = ledger()
    now, delays = 0.0, []
    made.add("a", now)
    for _ in range(6):
        assert made.start(now) == ["a"]
        delays.append(made.failed("a", now))
        now += delays[-1]
    assert delays == [2, 4, 8, 16, 30, 30]
    assert made.start(now) == ["a"]
    made.succeeded("a", now, None)
    made.add("a", now + 5)
    made.start(now + 5)
    assert made.failed("a", now + 5) == 2


def test_jitter_shortens_and_never_lengthens() -> None:
    made = ledger(settings.QueueSettings(backoff_seconds=10, jitter_ratio=0.5))
    delays = {made.failed(str(number), 0) for number in range(50)}
    assert len(delays) > 40
    assert all(5 <= delay <= 10 for delay in delays)


def test_an_event_comes_before_a_retry() -> None:
    made = ledger()
    made.add("a", 0)
    made.start(0)
    assert made.failed("a", 10) == 2
    made.add("a", 10)
    assert made.start(10) == ["a"]
    made.succeeded("a", 10, None)
    assert made.start(100) == []


def test_a_gone_object_leaves_nothing_pending_b065() -> None:
    made = ledger()
    made.add("a", 0)
    made.start(0)
    made.failed("a", 0)
    made.start(50)
    made.ended("a")
    assert len(made) == 0
    assert made.next_start(1000) is None


def test_all_together_keep_to_the_rate() -> None:
    made = ledger(settings.QueueSettings(rate_per_second=2, burst=3, max_concurrency=100))
    for number in range(10):
        made.add(str(number), 0)
    assert len(made.start(0)) == 3
    assert made.next_start(0) == pytest.approx(0.5)
    assert len(made.start(0.5)) == 1
    assert len(made.start(1.5)) == 2


def test_no_more_than_so_many_at_a_time() -> None:
    made = ledger(settings.QueueSettings(max_concurrency=2))
    for number in range(3):
        made.add(str(number), 0)
    assert len(made.start(0)) == 2
    assert made.next_start(0) is None
    made.succeeded("0", 1, None)
    assert made.start(1) == ["2"]


def test_look_again_later() -> None:
    made = ledger()
    made.add("a", 0)
    made.start(0)
    made.succeeded("a", 0, 60)
    assert made.next_start(0) == 60
    made.add("a", 10)
    assert made.start(10) == ["a"]


def test_what_happened_goes_before_what_is_only_looked_at_again() -> None:
    made = ledger(settings.QueueSettings(rate_per_second=1, burst=3, max_concurrency=10))
    for key in "abc":
        made.add(key, 0)
    for key in made.start(0):
        made.succeeded(key, 0, 5)
    made.add("d", 7)
    assert made.start(7) == ["d", "a", "b"]  # three tokens, and `a` to `c` have been due for longer
    made.add("c", 8)  # it waits already, for no reason
    made.succeeded("a", 8, 0)
    assert made.start(8) == ["c"]
    assert made.start(9) == ["a"]


def test_one_that_only_looks_again_has_its_turn_however_much_happens() -> None:
    quick = settings.QueueSettings(
        rate_per_second=1, burst=1, min_interval_seconds=0, max_concurrency=1, urgent_in_a_row=3
    )
    made = ledger(quick)
    made.add("quiet", 0, 1, urgent=False)
    started = []
    for second in range(1, 9):
        made.add("a", second)
        made.add("b", second)
        (key,) = made.start(second)
        started.append(key)
        made.succeeded(key, second, 0 if key == "quiet" else None)
    assert [number for number, key in enumerate(started) if key == "quiet"] == [3, 7]


def test_an_urgent_retry_stays_urgent_when_something_looks_earlier() -> None:
    made = ledger(settings.QueueSettings(rate_per_second=1, burst=1, max_concurrency=1))
    made.add("a", 0, 10)
    made.add("b", 0, 1, urgent=False)
    made.add("a", 0, 2, urgent=False)
    assert made.start(2) == ["a"]


def test_a_pass_that_failed_is_tried_again_before_others_are_looked_at() -> None:
    made = ledger(settings.QueueSettings(rate_per_second=1, burst=2, max_concurrency=10, backoff_seconds=1))
    for key in "ab":
        made.add(key, 0)
    made.start(0)
    made.succeeded("a", 0, 0.5)
    made.failed("b", 0)
    assert made.start(1) == ["b"]


def test_a_key_that_is_never_quiet_leaves_nothing_behind() -> None:
    made = ledger()
    for second in range(10_000):
        made.add("a", second)
        assert made.start(second) == ["a"]
        made.succeeded("a", second, 3600)
    assert len(made._later) < 300


def test_one_that_waits_for_its_turn_and_is_woken_each_time_leaves_nothing_behind() -> None:
    quick = settings.QueueSettings(
        rate_per_second=1e6, burst=2, min_interval_seconds=0, max_concurrency=1, urgent_in_a_row=10**9
    )
    made = ledger(quick)
    made.add("quiet", 0, urgent=False)  # due for longest, and never its turn
    for second in range(1, 10_000):
        made.add("a", second, urgent=False)
        made.next_start(second)
        made.add("a", second)
        assert made.start(second) == ["a"]
        made.succeeded("a", second, None)
    assert sum(map(len, made._now.values())) < 300


Action = st.tuples(st.sampled_from(["add", "start", "ok", "fail"]), st.sampled_from("abc"), st.floats(0.01, 3))


@given(st.lists(Action, max_size=60))
def test_nothing_added_is_ever_lost_and_no_key_runs_twice_at_once(actions: list[tuple[str, str, float]]) -> None:
    made = ledger()
    now = 0.0
    owed: set[str] = set()
    running: set[str] = set()
    for kind, key, pause in actions:
        now += pause
        if kind == "add":
            made.add(key, now)
            owed.add(key)
        elif kind == "start":
            for started in made.start(now):
                assert started not in running
                running.add(started)
                owed.discard(started)
        elif key in running:
            running.discard(key)
            if kind == "ok":
                made.succeeded(key, now, None)
            else:
                made.failed(key, now)
                owed.add(key)
    for key in running:
        made.succeeded(key, now, None)
    assert owed <= set(made.start(now + 1000))
