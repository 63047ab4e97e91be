"""The same prompt, computed by several at once: what one that is going holds is found while it goes, and afterwards."""

from __future__ import annotations

import pytest
from engine_bench import Bench, Record, prompt

TEXT = prompt(168, 7)


@pytest.fixture(params=[True, False], ids=["overlap", "in-turn"])
def overlap(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def crowd(bench: Bench) -> None:
    """Others come and go until all that nobody holds was evicted."""
    for index in range(6):
        other = bench.submit(f"crowd{bench.steps}-{index}", prompt(400, 100 + index), 1, tenant="crowd")
        bench.run_until(lambda other=other: other.finish is not None)  # type: ignore[misc]


def asked_again(bench: Bench, name: str, text: list[int]) -> int:
    record = bench.submit(name, [*text, 3], 2)
    bench.run_until(lambda: record.finish)
    assert record.tokens == record.solo
    return record.cached[0]


def start_together(bench: Bench, *wanted: tuple[str, int]) -> list[Record]:
    bench.submit_all([(name, list(TEXT), max_tokens) for name, max_tokens in wanted])
    return [bench.records[name] for name, _ in wanted]


def full_pages(num_tokens: int) -> int:
    return num_tokens // 16 * 16


def test_the_head_of_one_that_is_going_is_found_when_its_twin_has_ended(overlap: bool) -> None:
    bench = Bench(overlap=overlap, max_num_seqs=4, queue_watermark=1.0, preempt_watermark=1.0)
    short, long = start_together(bench, ("short", 2), ("long", 300))
    bench.run_until(lambda: short.finish)
    crowd(bench)
    assert long.finish is None
    assert bench.stats.page_evictions_total > 50
    assert asked_again(bench, "while it goes", list(TEXT)) == full_pages(len(TEXT))
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


def test_a_conversation_that_had_a_twin_finds_all_of_it(overlap: bool) -> None:
    bench = Bench(overlap=overlap, max_num_seqs=4, queue_watermark=1.0, preempt_watermark=1.0)
    short, long = start_together(bench, ("short", 2), ("long", 300))
    bench.run_until(lambda: short.finish)
    crowd(bench)
    said = [*TEXT, *long.tokens]
    bench.abort("long")
    found = asked_again(bench, "second turn", said)
    assert found >= full_pages(len(said)) - 16
    bench.run()
    bench.check_all_as_alone()


def test_choices_of_one_prompt_leave_one_copy(overlap: bool) -> None:
    bench = Bench(overlap=overlap, max_num_batched_tokens=2048, queue_watermark=1.0, preempt_watermark=1.0)
    start_together(bench, *((f"choice{index}", 3) for index in range(4)))
    bench.run()
    assert bench.stats.pages_cached == len(TEXT) // 16
    assert bench.stats.page_evictions_total == 0
    assert asked_again(bench, "again", list(TEXT)) == full_pages(len(TEXT))
    bench.check_all_as_alone()
    bench.check_baseline()


def test_what_came_back_from_the_swap_space_is_found_at_once(overlap: bool) -> None:
    """Its pages in the slab were evicted while it waited; the new ones keep the same."""
    bench = Bench(
        overlap=overlap,
        num_pages=32,
        num_host_pages=32,
        page_copy_seconds=1e-6,
        preemption_mode="swap",
        queue_watermark=1.0,
        preempt_watermark=1.0,
        max_num_seqs=2,
    )
    going = bench.submit("going", list(TEXT), 60)
    bench.run_until(lambda: len(going.tokens) > 10)  # the next page is some steps away
    for index in range(2):
        bench.submit(f"pushing{index}", prompt(450, 50 + index), 20, tenant="crowd", priority=1)
    bench.run_until(lambda: bench.stats.pages_swapped)
    bench.run_until(lambda: len(going.join_steps) == 2)
    bench.step(2)
    bench.abort("going")
    assert asked_again(bench, "again", list(TEXT)) == full_pages(len(TEXT))
    bench.run()
    bench.check_all_as_alone()
