"""The lines of memory use, the soft limit, the caps: what happens at each, and that a change takes effect at once."""

from __future__ import annotations

import logging

import pytest
from engine_bench import Bench, Finish, prompt

from tidemark_runtime.core import overload

Reason = overload.Reason


def ten_pages(bench: Bench, *names: str, **more: object) -> None:
    """Requests that hold 10 pages from the first step to the last; no two begin alike."""
    for name in names:
        bench.submit(name, prompt(145, 1000 + len(bench.records)), 16, **more)


def hundred_pages(**scheduler: object) -> Bench:
    """Where one request of `ten_pages` is 0.10 of the slab, and all its prompts fit into a step.

    The express lane is guaranteed nothing above the queue line, so that only the line decides.
    """
    values = {"max_num_seqs": 32, "max_num_batched_tokens": 4096, "long_request_share": 1.0, **scheduler}
    return Bench(num_pages=100, overlap=False, **values)  # type: ignore[arg-type]


# ---- the queue line ----------------------------------------------------------------------------------------------


def test_at_the_queue_line_new_requests_wait_although_pages_remain() -> None:
    bench = hundred_pages()
    for index in range(9):
        ten_pages(bench, f"r{index}")
        bench.step()
    assert bench.stats.pages_used == 70
    assert bench.running == [f"r{index}" for index in range(7)]
    assert bench.stats.requests_waiting == 2
    bench.run()
    assert {record.finish for record in bench.records.values()} == {Finish.LENGTH}


def test_a_burst_in_one_step_stops_at_the_queue_line_too() -> None:
    """Those who run grow as much whether they came together or one after the other."""
    bench = hundred_pages()
    ten_pages(bench, *(f"r{index}" for index in range(20)))
    bench.step()
    assert bench.stats.pages_used == 70
    assert len(bench.running) == 7


def test_the_queue_line_is_left_only_some_way_below_it() -> None:
    """0.70 crossed; at 0.67 it still holds; at 0.64 it does not (hysteresis 0.05)."""
    bench = hundred_pages()
    ten_pages(bench, *"abcdef")
    for name in ("three", "six"):
        bench.submit(name, prompt(48 if name == "three" else 90, len(bench.records)), 6 if name == "six" else 1000)
    bench.abort("six")
    bench.submit("three more", prompt(33, 900), 15)
    bench.submit("four more", prompt(49, 901), 15)
    bench.step()
    assert bench.stats.pages_used == 60 + 3 + 3 + 4
    ten_pages(bench, "waits")
    bench.step()
    assert bench.stats.above_queue_line
    assert bench.records["waits"].join_steps == []
    bench.abort("three more")
    bench.step()
    assert 65 < bench.stats.pages_used < 70
    assert bench.stats.above_queue_line
    assert bench.records["waits"].join_steps == []
    bench.abort("four more")
    bench.step()
    assert bench.records["waits"].join_steps != []


def test_cached_pages_are_not_in_use() -> None:
    bench = hundred_pages()
    ten_pages(bench, *(f"old{index}" for index in range(7)))
    bench.run()
    ten_pages(bench, "older")
    bench.run()
    assert bench.stats.pages_cached >= 70, "more than the line, if they counted"
    assert not bench.stats.above_queue_line
    for index in range(6):
        ten_pages(bench, f"new{index}")
    bench.step()
    assert len(bench.running) == 6
    bench.run()
    bench.check_all_as_alone()


def test_above_the_queue_line_a_lane_still_gets_its_share_under_it() -> None:
    """A contract on 75 of 100 pages; short ones are guaranteed half of the 70 under the line."""
    bench = hundred_pages(long_request_tokens=1000, long_request_share=0.5)
    bench.submit("contract", prompt(1195, 1), 5)
    bench.step(2)
    assert bench.stats.pages_used == 75
    assert bench.stats.above_queue_line
    bench.submit("question", prompt(20, 2), 4)
    bench.step()
    assert bench.records["question"].steps_to_first_token == 1


