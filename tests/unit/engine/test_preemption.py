"""Who loses its pages, how they come back, and that nobody can tell from the text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_bench import Bench, Finish, Record, per_token, prompt

MODES = ["recompute", "swap", "auto"]


@pytest.fixture(params=[True, False], ids=["overlap", "in-turn"])
def overlap(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def with_swap(mode: str, overlap: bool = True, **more: object) -> Bench:
    """Profile S with its 64 pages of swap space. Copying a page costs a tenth of computing its 16 tokens."""
    values: dict[str, object] = {
        "num_host_pages": 64,
        "page_copy_seconds": 0.0016,
        "step_seconds": per_token(0.002, decode=0.0005, prompt_token=0.001),
        **more,
    }
    return Bench(overlap=overlap, preemption_mode=mode, **values)  # type: ignore[arg-type]


def check_bound(bench: Bench) -> None:
    bound = bench.settings.max_preemptions_per_request
    assert all(record.num_preemptions <= bound for record in bench.records.values())


# ---- the cases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_b041_four_that_need_more_than_there_is_do_not_thrash(mode: str, overlap: bool) -> None:
    bench = with_swap(mode, overlap)
    for index in range(4):
        bench.submit(str(index), prompt(200, index), 200)
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()
    check_bound(bench)
    stats = bench.stats
    assert 1 <= stats.preemptions_total <= 2 * 4
    assert stats.resumes_total == stats.preemptions_total
    assert stats.preemptions_swap_total == (0 if mode == "recompute" else stats.preemptions_total)
    recomputed = sum(chunk.count for plan in bench.plans for chunk in plan.chunks) - 4 * 200
    assert recomputed <= (0 if mode == "swap" else 400 * stats.preemptions_total)
    assert bench.steps <= 2 * (200 + 10) + 20, "two after the other at the worst: 2 x 25 pages fit at any time"


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_b041_throughput_recovers_after_the_pressure(mode: str) -> None:
    bench = with_swap(mode)
    for index in range(4):
        bench.submit(str(index), prompt(200, index), 200)
    bench.run()
    started = bench.now
    for index in range(2):
        bench.submit(f"after{index}", prompt(200, 10 + index), 200)
    bench.run()
    fresh = with_swap(mode)
    for index in range(2):
        fresh.submit(f"after{index}", prompt(200, 10 + index), 200)
    fresh.run()
    assert bench.now - started == pytest.approx(fresh.now, rel=0.02)


@pytest.mark.parametrize("mode", MODES)
def test_b039_who_was_preempted_is_back_before_anybody_starts(mode: str, overlap: bool) -> None:
    bench = with_swap(mode, overlap, max_queued_requests=1000)
    for name, seed in (("a", 1), ("b", 2)):
        bench.submit(name, prompt(300, seed), 300)
    fresh = 0

    def keep_waiting() -> None:
        nonlocal fresh
        while fresh < 200 and bench.stats.requests_waiting < 20:
            bench.submit(f"fresh{fresh}", prompt(90, 100 + fresh), 10)
            fresh += 1

    num_preemptions, is_out = 0, False
    while bench.engine.has_work:
        keep_waiting()
        num_joins, num_plans = len(bench.joins), len(bench.plans)
        bench.step()
        started = bench.joins[num_joins:]
        if bench.stats.preemptions_total > num_preemptions:
            num_preemptions, is_out = bench.stats.preemptions_total, True
        elif is_out and (any(plan.swaps_in for plan in bench.plans[num_plans:]) or "b" in started):
            assert mode != "recompute" or started[0] == "b"
            is_out = False
        if is_out:
            assert started == [], "somebody started while b was out"
        assert bench.steps < 5000
    assert num_preemptions >= 1
    assert [name for name, record in bench.records.items() if record.num_preemptions] == ["b"]
    bench.check_all_as_alone()
    check_bound(bench)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_b039_the_next_victim_is_not_the_one_that_just_came_back(mode: str) -> None:
    """Three that grow at the same pace, one class: each is preempted at most once more than any other."""
    bench = with_swap(mode, num_pages=40, queue_watermark=1.0, preempt_watermark=1.0)
    for index in range(3):
        bench.submit(str(index), prompt(190, index), 150)
    bench.run()
    bench.check_all_as_alone()
    counts = [bench.records[str(index)].num_preemptions for index in range(3)]
    assert sum(counts) >= 1
    assert max(counts) <= 2


@pytest.mark.parametrize("mode", MODES)
def test_b043_the_only_one_that_runs_has_nobody_to_preempt_and_ends(mode: str, overlap: bool) -> None:
    bench = with_swap(mode, overlap, num_pages=32)
    too_long = bench.submit("too long", prompt(400, 1), 400)
    whole = bench.submit("whole pool", prompt(400, 2), 112)
    small = bench.submit("small", prompt(10, 3), 10)
    bench.run()
    assert too_long.finish is Finish.REJECTED
    assert "512" in too_long.message
    assert [whole.finish, small.finish] == [Finish.LENGTH, Finish.LENGTH]
    bench.check_all_as_alone()
    bench.check_baseline()


# ---- swap or recompute -------------------------------------------------------------------------------------------


def preempted_by_priority(bench: Bench) -> Record:
    """`low` has computed 400 tokens and some when `high` takes its pages. Runs to the end of all."""
    low = bench.submit("low", prompt(400, 1), 100)
    bench.run_until(lambda: len(low.tokens) >= 20)
    bench.submit("high", prompt(700, 2), 10, priority=1)
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()
    assert low.num_preemptions == 1
    return low


def test_auto_copies_where_copying_is_predicted_to_be_cheaper(overlap: bool) -> None:
    """27 pages there and back: 54 x 0.0016 = 0.09 s; 420 tokens: 0.42 s."""
    bench = with_swap("auto", overlap)
    preempted_by_priority(bench)
    assert bench.stats.preemptions_swap_total == bench.stats.resumes_swap_total == 1
    assert bench.stats.swapped_out_pages_total == bench.stats.swapped_in_pages_total
    assert 26 <= bench.stats.swapped_out_pages_total <= 28


def test_auto_computes_again_where_that_is_predicted_to_be_cheaper(overlap: bool) -> None:
    """27 pages there and back: 54 x 0.016 = 0.9 s; 420 tokens: 0.42 s."""
    bench = with_swap("auto", overlap, page_copy_seconds=0.016)
    preempted_by_priority(bench)
    assert (bench.stats.preemptions_total, bench.stats.preemptions_swap_total) == (1, 0)
    assert bench.stats.swapped_out_pages_total == 0


def test_the_mode_says_what_happens_whatever_it_costs() -> None:
    dear = with_swap("swap", page_copy_seconds=0.5)
    preempted_by_priority(dear)
    assert dear.stats.preemptions_swap_total == 1
    cheap = with_swap("recompute", page_copy_seconds=0.000001)
    preempted_by_priority(cheap)
    assert cheap.stats.preemptions_swap_total == 0


def test_the_mode_is_hot() -> None:
    bench = with_swap("recompute")
    low = bench.submit("low", prompt(400, 1), 100)
    bench.run_until(lambda: len(low.tokens) >= 5)
    bench.configure(preemption_mode="swap")
    bench.submit("high", prompt(700, 2), 10, priority=1)
    bench.run()
    assert bench.stats.preemptions_swap_total == 1
    bench.check_all_as_alone()


@pytest.mark.parametrize("mode", ["swap", "auto"])
@pytest.mark.parametrize("host_pages", [0, 10, 26])
def test_without_room_in_the_swap_space_it_is_computed_again(mode: str, host_pages: int, overlap: bool) -> None:
    bench = with_swap(mode, overlap, num_host_pages=host_pages)
    preempted_by_priority(bench)
    assert (bench.stats.preemptions_total, bench.stats.preemptions_swap_total) == (1, 0)


def test_the_first_victims_are_copied_and_those_for_whom_no_room_is_left_computed_again() -> None:
    """Three of 13 to 14 pages, room for two."""
    bench = with_swap("swap", num_host_pages=30, max_num_batched_tokens=1024)
    lows = [bench.submit(f"low{index}", prompt(200, index), 60) for index in range(3)]
    bench.run_until(lambda: all(len(low.tokens) >= 3 for low in lows))
    high = bench.submit("high", prompt(900, 9), 20, priority=1)
    bench.run_until(lambda: high.first_token_at is not None, 20)
    assert bench.stats.preemptions_total == 3
    assert bench.stats.preemptions_swap_total == 2
    assert bench.stats.pages_swapped <= 30
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


def test_what_is_rebuilt_is_rebuilt_beside_the_running_batch() -> None:
    """While one comes back, the others get their token in every step."""
    for mode in ("swap", "recompute"):
        bench = with_swap(mode, overlap=False, max_num_batched_tokens=64)
        stream = bench.submit("stream", prompt(20, 0), 300, priority=1)
        low = bench.submit("low", prompt(600, 1), 60)
        bench.run_until(lambda low=low: len(low.tokens) >= 5)  # type: ignore[misc]
        high = bench.submit("high", prompt(700, 2), 5, priority=1)
        bench.run_until(lambda high=high: high.finish is not None)  # type: ignore[misc]
        assert low.num_preemptions == 0
        before, steps = len(stream.tokens), bench.steps
        bench.run_until(lambda low=low: low.finish is not None)  # type: ignore[misc]
        assert low.num_preemptions == 1
        done = 300 - before if stream.finish else len(stream.tokens) - before
        assert done >= min(300 - before, bench.steps - steps - 1), mode
        bench.run()
        bench.check_all_as_alone()


# ---- bounds and progress -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0, 1, 2])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_the_bound_holds_for_displacement_by_priority_too(mode: str, bound: int) -> None:
    """An important one that needs its pages comes whenever it has got on a little; it is thrown out `bound` times."""
    bench = with_swap(mode, max_preemptions_per_request=bound)
    low = bench.submit("low", prompt(400, 1), 80)
    number, num_before = 0, -1
    while low.finish is None:
        if "low" in bench.running and len(low.tokens) > num_before + 2 and not bench.stats.requests_waiting:
            bench.submit(f"high{number}", prompt(500, 100 + number), 6, priority=1)
            number, num_before = number + 1, len(low.tokens)
        bench.step()
        assert bench.steps < 3000
        assert low.num_preemptions <= bound
    assert low.num_preemptions == bound
    bench.run()
    bench.check_all_as_alone()
    check_bound(bench)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_eight_that_each_may_fill_the_slab_all_end(mode: str, overlap: bool) -> None:
    bench = with_swap(mode, overlap, num_pages=24, max_preemptions_per_request=2)
    for index in range(8):
        bench.submit(str(index), prompt(40 + index, index), 330)
    bench.run(8 * (330 + 40) + 200)
    bench.check_all_as_alone()
    bench.check_baseline()
    check_bound(bench)


def test_pages_that_decode_at_the_same_time_at_the_border_of_a_page() -> None:
    """All eight ask for a page in the same step when none is free."""
    bench = with_swap("swap", num_pages=16, queue_watermark=1.0, preempt_watermark=1.0)
    for index in range(8):
        bench.submit(str(index), prompt(31, index), 60)
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()
    check_bound(bench)


def test_a_victim_is_cheap_and_far_from_its_end() -> None:
    """Of two alike, the one that will give its pages back by itself in a few steps is kept."""
    bench = with_swap("recompute", overlap=False, max_num_batched_tokens=1024)
    ends_soon = bench.submit("ends soon", prompt(400, 1), 14)
    far = bench.submit("far", prompt(400, 2), 180)
    bench.run_until(lambda: len(far.tokens) >= 4)
    bench.submit("high", prompt(250, 3), 10, priority=1)
    bench.step(2)
    assert (ends_soon.num_preemptions, bench.stats.preemptions_total) == (0, 1)
    bench.run()
    assert ends_soon.num_preemptions == 0
    assert far.num_preemptions >= 1
    bench.check_all_as_alone()


def test_a_deadline_ends_one_that_is_swapped_out() -> None:
    bench = with_swap("swap")
    low = bench.submit("low", prompt(400, 1), 100, deadline_seconds=50.0)
    bench.run_until(lambda: len(low.tokens) >= 3)
    bench.submit("high", prompt(700, 2), 200, priority=1)
    bench.run_until(lambda: bench.stats.pages_swapped > 0)
    bench.now = 51.0
    bench.step()
    assert low.finish is Finish.DEADLINE
    assert bench.stats.pages_swapped == 0
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


# ---- aborts in the middle of it ------------------------------------------------------------------------------------


def is_going_out(bench: Bench) -> bool:
    return bool(bench.plans[-1].swaps_out)


def is_parked(bench: Bench) -> bool:
    return bench.stats.pages_swapped > 0 and not bench.plans[-1].swaps_out and not bench.plans[-1].swaps_in


def is_coming_in(bench: Bench) -> bool:
    return bool(bench.plans[-1].swaps_in) and bench.stats.pages_swapped > 0


def is_all_in(bench: Bench) -> bool:
    """The last copies in are on their way, and it has not computed since."""
    return bool(bench.plans[-1].swaps_in) and bench.stats.pages_swapped == 0


@pytest.mark.parametrize(
    "moment", [is_going_out, is_parked, is_coming_in, is_all_in], ids=lambda moment: moment.__name__
)
def test_b057_an_abort_at_any_moment_of_a_swap_leaks_nothing(moment: Callable[[Bench], bool], overlap: bool) -> None:
    """100 rounds on one engine: a leak of one page a round would stop it. What runs beside is never disturbed."""
    bench = with_swap("swap", overlap, num_pages=16, num_host_pages=16, block_size=4)
    seen = 0
    for round_ in range(100):
        victim = bench.submit(f"victim{round_}", prompt(24, 3 * round_), 24)
        bench.run_until(lambda victim=victim: victim.tokens)  # type: ignore[misc]
        bench.submit(f"high{round_}", prompt(40, 3 * round_ + 1), 3, priority=1)
        for _ in bench.turning(100):
            if victim.finish is not None:
                break
            if moment(bench):
                seen += 1
                bench.abort(victim.name)
                bench.submit(f"next{round_}", prompt(30, 3 * round_ + 2), 3, priority=1)
                break
        bench.run()
        bench.check_baseline()
    assert seen >= 95, "the moment should come in every round; the first few steps' times are not known yet"
    bench.check_all_as_alone()


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_b057_an_abort_after_any_number_of_steps(mode: str, overlap: bool) -> None:
    bench = with_swap(mode, overlap, num_pages=16, num_host_pages=16, block_size=4, max_num_batched_tokens=24)
    for round_ in range(100):
        victim = bench.submit(f"victim{round_}", prompt(24, 3 * round_), 24)
        bench.run_until(lambda victim=victim: victim.tokens)  # type: ignore[misc]
        bench.submit(f"high{round_}", prompt(40, 3 * round_ + 1), 3, priority=1)
        bench.step(round_ % 20)
        bench.abort(victim.name)
        bench.step()
        bench.abort(victim.name)
        bench.run()
        bench.check_baseline()
    bench.check_all_as_alone()


def test_a_stop_token_that_was_in_flight_when_its_sequence_was_preempted_ends_it_cleanly() -> None:
    """With a step in flight, the victim's last token comes back after its pages have gone."""
    for after in range(1, 12):
        bench = with_swap("swap", overlap=True)
        expected = prompt(400, 1)
        low = bench.submit("low", expected, 100)
        stop = low.solo[after]
        bench.abort("low")
        low = bench.submit("low again", expected, 100, stop_token_ids=(stop,))
        bench.step(2 + 4)
        bench.submit("high", prompt(700, 2), 10, priority=1)
        bench.run()
        assert low.finish is Finish.STOP
        bench.check_all_as_alone()
        bench.check_baseline()
