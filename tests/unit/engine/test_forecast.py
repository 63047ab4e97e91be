"""What newcomers are told of their wait, against what they then wait: within a factor of two in every kind of load."""

from __future__ import annotations

import random
from collections.abc import Callable

import page_checking_worker
import pytest
from engine_bench import Bench, Finish, Record, per_token, prompt

from tidemark_runtime.core import overload

Reason = overload.Reason
STEP_SECONDS = 0.1


def warm(*, prompt_token: float = 0.0005, **more: object) -> Bench:
    """Eight places; forty answers of all lengths have ended."""
    steps = per_token(STEP_SECONDS, prompt_token=prompt_token)
    bench = Bench(step_seconds=steps, prefix_caching=False, **{"num_pages": 4096, **more})  # type: ignore[arg-type]
    numbers = random.Random(3)
    for index in range(40):
        bench.submit(f"warm{index}", prompt(numbers.randint(5, 60), index), numbers.randint(3, 30))
    bench.run()
    return bench


def bring(bench: Bench, count: int, num_prompt: int, max_tokens: int) -> None:
    for _ in range(count):
        number = len(bench.records)
        bench.submit(f"r{number}", prompt(num_prompt, 1000 + number), max_tokens)


def told(bench: Bench, num_prompt: int = 20, max_tokens: int = 10) -> float:
    """What one who has no time at all would be told; nothing is computed for it."""
    number = len(bench.records)
    record = bench.submit(f"r{number}", prompt(num_prompt, 1000 + number), max_tokens, deadline_seconds=1e-9)
    assert record.reject is Reason.DEADLINE
    return record.retry_after


def waited(bench: Bench, num_prompt: int = 20, max_tokens: int = 10) -> float:
    number, asked = len(bench.records), bench.now
    record = bench.submit(f"r{number}", prompt(num_prompt, 1000 + number), max_tokens)
    bench.run_until(lambda: record.join_steps, 20_000)
    return bench.now - asked


def burst(bench: Bench, count: int) -> None:
    bring(bench, count, 20, 10)


def long_ones_hold(bench: Bench, count: int) -> None:
    bring(bench, 8, 20, 1000)
    bench.step(200)
    bring(bench, count, 20, 10)


def all_but_one_held(bench: Bench, count: int) -> None:
    bring(bench, 7, 20, 1000)
    bench.step(200)
    bring(bench, count, 20, 10)


def long_prompts(bench: Bench, count: int) -> None:
    bring(bench, count, 1500, 10)


@pytest.mark.parametrize(
    ("load", "count"),
    [
        (burst, 9),
        (burst, 30),
        (burst, 100),
        (long_ones_hold, 0),
        (long_ones_hold, 1),
        (long_ones_hold, 30),
        (long_ones_hold, 200),
        (all_but_one_held, 5),
        (all_but_one_held, 100),
        (long_prompts, 4),
        (long_prompts, 20),
    ],
)
def test_the_wait_is_what_it_was_said_to_be(load: Callable[[Bench, int], None], count: int) -> None:
    bench = warm()
    load(bench, count)
    predicted = told(bench)
    true = waited(bench)
    assert 0.6 * true <= predicted <= 1.6 * true


@pytest.mark.parametrize("count", [0, 5, 50])
def test_when_pages_are_short_and_places_are_not(count: int) -> None:
    bench = warm(num_pages=80, max_num_seqs=64, max_context_tokens=1280)
    bring(bench, 6, 160, 60)
    bench.step(5)
    bring(bench, count, 160, 60)
    predicted = told(bench, 160, 60)
    true = waited(bench, 160, 60)
    assert 0.6 * true <= predicted <= 1.6 * true


@pytest.mark.parametrize("count", [0, 5, 30])
def test_behind_one_contract_above_the_queue_line(count: int) -> None:
    bench = warm(num_pages=160, max_num_seqs=64, max_context_tokens=2000)
    bench.submit("contract", prompt(1800, 1), 150)
    bench.step(12)
    bring(bench, count, 160, 60)
    predicted = told(bench, 160, 60)
    true = waited(bench, 160, 60)
    assert 0.6 * true <= predicted <= 1.6 * true