def test_above_the_queue_line_a_lane_gets_no_more_than_its_share() -> None:
    """Under the line are 70 pages, 21 of them the express lane's; it holds 20 and asks for 2, then for 1."""
    bench = hundred_pages(long_request_tokens=500, long_request_share=0.7)
    bench.submit("contract", prompt(16 * 52 - 8, 1), 8)
    ten_pages(bench, "a", "b")
    bench.step(2)
    assert bench.stats.pages_used == 72
    assert bench.stats.above_queue_line
    bench.submit("two pages", prompt(20, 2), 4)
    bench.step()
    assert bench.records["two pages"].join_steps == []
    bench.abort("two pages")
    bench.submit("one page", prompt(10, 3), 4)
    bench.step()
    assert bench.records["one page"].first_token_step == bench.steps


def test_nobody_starts_above_the_preempt_line_while_others_run() -> None:
    bench = hundred_pages(queue_watermark=0.9)
    ten_pages(bench, *(f"r{index}" for index in range(12)))
    bench.step()
    assert bench.stats.pages_used <= 90
    while bench.engine.has_work:
        before = set(bench.running)
        bench.step()
        if set(bench.running) - before:
            assert bench.stats.pages_used <= 90


def test_alone_a_request_may_fill_everything() -> None:
    bench = hundred_pages(queue_watermark=0.1, preempt_watermark=0.2)
    bench.submit("whole", prompt(1590, 1), 10)
    bench.run()
    bench.check_all_as_alone()
    assert bench.records["whole"].finish is Finish.LENGTH


# ---- the preempt line --------------------------------------------------------------------------------------------


def two_that_fill_it(bench: Bench) -> None:
    """Two of 25 pages each, of 64, that grow to 38; both have their first token."""
    bench.submit("a", prompt(400, 1), 200)
    bench.submit("b", prompt(400, 2), 200)
    bench.run_until(lambda: all(bench.records[name].tokens for name in "ab"))


@pytest.mark.parametrize("overlap", [True, False])
def test_strictly_higher_priority_displaces_at_the_preempt_line(overlap: bool) -> None:
    """Unloaded, its first token takes a step and what is in flight; here one more."""
    bench = Bench(overlap=overlap)
    two_that_fill_it(bench)
    high = bench.submit("high", prompt(200, 3), 20, priority=1)
    bench.run_until(lambda: high.first_token_step is not None, 10)
    assert high.steps_to_first_token <= 3
    assert [bench.records[name].finish for name in "ab"] == [None, None]
    bench.run()
    assert bench.stats.preemptions_total >= 1
    bench.check_all_as_alone()
    bench.check_baseline()


@pytest.mark.parametrize("priority", [0, -1])
def test_the_same_or_a_lower_priority_displaces_nobody(priority: int) -> None:
    bench = Bench()
    two_that_fill_it(bench)
    other = bench.submit("other", prompt(200, 3), 20, priority=priority)
    bench.step(5)
    assert bench.stats.preemptions_total == 0
    assert other.join_steps == []
    bench.run()
    bench.check_all_as_alone()


def test_where_higher_priority_fits_nobody_is_displaced_and_the_queue_line_does_not_hold_it_up() -> None:
    bench = Bench(overlap=False)
    two_that_fill_it(bench)
    assert bench.stats.above_queue_line
    high = bench.submit("high", prompt(40, 3), 4, priority=1)
    bench.step(2)
    assert high.steps_to_first_token == 1
    assert bench.stats.preemptions_total == 0


def test_nobody_is_displaced_for_nothing() -> None:
    """All that is of lower priority together would not be enough."""
    bench = Bench(num_pages=64, overlap=False, max_num_batched_tokens=1024)
    bench.submit("important", prompt(560, 1), 80, priority=1)
    bench.step()
    bench.submit("batch", prompt(150, 2), 10)
    bench.step()
    assert bench.running == ["important", "batch"]
    bench.submit("more important, too large", prompt(600, 3), 5, priority=1)
    bench.step(5)
    assert bench.stats.preemptions_total == 0
    bench.run()
    bench.check_all_as_alone()


def test_the_lowest_class_goes_first() -> None:
    bench = Bench(num_pages=64, overlap=False, max_num_batched_tokens=1024, queue_watermark=0.9)
    bench.submit("middle", prompt(300, 1), 60, priority=1)
    bench.submit("low", prompt(300, 2), 60)
    bench.submit("low too", prompt(200, 4), 60)
    bench.step()
    bench.submit("low too2", prompt(40, 5), 60)
    bench.step()
    high = bench.submit("high", prompt(300, 3), 20, priority=2)
    bench.step(3)
    assert high.steps_to_first_token <= 2
    assert bench.records["middle"].num_preemptions == 0
    assert bench.stats.requests_waiting >= 1
    bench.run()
    assert bench.records["middle"].num_preemptions == 0
    bench.check_all_as_alone()


