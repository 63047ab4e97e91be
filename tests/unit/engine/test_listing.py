"""What an engine says of its sequences and of crossed lines to who looks: as the pool has it, and bounded."""

from __future__ import annotations

import hypothesis
from engine_bench import Bench, prompt
from hypothesis import strategies as st

from tidemark_runtime.core import lines
from tidemark_runtime.engine import line_times, messages

State = messages.SequenceState


def listed(bench: Bench, most: int = 200) -> messages.SequenceList:
    return bench.engine.listing(messages.ListSequences(7, most))


def test_each_sequence_says_what_it_holds() -> None:
    bench = Bench(num_pages=100, overlap=False, max_num_seqs=2, max_num_batched_tokens=4096)
    bench.submit("long", prompt(145, 1), 16, priority=0)
    bench.submit("short", prompt(20, 500), 8)
    bench.submit("waits", prompt(30, 900), 8)
    bench.step(2)
    answer = listed(bench)
    assert (answer.number, answer.running, answer.waiting) == (7, 2, 1)
    found = {each.id: each for each in answer.sequences}
    assert [each.id for each in answer.sequences] == ["long", "short", "waits"], "most pages first"
    long = found["long"]
    assert (long.state, long.lane, long.prompt_tokens, long.pages, long.swapped_pages) == (
        State.RUNNING,
        "express",
        145,
        10,
        0,
    )
    assert long.generated_tokens >= 1
    assert long.most_tokens == 16
    assert (found["waits"].state, found["waits"].pages, found["waits"].generated_tokens) == (State.WAITING, 0, 0)


def test_its_sums_are_the_pools_and_those_of_the_stats() -> None:
    bench = Bench(num_pages=40, overlap=False, max_num_seqs=4)
    for index in range(6):
        bench.submit(f"r{index}", prompt(60, 100 * index), 30)
    while bench.engine.has_work:
        bench.step()
        answer, stats = listed(bench), bench.engine.stats()
        assert answer.pages_used == stats.pages_used
        assert sum(each.pages for each in answer.sequences) == answer.pages_held == stats.pages_used, "nobody shares"
        assert (answer.running, answer.waiting) == (stats.requests_running, stats.requests_waiting)
        assert sum(each.state is State.RUNNING for each in answer.sequences) == stats.requests_running


def test_who_was_preempted_says_so() -> None:
    bench = Bench(num_pages=12, overlap=False, max_num_seqs=4, queue_watermark=1.0, preempt_watermark=1.0)
    for index in range(3):
        bench.submit(f"r{index}", prompt(40, 100 * index), 60)
    seen = set()
    while bench.engine.has_work:
        bench.step()
        seen |= {(each.state, each.preemptions > 0) for each in listed(bench).sequences}
    assert (State.PREEMPTED, True) in seen
    assert (State.PREEMPTED, False) not in seen


def test_shared_pages_count_for_each_holder() -> None:
    bench = Bench(num_pages=100, overlap=False)
    bench.submit("first", prompt(64, 1), 2)
    bench.run()
    bench.submit("one", prompt(64, 1), 20)
    bench.submit("other", prompt(64, 1), 20)
    bench.step(2)
    answer = listed(bench)
    assert sum(each.pages for each in answer.sequences) == answer.pages_held > answer.pages_used
    assert {each.cached_tokens for each in answer.sequences} == {48}


def test_only_so_many_are_described_and_the_largest() -> None:
    bench = Bench(num_pages=100, overlap=False, max_num_seqs=16, max_num_batched_tokens=4096)
    for index in range(8):
        bench.submit(f"r{index}", prompt(16 * (index + 1) - 8, 100 * index), 2)
    bench.step()
    answer = listed(bench, most=3)
    assert [each.id for each in answer.sequences] == ["r7", "r6", "r5"]
    assert answer.running == 8


def test_looking_changes_nothing() -> None:
    """Waits until a first turn are reported once: by the stats, not to who looks."""
    bench = Bench(num_pages=100, overlap=False)
    bench.submit("one", prompt(20, 1), 4)
    bench.engine.step()
    listed(bench)
    assert len(bench.engine.stats().queue_waits_seconds) == 1
    bench.engine.check_integrity()


def crossing(level: lines.Level, above: bool, used: int = 70) -> lines.Crossing:
    return lines.Crossing(level, above, used, 100, 0.7)


def test_crossings_are_told_newest_first_with_their_times() -> None:
    times = line_times.LineTimes()
    times.note(crossing(lines.Level.QUEUE, True), 10.0)
    times.note(crossing(lines.Level.PREEMPT, True, 91), 12.0)
    times.note(crossing(lines.Level.PREEMPT, False), 15.0)
    assert times.last(20.0) == [
        messages.LineCrossing("preempt", 8.0, 3.0, True, 91),
        messages.LineCrossing("queue", 10.0, 10.0, False, 70),
    ]
    assert times.is_above(lines.Level.QUEUE)
    assert times.seconds_above(lines.Level.PREEMPT, 20.0) == 3.0


@hypothesis.given(st.lists(st.tuples(st.sampled_from(lines.Level), st.floats(0.001, 9)), max_size=200))
def test_crossings_are_bounded_and_add_up(moves: list[tuple[lines.Level, float]]) -> None:
    times, now, ended = line_times.LineTimes(), 0.0, dict.fromkeys(lines.Level, 0.0)
    for level, pause in moves:
        now += pause
        times.note(crossing(level, not times.is_above(level)), now)
    last = times.last(now)
    assert len(last) <= line_times.NUM_KEPT
    assert [each.ago_seconds for each in last] == sorted(each.ago_seconds for each in last)
    if len(moves) < line_times.NUM_KEPT:
        for level in lines.Level:
            ended[level] = sum(each.lasted_seconds for each in last if each.level == level)
            assert abs(ended[level] - times.seconds_above(level, now)) < 1e-6
    assert sum(not each.over for each in last) == sum(times.is_above(level) for level in lines.Level)