def test_answers_that_stop_early_are_known_to() -> None:
    """All ask for 400 tokens, and stop after about a sixth of them."""
    bench = Bench(step_seconds=per_token(STEP_SECONDS), num_pages=4096, prefix_caching=False)
    stops = tuple(range(0, page_checking_worker.VOCABULARY, page_checking_worker.VOCABULARY // 12))
    numbers, next_at = random.Random(5), 0.0
    while bench.now < 60.0:
        while next_at <= bench.now:
            number = len(bench.records)
            bench.submit(f"r{number}", prompt(8, number), 400, stop_token_ids=stops)
            next_at += numbers.expovariate(3.0)
        bench.step()
    predicted = told(bench, 8, 400)
    true = waited(bench, 8, 400)
    assert true > 20
    assert 0.5 * true <= predicted <= 2 * true


def test_it_grows_with_the_queue_and_never_falls() -> None:
    bench = warm()
    bring(bench, 8, 20, 300)
    bench.step(20)
    numbers, before = random.Random(7), 0.0
    for _ in range(150):
        predicted = told(bench)
        assert predicted >= before - 1e-6
        before = predicted
        bring(bench, 1, numbers.choice([5, 20, 60]), 10)


def test_it_does_not_explode_while_long_ones_hold_all_places() -> None:
    bench = Bench(max_num_seqs=2, num_pages=128, step_seconds=per_token(0.5))
    bring(bench, 10, 20, 10)
    bench.run()
    bring(bench, 2, 20, 1000)
    bring(bench, 1, 20, 20)
    for _ in range(9):
        bench.step(100)
        left = 1000 - len(bench.records["r10"].tokens)
        number = len(bench.records)
        record = bench.submit(f"r{number}", prompt(20, 1000 + number), 20, deadline_seconds=1.0)
        assert record.retry_after == pytest.approx(0.5 * left, rel=0.2)


def test_nobody_waits_and_yet_there_is_no_place() -> None:
    bench = Bench(max_num_seqs=1, num_pages=128, step_seconds=per_token(0.1))
    bring(bench, 3, 20, 10)
    bench.run()
    bring(bench, 1, 20, 1500)
    bench.step(30)
    late = bench.submit("late", prompt(20, 1), 5, deadline_seconds=2.0)
    assert late.reject is Reason.DEADLINE
    assert late.retry_after == pytest.approx(147, rel=0.05)
    important = bench.submit("important", prompt(20, 2), 5, deadline_seconds=2.0, priority=1)
    assert important.finish is None, "it need not wait for one of lower priority"


def test_a_prompt_that_takes_longer_than_its_deadline_is_refused_at_once() -> None:
    bench = warm(prompt_token=0.0028, max_context_tokens=8192)
    bring(bench, 1, 300, 3)
    bench.run()
    late = bench.submit("late", prompt(6000, 1), 5, deadline_seconds=1.0)
    assert late.reject is Reason.DEADLINE
    assert "its prompt would take about 19." in late.message
    assert bench.submit("in time", prompt(6000, 2), 5, deadline_seconds=60.0).finish is None


def test_a_prompt_that_is_in_the_prefix_cache_is_not() -> None:
    steps = per_token(0.01, prompt_token=0.0028)
    bench = Bench(num_pages=512, max_context_tokens=8192, step_seconds=steps)
    first = prompt(4000, 1)
    bench.submit("first", first, 3)
    bench.run()
    again = bench.submit("again", [*first, 1, 2, 3], 3, deadline_seconds=1.0)
    bench.run()
    assert again.finish is Finish.LENGTH


def test_an_idle_engine_that_was_slow_once_tries_again() -> None:
    """Else all would be refused for ever, since only a step tells that steps are fast again."""
    bench = Bench(step_seconds=per_token(5.0))
    bring(bench, 1, 20, 3)
    bench.run()
    bench.step_seconds = per_token(0.01)
    refused = bench.submit("at once", prompt(20, 1), 3, deadline_seconds=1.0)
    assert refused.reject is Reason.DEADLINE
    bench.now += 31.0
    tried = bench.submit("later", prompt(20, 2), 3, deadline_seconds=1.0)
    bench.run()
    assert tried.finish is Finish.LENGTH


# ---- requests of several sequences -----------------------------------------------------------------------------------


def two_choices(**more: object) -> tuple[Bench, Record, Record]:
    """One place: the first choice streams, the second waits."""
    bench = Bench(max_num_seqs=1, step_seconds=per_token(STEP_SECONDS), **more)  # type: ignore[arg-type]
    bench.submit_all([("one", prompt(20, 1), 40), ("two", prompt(20, 2), 40)], group="request")
    bench.run_until(lambda: len(bench.records["one"].tokens) >= 5)
    return bench, bench.records["one"], bench.records["two"]


def test_a_choice_of_a_request_that_streams_is_not_shed() -> None:
    bench, one, two = two_choices(max_queued_requests=1)
    important = bench.submit("important", prompt(20, 3), 3, priority=5)
    assert important.reject is Reason.QUEUE_FULL
    bench.run()
    assert [one.finish, two.finish] == [Finish.LENGTH, Finish.LENGTH]


def test_others_are_shed_in_its_place() -> None:
    bench, one, two = two_choices(max_queued_requests=3)
    other = bench.submit("other", prompt(20, 3), 3)
    last = bench.submit("last", prompt(20, 4), 3)
    bench.submit_all([(f"vip{index}", prompt(20, 5 + index), 3) for index in range(2)], priority=5)
    assert [other.reject, last.reject] == [Reason.SHED, Reason.SHED]
    bench.run()
    assert [one.finish, two.finish] == [Finish.LENGTH, Finish.LENGTH]


def test_a_choice_of_a_request_that_streams_does_not_time_out_of_the_queue() -> None:
    bench, one, two = two_choices(max_queue_seconds=3.0)
    bench.run()
    assert [one.finish, two.finish] == [Finish.LENGTH, Finish.LENGTH]
    bench.check_all_as_alone()
    bench.check_baseline()


def test_a_request_that_has_not_begun_goes_as_a_whole() -> None:
    bench = Bench(max_num_seqs=1, max_queued_requests=4)
    bench.submit("runs", prompt(20, 0), 200, priority=9)
    bench.step(2)
    bench.submit_all([("one", prompt(20, 1), 40), ("two", prompt(20, 2), 40)], group="request")
    bench.submit("kept", prompt(20, 3), 3, priority=1)
    bench.submit("kept too", prompt(20, 4), 3, priority=1)
    bench.submit("important", prompt(20, 5), 3, priority=5)
    rejects = {name: record.reject for name, record in bench.records.items()}
    assert [name for name, reject in rejects.items() if reject is Reason.SHED] == ["one", "two"]


def test_its_deadline_holds_for_all_of_them() -> None:
    bench = Bench(max_num_seqs=1, step_seconds=per_token(STEP_SECONDS))
    bench.submit_all([("one", prompt(20, 1), 40), ("two", prompt(20, 2), 40)], group="request", deadline_seconds=5.0)
    bench.run()
    assert bench.records["one"].finish is Finish.LENGTH
    assert bench.records["two"].finish is Finish.DEADLINE


# ---- deadlines cost nothing while they have not passed ---------------------------------------------------------------


def test_who_is_late_is_told_before_the_step_ends() -> None:
    bench = Bench(max_num_seqs=1, step_seconds=per_token(10.0))
    bench.submit("runs", prompt(20, 0), 5)
    late = bench.submit("late", prompt(20, 1), 5, deadline_seconds=3.0)
    bench.step()
    bench.now = 4.0
    bench.run_until(lambda: late.finish)
    assert (late.finish, late.ended_at) == (Finish.DEADLINE, 4.0)
    bench.run()
    bench.check_all_as_alone()


def test_deadlines_pass_in_their_order_and_those_of_ended_ones_are_forgotten() -> None:
    bench = Bench(max_num_seqs=1)
    bench.submit("runs", prompt(20, 0), 200)
    bench.step(2)
    seconds = [5.0, 2.0, 9.0, 2.0, 7.0]
    for index, each in enumerate(seconds):
        bench.submit(f"w{index}", prompt(20, 1 + index), 3, deadline_seconds=each)
    bench.abort("w1")
    for number in range(500):
        bench.submit(f"gone{number}", prompt(4, 100 + number), 3, deadline_seconds=3600.0)
        bench.abort(f"gone{number}")
    ended = []
    for now in range(1, 11):
        bench.now = float(now)
        bench.step()
        late = {name for name, record in bench.records.items() if record.finish is Finish.DEADLINE}
        ended += sorted(late - set(ended))
    assert ended == ["w3", "w0", "w4", "w2"]
    assert len(bench.engine._deadlines._next) < 100