def test_a_missing_slot_is_made_for_higher_priority_too() -> None:
    bench = Bench(max_num_seqs=2, overlap=False)
    for name in "ab":
        bench.submit(name, prompt(30, ord(name)), 50)
    bench.step(3)
    high = bench.submit("high", prompt(30, 1), 5, priority=1)
    bench.step(2)
    assert high.steps_to_first_token <= 2
    bench.run()
    assert bench.stats.preemptions_total == 1
    bench.check_all_as_alone()


# ---- numbers and seconds -----------------------------------------------------------------------------------------


def test_soft_concurrency_lets_the_others_wait_and_none_fail() -> None:
    bench = Bench(max_concurrency_soft=3)
    for index in range(7):
        bench.submit(str(index), prompt(20, index), 10)
    while bench.engine.has_work:
        bench.step()
        assert bench.stats.requests_running <= 3
    bench.check_all_as_alone()
    assert {record.finish for record in bench.records.values()} == {Finish.LENGTH}


def test_soft_concurrency_is_hot() -> None:
    bench = Bench(max_concurrency_soft=2, overlap=False)
    for index in range(6):
        bench.submit(str(index), prompt(20, index), 50)
    bench.step(2)
    assert bench.stats.requests_running == 2
    bench.configure(max_concurrency_soft=5)
    bench.step()
    assert bench.stats.requests_running == 5
    bench.configure(max_concurrency_soft=None)
    bench.step()
    assert bench.stats.requests_running == 6


def test_both_lines_are_hot() -> None:
    bench = hundred_pages()
    for index in range(9):
        ten_pages(bench, f"r{index}")
        bench.step()
    assert bench.stats.pages_used == 70
    bench.configure(queue_watermark=0.85)
    bench.step()
    assert bench.stats.pages_used == 90
    ten_pages(bench, "last")
    bench.configure(queue_watermark=1.0)
    bench.step()
    assert bench.records["last"].join_steps == [], "the preempt line holds it"
    bench.configure(preempt_watermark=1.0)
    bench.step()
    assert bench.records["last"].join_steps != []


def test_a_lower_queue_line_takes_nothing_from_those_who_run() -> None:
    bench = hundred_pages()
    ten_pages(bench, *"abcde")
    bench.step()
    bench.configure(queue_watermark=0.2, preempt_watermark=0.3)
    ten_pages(bench, "f")
    bench.step(3)
    assert bench.running == list("abcde")
    assert bench.stats.preemptions_total == 0
    bench.run()
    bench.check_all_as_alone()


def test_the_context_cap_is_refused_with_both_numbers() -> None:
    bench = Bench(num_pages=512, max_context_tokens=2048)
    record = bench.submit("long", prompt(2000, 1), 49)
    assert (record.finish, record.reject) == (Finish.REJECTED, Reason.CONTEXT_LENGTH)
    assert "2049" in record.message
    assert "2048" in record.message
    assert bench.submit("just", prompt(2000, 1), 48).finish is None


def test_the_limit_of_tokens_that_wait_counts_what_they_may_generate_and_is_hot() -> None:
    bench = Bench(max_num_seqs=1, max_queued_tokens=300)
    bench.submit("runs", prompt(20, 0), 100)
    bench.step(2)
    assert bench.submit("fits", prompt(100, 1), 100).finish is None
    assert bench.submit("just", prompt(50, 2), 50).finish is None
    over = bench.submit("over", prompt(1, 3), 1)
    assert (over.finish, over.reject) == (Finish.REJECTED, Reason.QUEUE_TOKENS)
    assert over.retry_after >= 1
    assert "300" in over.message
    bench.configure(max_queued_tokens=302)
    assert bench.submit("now", prompt(1, 4), 1).finish is None
    bench.configure(max_queued_tokens=None)
    assert bench.submit("any", prompt(100, 5), 900).finish is None
    bench.run()
    bench.check_all_as_alone()


def test_the_number_that_may_wait_is_hot_upwards_too() -> None:
    bench = Bench(max_num_seqs=1, max_queued_requests=1)
    bench.submit("runs", prompt(20, 0), 30)
    bench.step()
    assert bench.submit("waits", prompt(20, 1), 3).finish is None
    full = bench.submit("full", prompt(20, 2), 3)
    assert (full.finish, full.reject) == (Finish.REJECTED, Reason.QUEUE_FULL)
    assert full.retry_after >= 1
    bench.configure(max_queued_requests=2)
    assert bench.submit("now", prompt(20, 3), 3).finish is None


