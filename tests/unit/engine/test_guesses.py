"""Guesses in the whole engine, with a worker that notices every mistake: same text, and only where it pays."""

from __future__ import annotations

import page_checking_worker
import pytest
from engine_bench import Bench, Finish, _solo, per_token, prompt

from tidemark_runtime import config
from tidemark_runtime.core import step_plan

CHEAP = per_token(0.01, decode=0.001, prompt_token=0.001, guess=0.0005)
"""Steps of which most is the same for any number of tokens: a processor or a card with a small batch."""
DEAR = per_token(0.0001, decode=0.001, prompt_token=0.001, guess=0.0011)
"""Every token costs its full price: a large batch."""


def draft(tokens: int = 4) -> config.SpeculativeConfig:
    return config.SpeculativeConfig(method="draft", tokens=tokens, draft_model="small")


NGRAM = config.SpeculativeConfig(method="ngram", tokens=4)


@pytest.fixture
def few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of three words, in whose texts something is found everywhere."""
    monkeypatch.setattr(page_checking_worker, "VOCABULARY", 3)
    _solo.cache_clear()
    yield
    _solo.cache_clear()


def verifications(bench: Bench) -> list[step_plan.Verification]:
    return [each for plan in bench.plans for each in plan.verifications]


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("tokens", [1, 4, 32])
def test_the_text_is_the_same_in_fewer_steps(tokens: int, overlap: bool) -> None:
    plain, guessing = (
        Bench(num_pages=256, step_seconds=CHEAP, overlap=overlap, speculative=speculative)
        for speculative in (None, draft(tokens))
    )
    for bench in (plain, guessing):
        for number in range(3):
            bench.submit(f"r{number}", prompt(20 + number, number), 150)
        bench.run()
        bench.check_all_as_alone()
        bench.check_baseline()
    stats = guessing.stats
    assert len(guessing.plans) < 0.8 * len(plain.plans)
    assert 0 < stats.guesses_accepted_total < stats.guesses_proposed_total
    assert stats.guessing_ratio > 0.5
    assert stats.guessing_gain > 1.2
    assert stats.generated_tokens_total == 450
    assert plain.stats.guesses_proposed_total == 0


@pytest.mark.usefixtures("few_words")
def test_what_came_before_is_guessed_and_the_text_is_the_same() -> None:
    bench = Bench(num_pages=256, step_seconds=CHEAP, speculative=NGRAM)
    for number in range(4):
        bench.submit(f"r{number}", prompt(60 + number, number), 200)
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()
    assert bench.stats.guesses_accepted_total > 20
    assert all(len(each.guesses) == each.count for each in verifications(bench))


def test_nobody_guesses_past_its_last_token() -> None:
    bench = Bench(num_pages=256, step_seconds=CHEAP, speculative=draft(32))
    for number in range(6):
        bench.submit(f"r{number}", prompt(20, number), 12 + number)
    bench.run()
    bench.check_all_as_alone()
    for record in bench.records.values():
        assert (record.finish, len(record.tokens)) == (Finish.LENGTH, record.max_tokens)
    lengths = [20 + record.max_tokens for record in bench.records.values()]
    assert max(each.count for each in verifications(bench)) < max(lengths) - 20


def test_a_stop_token_among_the_guesses_ends_the_text_there() -> None:
    text = page_checking_worker.solo(prompt(20), 120)
    seen: set[int] = set()
    stops = [token for token in text[30:100] if text.index(token) >= 30 and not (token in seen or seen.add(token))]
    endings = set()
    for stop in stops[:12]:
        bench = Bench(num_pages=64, step_seconds=CHEAP, speculative=draft(8))
        record = bench.submit("a", prompt(20), 120, stop_token_ids=(stop,))
        bench.run()
        assert record.tokens == text[: text.index(stop) + 1]
        assert record.finish is Finish.STOP
        endings.add(len(bench.plans))
        bench.check_baseline()
    assert len(endings) > 3, "stops of one verification and of others"


def test_guesses_go_off_where_they_cost_more_than_they_save_and_on_again() -> None:
    bench = Bench(num_pages=1024, step_seconds=CHEAP, speculative=draft(), max_num_batched_tokens=64)
    bench.submit("a", prompt(20), 1300)
    bench.run_until(lambda: bench.stats.guessing_ratio > 0.5)
    bench.step_seconds = DEAR
    bench.run_until(lambda: bench.stats.guessing_ratio < 0.05)
    before, first = bench.stats.guesses_proposed_total, len(bench.plans)
    bench.step(300)
    tried = bench.stats.guesses_proposed_total - before
    assert 0 < tried <= 0.05 * (len(bench.plans) - first), "tried once in a while"
    bench.step_seconds = CHEAP
    bench.submit("b", prompt(20, 1), 900)
    bench.run_until(lambda: bench.stats.guessing_ratio > 0.5, 4000)
    bench.run(20_000)
    bench.check_all_as_alone()


def test_time_lost_to_guesses_that_do_not_pay_is_small() -> None:
    """A draft that is wrong nearly always is what the worker is for a text of 1 in 4: here the price decides."""
    seconds = {}
    for name, speculative in (("off", None), ("on", draft())):
        bench = Bench(num_pages=2048, step_seconds=DEAR, speculative=speculative, max_num_seqs=8)
        for number in range(8):
            bench.submit(f"r{number}", prompt(20, number), 400)
        bench.run(20_000)
        seconds[name] = bench.now
    assert seconds["on"] < 1.03 * seconds["off"]


def test_verified_tokens_count_in_the_budget_of_a_step() -> None:
    bench = Bench(num_pages=256, step_seconds=CHEAP, speculative=draft(8), max_num_batched_tokens=12, max_num_seqs=4)
    for number in range(4):
        bench.submit(f"r{number}", prompt(20, number), 100)
    bench.run()
    bench.check_all_as_alone()
    assert max(plan.num_tokens for plan in bench.plans) <= 12
    assert max(plan.num_tokens for plan in bench.plans if plan.verifications) == 12


def test_a_step_with_guesses_keeps_to_its_target_time() -> None:
    bench = Bench(num_pages=256, step_seconds=CHEAP, speculative=draft(16), target_step_seconds=0.0145)
    for number in range(2):
        bench.submit(f"r{number}", prompt(20, number), 200)
    bench.run()
    bench.check_all_as_alone()
    counts = [sum(each.count for each in plan.verifications) for plan in bench.plans if plan.verifications]
    assert counts, "guesses were made"
    # 10 + 2 x 1 ms without guesses, 0.5 ms each: five fit. The price is learned within the first few steps.
    assert max(counts[20:]) <= 6


def test_above_the_queue_line_guesses_take_no_pages() -> None:
    bench = Bench(num_pages=10, step_seconds=CHEAP, speculative=draft(8), queue_watermark=0.0, watermark_hysteresis=0.0)
    record = bench.submit("a", prompt(20), 100)
    while bench.engine.has_work:
        bench.step()
        if bench.plans[-1].verifications and record.finish is None:
            held = bench.stats.pages_used
            assert held <= -(-(20 + len(record.tokens) + 1) // 16) + 1
    bench.check_all_as_alone()


def test_an_abort_with_guesses_in_flight_gives_everything_back() -> None:
    bench = Bench(num_pages=64, step_seconds=CHEAP, speculative=draft())
    bench.submit("a", prompt(20), 200)
    bench.submit("b", prompt(20, 1), 60)
    bench.run_until(lambda: bench.plans and bench.plans[-1].verifications)
    bench.abort("a")
    bench.engine.check_integrity()
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


def test_a_step_of_guesses_for_which_memory_runs_out_ends_those_who_ran_and_no_others() -> None:
    bench = Bench(num_pages=64, step_seconds=CHEAP, speculative=draft(), max_num_seqs=2)
    bench.submit("a", prompt(20), 200)
    bench.run_until(lambda: bench.plans and bench.plans[-1].verifications)
    bench.fails = lambda plan: bool(plan.verifications)
    bench.run_until(lambda: bench.records["a"].finish is not None)
    assert bench.records["a"].finish is Finish.FAILED
    bench.fails = lambda _: False
    bench.submit("b", prompt(20, 1), 60)
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()


def test_pages_of_what_was_guessed_right_are_found_again_and_of_nothing_else() -> None:
    bench = Bench(num_pages=256, step_seconds=CHEAP, speculative=draft(8))
    first = bench.submit("a", prompt(30), 100)
    bench.run()
    text = [*prompt(30), *first.tokens]
    second = bench.submit("b", text, 50)
    bench.run()
    bench.check_all_as_alone()
    assert second.cached[0] == (len(text) - 1) // 16 * 16


def test_who_is_preempted_after_guesses_comes_back_with_its_text() -> None:
    for host_pages in (0, 64):
        bench = Bench(
            num_pages=14,
            num_host_pages=host_pages,
            page_copy_seconds=0.0001 if host_pages else 0.0,
            step_seconds=CHEAP,
            speculative=draft(6),
            queue_watermark=0.9,
            preemption_mode="swap" if host_pages else "recompute",
        )
        for number in range(4):
            bench.submit(f"r{number}", prompt(20, number), 70)
        bench.run()
        bench.check_all_as_alone()
        bench.check_baseline()
        assert bench.stats.preemptions_total
        assert bench.stats.guesses_accepted_total


def test_without_guesses_plans_are_made_a_step_ahead_as_ever() -> None:
    bench = Bench(num_pages=64, step_seconds=CHEAP, speculative=NGRAM)
    bench.submit("a", prompt(20), 60)  # a text in which nothing repeats
    ahead = 0
    while bench.engine.has_work:
        bench.step()
        ahead += len(bench.engine._in_flight) > 0
    assert ahead > 50
    assert not verifications(bench)


def steps_ahead(bench: Bench, num_steps: int) -> int:
    """Steps after which another one was in flight already."""
    ahead = 0
    for _ in range(num_steps):
        bench.step()
        ahead += len(bench.engine._in_flight) > 0
    return ahead


def test_where_a_step_has_no_time_for_guesses_plans_are_made_ahead() -> None:
    bench = Bench(num_pages=64, step_seconds=CHEAP, speculative=draft(), target_step_seconds=0.005)
    bench.submit("a", prompt(20), 400)
    bench.run_until(lambda: len(bench.records["a"].tokens) > 20)
    assert steps_ahead(bench, 300) > 280
    assert not verifications(bench)
    bench.run()
    bench.check_all_as_alone()


def test_guesses_are_made_again_soon_after_prompts_leave_room() -> None:
    bench = Bench(num_pages=256, step_seconds=CHEAP, speculative=draft(), max_num_batched_tokens=8, max_num_seqs=2)
    bench.submit("a", prompt(20), 1000)
    bench.run_until(lambda: bool(verifications(bench)))
    long = bench.submit("b", prompt(1400, 1), 300)
    bench.run_until(lambda: len(long.join_steps) > 0)
    before = len(verifications(bench))
    assert steps_ahead(bench, 150) > 130, "prompts take the whole budget"
    assert len(verifications(bench)) <= before + 1
    bench.run_until(lambda: len(long.tokens) > 0)
    after = len(bench.plans)
    bench.run_until(lambda: bool(bench.plans[-1].verifications), 200)
    assert len(bench.plans) - after <= 66
    bench.run(20_000)
    bench.check_all_as_alone()
