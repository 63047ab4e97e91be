"""Fragmentation, fill and queue wait are what their definitions say, against the pool's and the sequences' own sums."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from engine_bench import Bench, per_token, prompt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark_runtime.core import sequence


@dataclass(frozen=True)
class Arrival:
    length: int
    max_tokens: int
    shared: int
    priority: int
    after_steps: int
    abort: bool


ARRIVALS = st.lists(
    st.builds(
        Arrival,
        length=st.integers(1, 70),
        max_tokens=st.integers(1, 30),
        shared=st.sampled_from([0, 8, 24, 64]),
        priority=st.integers(0, 1),
        after_steps=st.integers(0, 6),
        abort=st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


def tokens_by_page(bench: Bench) -> dict[int, int]:
    """Of each page that somebody holds: tokens whose KV is there once all planned steps are done. Looked up in the
    sequences, page by page; the engine has one sum."""
    scheduler, size = bench.engine._scheduler, bench.engine._scheduler._memory.block_size
    found: dict[int, int] = {}
    for entry in scheduler._running:
        num_computed = scheduler._decoding.num_computed(entry, scheduler._step)
        if entry.state is sequence.State.RESTORING:
            num_computed = entry.num_computed
        for index, page in enumerate(entry.pages):
            inside = max(0, min(size, num_computed - index * size))
            found[page] = max(found.get(page, 0), inside)
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arrivals=ARRIVALS,
    block_size=st.sampled_from([1, 4, 16]),
    tokens=st.integers(120, 400),
    host_tokens=st.sampled_from([0, 200]),
    prefix_caching=st.booleans(),
    overlap=st.booleans(),
)
def test_the_gauges_are_the_sums_of_their_definitions(
    arrivals: list[Arrival], block_size: int, tokens: int, host_tokens: int, prefix_caching: bool, overlap: bool
) -> None:
    bench = Bench(
        num_pages=tokens // block_size,
        block_size=block_size,
        num_host_pages=host_tokens // block_size,
        page_copy_seconds=0.0001,
        prefix_caching=prefix_caching,
        overlap=overlap,
        max_num_seqs=4,
        max_num_batched_tokens=40,
        step_seconds=per_token(0.01, decode=0.001, prompt_token=0.001),
    )
    waits: list[float] = []
    totals: list[tuple[float, ...]] = []

    def look() -> None:
        bench.engine.check_integrity()
        stats = bench.stats
        waits.extend((*stats.queue_waits_seconds, *stats.slow_queue_waits_seconds))
        pool = bench.engine._scheduler._memory.pool
        by_page = tokens_by_page(bench)
        # used + cached + free are the slab; used are the pages that somebody holds.
        assert stats.pages_used == len(by_page) == pool.num_used
        assert stats.pages_used + stats.pages_cached + len(pool._free) == stats.pages_total
        assert stats.tokens_in_used_pages == sum(by_page.values())
        assert 0 <= stats.tokens_in_used_pages <= stats.pages_used * block_size
        if stats.steps:
            (plan,) = [plan for plan in bench.plans if plan.step == stats.steps]
            assert stats.step_sequences == len({*plan.decodes, *(chunk.slot for chunk in plan.chunks)}) <= 4
            assert stats.step_tokens == len(plan.decodes) + sum(chunk.count for chunk in plan.chunks)
        totals.append(
            (
                stats.steps,
                stats.busy_seconds_total,
                stats.preemptions_total,
                stats.resumes_total,
                stats.prompt_tokens_total,
                stats.generated_tokens_total,
                stats.page_evictions_total,
                stats.swapped_out_pages_total,
                stats.swapped_in_pages_total,
                stats.prefix_hit_tokens_total,
                stats.prefix_missed_tokens_total,
                stats.seconds_above_queue_line_total,
            )
        )

    for number, each in enumerate(arrivals):
        text = [*prompt(64, 500)[: each.shared], *prompt(each.length, number)]
        bench.submit(f"r{number}", text, min(each.max_tokens, tokens - len(text)) or 1, priority=each.priority)
        for _ in range(each.after_steps):
            bench.step()
            look()
        if each.abort:
            bench.abort(f"r{number // 2}")
            look()
    for _ in bench.turning(3000):
        look()
        if not bench.engine.has_work:
            break

    # Totals never go back, whatever ends in between.
    assert all(
        later >= earlier for one, two in itertools.pairwise(totals) for earlier, later in zip(one, two, strict=True)
    )
    # One wait for each that had a turn, from its arrival to the plan of that step; none for a return.
    had_a_turn = [record for record in bench.records.values() if record.join_steps]
    assert len(waits) == len(had_a_turn)
    assert all(wait >= 0 for wait in waits)
    longest = max((record.ended_at or 0.0) - record.submitted_at for record in bench.records.values())
    assert max(waits, default=0.0) <= longest + 1e-9
    # All time in execute is busy time.
    seconds = sum((bench.step_seconds or per_token())(plan) for plan in bench.plans)
    copies = sum(len(plan.swaps_out) + len(plan.swaps_in) for plan in bench.plans) * 0.0001
    assert abs(bench.stats.busy_seconds_total - seconds - copies) < 1e-6


def test_a_queue_wait_is_from_arrival_to_the_plan_of_the_first_turn() -> None:
    bench = Bench(max_num_seqs=1, overlap=False)
    bench.submit("first", prompt(10), 2)
    bench.submit("second", prompt(10, 1), 2)
    bench.step()
    assert bench.stats.queue_waits_seconds == [0.0]
    bench.now = 7.5
    bench.step(4)
    assert bench.stats.queue_waits_seconds == [7.5]
    assert bench.stats.queue_waits_seconds == [], "told once"


def test_fragmentation_of_one_that_is_known() -> None:
    bench = Bench(block_size=16, overlap=False)
    bench.submit("only", prompt(20), 5)
    bench.step()
    assert (bench.stats.pages_used, bench.stats.tokens_in_used_pages) == (2, 20)