def test_the_longest_wait_is_hot_and_says_when_to_come_back() -> None:
    bench = Bench(max_num_seqs=1, max_queue_seconds=100.0)
    bench.submit("runs", prompt(20, 0), 60)
    waits = bench.submit("waits", prompt(20, 1), 3)
    bench.step()
    bench.now = 50.0
    bench.step()
    assert waits.finish is None
    bench.configure(max_queue_seconds=49.0)
    bench.step()
    assert waits.finish is Finish.TIMEOUT
    assert waits.retry_after >= 1


def test_whoever_was_preempted_has_had_its_first_turn_and_never_times_out_for_waiting() -> None:
    bench = Bench(max_queue_seconds=5.0)
    two_that_fill_it(bench)
    bench.submit("high", prompt(300, 3), 100, priority=1)
    bench.step(3)
    assert bench.stats.preemptions_total >= 1
    bench.now += 50.0
    bench.run()
    bench.check_all_as_alone()
    assert {record.finish for record in bench.records.values()} == {Finish.LENGTH}


# ---- what is said about it ---------------------------------------------------------------------------------------


def test_each_crossing_is_one_line_of_log_with_the_numbers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tidemark_runtime")
    bench = hundred_pages(queue_watermark=0.55, preempt_watermark=0.95)
    ten_pages(bench, *"abcdef")
    bench.step(8)
    bench.submit("g", prompt(5, 99), 30)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, said
    assert "queue" in said[0]
    for part in ("used_pages=60", "pages=100", "running=6", "waiting=0"):
        assert part in said[0]
    caplog.clear()
    bench.run()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, said
    assert "queue" in said[0]
    assert "left" in said[0]


def test_the_preempt_line_is_logged_on_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tidemark_runtime")
    bench = Bench()
    two_that_fill_it(bench)
    bench.run()
    said = [record.getMessage().split(" used_pages")[0] for record in caplog.records]
    assert any(line.startswith("preempt") and "crossed" in line for line in said)
    assert any(line.startswith("preempt") and "left" in line for line in said)
    for level in ("queue", "preempt"):
        turns = ["crossed" in line for line in said if line.startswith(level)]
        assert turns == [index % 2 == 0 for index in range(len(turns))], "crossed and left take turns"


def test_what_the_statistics_say_is_what_is() -> None:
    bench = hundred_pages()
    ten_pages(bench, *"abcdef")
    bench.step(2)
    assert not bench.stats.above_queue_line
    ten_pages(bench, "g")
    bench.step(2)
    assert bench.stats.above_queue_line
    assert not bench.stats.above_preempt_line
    started = bench.stats.seconds_above_queue_line_total
    bench.now += 7.5
    assert bench.stats.seconds_above_queue_line_total == started + 7.5
    bench.abort(*"abcdefg")
    bench.submit("h", prompt(5, 99), 40)
    bench.step(2)
    assert not bench.stats.above_queue_line
    bench.now += 5.0
    bench.step()
    assert bench.stats.seconds_above_queue_line_total == started + 7.5
    assert bench.stats.seconds_above_preempt_line_total == 0


def test_what_is_above_agrees_with_what_is_used_in_every_report() -> None:
    bench = hundred_pages()
    bench.submit("contract", prompt(1195, 1), 5)
    bench.step()
    assert bench.stats.pages_used == 75
    assert bench.stats.above_queue_line


@pytest.mark.parametrize("end", ["by itself", "abort"])
def test_a_line_is_left_when_the_last_request_has_ended(end: str) -> None:
    """Nothing is in use, so nothing is above, and the time above does not go on counting. The engine's process makes
    no step without work."""
    bench = hundred_pages()
    ten_pages(bench, *"abcdefg")
    bench.step(2)
    assert bench.stats.above_queue_line
    if end == "abort":
        bench.abort(*"abcdefg")
    bench.run()
    assert bench.stats.pages_used == 0
    assert not bench.stats.above_queue_line
    before = bench.stats.seconds_above_queue_line_total
    bench.now += 100.0
    assert bench.stats.seconds_above_queue_line_total == before
