"""What others have computed is used again, and only what is the same: the text never tells."""

from __future__ import annotations

import functools
import hashlib

import pytest
from engine_bench import Bench, Finish, Record, prompt

from tidemark_runtime.core import prefix_cache


@pytest.fixture(params=[True, False], ids=["overlap", "in-turn"])
def overlap(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def ask(bench: Bench, name: str, text: list[int], max_tokens: int = 5, **more: object) -> Record:
    record = bench.submit(name, text, max_tokens, **more)
    bench.run()
    assert record.finish is Finish.LENGTH
    assert record.tokens == record.solo
    return record


def hit(record: Record) -> int:
    """Cached tokens, told once: with the first token."""
    assert record.cached[1:] == [0] * (len(record.cached) - 1)
    return record.cached[0]


# ---- what is found -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33])
def test_b049_a_prompt_that_is_cached_as_a_whole(length: int, overlap: bool) -> None:
    bench = Bench(overlap=overlap)
    records = [ask(bench, str(index), prompt(length, 1), 20) for index in range(3)]
    hits = [hit(record) for record in records]
    assert hits == [0, (length - 1) // 16 * 16, (length - 1) // 16 * 16]
    bench.check_baseline()


def test_the_cache_can_be_off() -> None:
    bench = Bench(prefix_caching=False)
    for index in range(3):
        assert hit(ask(bench, str(index), prompt(100, 1))) == 0
    assert bench.stats.pages_cached == 0
    assert bench.stats.prefix_hit_tokens_total == 0


def test_a_conversation_finds_its_questions_and_its_answers() -> None:
    bench = Bench(num_pages=128)
    text = prompt(50, 1)
    for turn in range(5):
        record = ask(bench, str(turn), text, 30)
        if turn:
            known = len(text) - 20 - 1  # the last token of the answer was never computed
            assert hit(record) == known // 16 * 16
        text = [*text, *record.tokens, *prompt(20, 100 + turn)]


def test_hits_and_misses_are_counted() -> None:
    bench = Bench()
    ask(bench, "a", prompt(100, 1))
    assert (bench.stats.prefix_hit_tokens_total, bench.stats.prefix_missed_tokens_total) == (0, 100)
    ask(bench, "b", [*prompt(100, 1)[:70], *prompt(30, 2)])
    assert (bench.stats.prefix_hit_tokens_total, bench.stats.prefix_missed_tokens_total) == (64, 136)
    assert sum(chunk.count for plan in bench.plans for chunk in plan.chunks) == 136


def test_those_who_run_share_pages_that_are_counted_once(overlap: bool) -> None:
    bench = Bench(overlap=overlap)
    first = bench.submit("first", [*prompt(160, 1), 1], 100)
    bench.run_until(lambda: first.tokens)
    bench.step()
    used = bench.stats.pages_used
    others = [bench.submit(f"other{index}", [*prompt(160, 1), 2 + index], 20) for index in range(3)]
    bench.run_until(lambda: all(other.tokens for other in others))
    assert [hit(other) for other in others] == [160, 160, 160]
    assert bench.stats.pages_used <= used + 3 * 2 + 1
    bench.abort("first")
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


def test_nobody_reads_what_is_not_written_yet(overlap: bool) -> None:
    """The same prompt four times in one step, in chunks: a page is shared only once its KV is there."""
    bench = Bench(overlap=overlap, max_num_batched_tokens=24)
    for index in range(4):
        bench.submit(str(index), prompt(120, 1), 10)
        bench.step(index)
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


def test_what_an_aborted_prompt_had_computed_may_be_found_and_is_right(overlap: bool) -> None:
    for steps in range(1, 8):
        bench = Bench(overlap=overlap, max_num_batched_tokens=40)
        bench.submit("gone", prompt(200, 1), 10)
        bench.step(steps)
        bench.abort("gone")
        bench.submit("other", prompt(100, 2), 10)
        ask(bench, "again", prompt(200, 1), 10)
        bench.check_all_as_alone()
        bench.check_baseline()


# ---- what is never found ---------------------------------------------------------------------------------------------


def test_tenants_never_share_and_one_tenant_does() -> None:
    bench = Bench()
    ask(bench, "a", prompt(100, 1), tenant="one")
    assert hit(ask(bench, "b", prompt(100, 1), tenant="two")) == 0
    assert hit(ask(bench, "c", prompt(100, 1), tenant="")) == 0
    assert hit(ask(bench, "d", prompt(100, 1), tenant="one")) == 96
    assert hit(ask(bench, "e", prompt(100, 1), tenant="two")) == 96


def test_tenants_do_not_share_while_both_run() -> None:
    bench = Bench()
    first = bench.submit("a", prompt(100, 1), 40, tenant="one")
    bench.run_until(lambda: first.tokens)
    second = bench.submit("b", prompt(100, 1), 40, tenant="two")
    third = bench.submit("c", prompt(100, 1), 40, tenant="one")
    bench.run()
    assert [hit(second), hit(third)] == [0, 96]
    bench.check_all_as_alone()


def test_the_salt_is_of_the_process() -> None:
    """Two engines know the same tokens by different keys, so that a key seen or computed elsewhere is worth nothing."""
    seen: list[list[bytes]] = []
    for _ in range(2):
        keys: list[bytes] = []

        def spy(data: bytes, keys: list[bytes] = keys) -> bytes:
            keys.append(prefix_cache.sha256(data))
            return keys[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(prefix_cache, "PrefixCache", functools.partial(prefix_cache.PrefixCache, hash_=spy))
            bench = Bench()
        ask(bench, "a", prompt(100, 1))
        seen.append(keys)
    assert seen[0]
    assert not set(seen[0]) & set(seen[1])


def weak(data: bytes) -> bytes:
    """Four bits."""
    return bytes([hashlib.sha256(data).digest()[0] & 15])


@pytest.mark.parametrize("tenants", [1, 3])
def test_b047_equal_hashes_of_different_prompts(monkeypatch: pytest.MonkeyPatch, tenants: int, overlap: bool) -> None:
    calls: list[bytes] = []

    def counted(data: bytes) -> bytes:
        calls.append(data)
        return weak(data)

    monkeypatch.setattr(prefix_cache, "PrefixCache", functools.partial(prefix_cache.PrefixCache, hash_=counted))
    bench = Bench(overlap=overlap, num_pages=256)
    for round_ in range(2):
        for index in range(50):
            bench.submit(f"{round_}-{index}", prompt(48, index), 6, tenant=str(index % tenants))
            bench.step(2)
    bench.run()
    assert len(set(calls)) > 16, "the weak hash was in use, and keys collide"
    bench.check_all_as_alone()
    bench.check_baseline()
    assert bench.stats.prefix_hit_tokens_total > 0


def test_b047_the_same_second_block_after_another_first(monkeypatch: pytest.MonkeyPatch) -> None:
    same = prompt(16, 3)
    for hash_ in (prefix_cache.sha256, weak, lambda data: b"always the same"):
        monkeypatch.setattr(prefix_cache, "PrefixCache", functools.partial(prefix_cache.PrefixCache, hash_=hash_))
        bench = Bench()
        for name, seed in (("a", 1), ("b", 2)):
            text = [*prompt(16, seed), *same, *prompt(10, 4)]
            assert hit(ask(bench, name, text)) == 0
            ask(bench, f"{name} again", text)
        assert hit(ask(bench, "alone", [*same, *prompt(10, 4)])) == 0
        monkeypatch.undo()


# ---- what stays and what goes ----------------------------------------------------------------------------------------


def press(bench: Bench, num_pages: int) -> None:
    """Somebody takes all free pages but those that are cached, and `num_pages` of these; then it is gone."""
    free = bench.stats.pages_total - bench.stats.pages_used - bench.stats.pages_cached
    bench.submit(f"press{bench.steps}", prompt((free + num_pages) * 16 - 10, 70_000 + bench.steps), 5, tenant="press")
    bench.run()


def test_the_tail_of_a_conversation_goes_before_its_head() -> None:
    bench = Bench()
    ask(bench, "first", prompt(320, 1), 4)
    assert bench.stats.pages_cached == 20
    press(bench, 8)
    assert bench.stats.page_evictions_total == 8
    assert hit(ask(bench, "again", prompt(320, 1), 4)) == 12 * 16


def test_who_was_used_last_stays_longest() -> None:
    bench = Bench()
    ask(bench, "old", prompt(160, 1), 4)
    ask(bench, "young", prompt(160, 2), 4)
    ask(bench, "old is used", prompt(160, 1), 4)
    press(bench, 10)
    assert hit(ask(bench, "old again", prompt(160, 1), 4)) == 144
    assert hit(ask(bench, "young again", prompt(160, 2), 4)) == 0


def test_the_head_of_one_that_is_still_going_stays(overlap: bool) -> None:
    bench = Bench(overlap=overlap, num_pages=64, queue_watermark=1.0, preempt_watermark=1.0)
    going = bench.submit("going", prompt(160, 1), 150)
    bench.run_until(lambda: going.tokens)
    for index in range(6):
        other = bench.submit(f"other{index}", prompt(600, 2 + index), 4, tenant="other")
        bench.run_until(lambda other=other: other.finish is not None)  # type: ignore[misc]
    assert going.finish is None
    assert bench.stats.page_evictions_total > 0
    shares = bench.submit("shares", [*prompt(160, 1), 5], 4)
    bench.run_until(lambda: shares.tokens)
    assert hit(shares) == 160
    bench.run()
    bench.check_all_as_alone()


def test_cached_pages_are_free_for_whoever_needs_pages() -> None:
    bench = Bench(num_pages=64)
    for index in range(5):
        ask(bench, str(index), prompt(300, index), 4)
    assert bench.stats.pages_cached > 50
    ask(bench, "whole slab", prompt(1000, 99), 24)
    assert bench.stats.preemptions_total == 0
    bench.check_baseline()


@pytest.mark.parametrize("order", ["x first", "y first"])
def test_b045_a_block_is_not_stolen_between_look_up_and_pinning(order: str, overlap: bool) -> None:
    """4 pages free, 4 cached with P. X needs all 8; Y is P and 5 tokens."""
    bench = Bench(overlap=overlap, queue_watermark=1.0, preempt_watermark=1.0, max_num_batched_tokens=2048)
    prefix = prompt(64, 1)
    ask(bench, "p", prefix, 1)
    assert bench.stats.pages_cached == 4
    bench.submit("filler", prompt(16 * 55 + 1, 2), 14, tenant="filler")
    bench.step()
    assert bench.stats.pages_used == 56
    wanted = [("x", prompt(120, 3), 7), ("y", [*prefix, *prompt(5, 4)], 10)]
    for name, text, max_tokens in wanted if order == "x first" else reversed(wanted):
        bench.submit(name, text, max_tokens)
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_with_preemptions_the_text_is_the_same_with_the_cache_and_without(mode: str, overlap: bool) -> None:
    """Conversations with a common beginning on a slab that is too small for them."""
    texts: dict[bool, dict[str, list[int]]] = {}
    for caching in (True, False):
        bench = Bench(
            overlap=overlap,
            num_pages=40,
            num_host_pages=20,
            page_copy_seconds=0.001,
            prefix_caching=caching,
            preemption_mode=mode,
        )
        for index in range(10):
            text = [*prompt(96, index % 3), *prompt(10 + 7 * index, 50 + index)]
            bench.submit(str(index), text, 90, tenant=str(index % 2), priority=index % 2)
            bench.step(5)
        bench.run()
        bench.check_all_as_alone()
        bench.check_baseline()
        texts[caching] = {name: record.tokens for name, record in bench.records.items()}
        assert bench.stats.preemptions_total > 0
        assert (bench.stats.prefix_hit_tokens_total > 0) is caching
    assert texts[True] == texts[False]
