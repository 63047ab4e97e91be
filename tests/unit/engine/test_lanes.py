"""Long ones and short ones beside each other: who waits how long, with the bound that the rules give."""

from __future__ import annotations

import math

import pytest
from engine_bench import Bench, Finish, Record, per_token, prompt

STEP_SECONDS = 0.1
AGING_SECONDS = 2.0


def small_slab(**more: object) -> Bench:
    """64 pages, steps of 0.1 s. A long one of 600 + 100 tokens takes 38 to 44 pages: never two at a time."""
    values = {"long_request_tokens": 500, "aging_seconds": AGING_SECONDS, **more}
    return Bench(step_seconds=per_token(STEP_SECONDS), **values)  # type: ignore[arg-type]


LONG_STEPS = 3 + 100 + 2
"""What a long one takes alone there: its prompt in chunks of 256, its tokens, and what is in flight."""


# ---- a contract among questions ----------------------------------------------------------------------------------


def contract_among_questions(question_tokens: int, per_step: int) -> tuple[Bench, Record, list[Record], int]:
    """16,000 tokens, and `per_step` questions in every step until its first token. Returns the most decodes, too."""
    bench = Bench(num_pages=4096, max_num_seqs=256, max_context_tokens=20_000, overlap=False)
    contract = bench.submit("contract", prompt(16_000, 1), 4)
    questions: list[Record] = []
    while contract.first_token_step is None:
        for _ in range(per_step):
            name = f"question{len(questions)}"
            questions.append(bench.submit(name, prompt(question_tokens, 2 + len(questions)), 5))
        bench.step()
    decodes = max(len(plan.decodes) for plan in bench.plans)
    bench.run()
    bench.check_all_as_alone()
    return bench, contract, questions, decodes


def test_every_question_beside_a_contract_gets_its_first_token_in_its_first_step() -> None:
    """One of 20 tokens in every step is less than the (256 - decodes) / 2 that are guaranteed to its lane."""
    _, _, questions, _ = contract_among_questions(20, 1)
    assert len(questions) > 60
    assert max(question.steps_to_first_token for question in questions) == 1


def test_what_questions_do_not_use_of_a_step_the_contract_gets() -> None:
    """First come, first served it would take 16,000 tokens by 256 less the decodes; questions add their own tokens."""
    _, contract, _, decodes = contract_among_questions(20, 1)
    assert contract.steps_to_first_token <= math.ceil(16_000 / (256 - 20 - decodes)) + 1


def test_a_flood_of_questions_leaves_the_contract_its_guaranteed_share() -> None:
    """More prompt tokens than a step has arrive in every step; half of what decodes leave is the contract's."""
    bench = Bench(
        num_pages=4096, max_num_seqs=64, max_context_tokens=20_000, overlap=False, max_queued_requests=100_000
    )
    contract = bench.submit("contract", prompt(8_000, 1), 4)
    while contract.first_token_step is None:
        for _ in range(4):
            bench.submit(f"q{len(bench.records)}", prompt(80, len(bench.records)), 2)
        bench.step()
    decodes = max(len(plan.decodes) for plan in bench.plans)
    assert contract.steps_to_first_token <= math.ceil(8_000 / (0.5 * (256 - decodes))) + 1
    started = [record for record in bench.records.values() if record.first_token_step is not None]
    assert len(started) * 80 >= 0.4 * bench.steps * (256 - decodes), "and the questions theirs"


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_share_is_hot_and_means_what_it_says(share: float) -> None:
    bench = Bench(
        num_pages=4096, max_num_seqs=64, max_context_tokens=20_000, overlap=False, max_queued_requests=100_000
    )
    bench.submit("contract", prompt(16_000, 1), 4)
    bench.configure(long_request_share=share)
    for _ in range(20):
        for _ in range(6):
            bench.submit(f"q{len(bench.records)}", prompt(80, len(bench.records)), 2)
        bench.step()
    (slot,) = [join.slot for plan in bench.plans for join in plan.joins if join.num_prompt_tokens == 16_000]
    taken = sum(chunk.count for plan in bench.plans for chunk in plan.chunks if chunk.slot == slot)
    offered = sum(256 - len(plan.decodes) for plan in bench.plans)
    assert taken == pytest.approx(share * offered, rel=0.1)


def test_a_question_of_higher_priority_does_not_wait_for_a_prompt_of_lower_priority() -> None:
    """Both in the express lane; of what decodes leave, higher priorities go first."""
    bench = Bench(num_pages=512, overlap=False, long_request_tokens=5000)
    bench.submit("batch", prompt(1800, 1), 20)
    bench.step(2)
    high = bench.submit("high", prompt(40, 2), 4, priority=1)
    bench.run()
    assert high.steps_to_first_token == 1


# ---- ageing ------------------------------------------------------------------------------------------------------


def test_a_flood_of_short_ones_does_not_starve_a_long_one() -> None:
    """It needs 38 of 64 pages. Once it has waited 2 s nobody passes, and those who run end within 22 steps."""
    bench = small_slab()

    def flood() -> None:
        while bench.stats.requests_waiting < 6:
            bench.submit(f"s{len(bench.records)}", prompt(100, len(bench.records)), 20)

    flood()
    bench.step(5)
    long = bench.submit("long", prompt(600, 9999), 10)
    while long.first_token_at is None:
        flood()
        bench.step()
        assert bench.steps < 1000
    assert long.seconds_to_first_token <= AGING_SECONDS + (22 + 3 + 3) * STEP_SECONDS
    bench.run()
    bench.check_all_as_alone()


def test_a_short_one_starts_beside_a_long_one_that_runs_while_more_of_them_wait() -> None:
    bench = small_slab()
    for index in range(10):
        bench.submit(f"long{index}", prompt(600, index), 100)
    bench.step(10)
    short = bench.submit("short", prompt(30, 99), 5)
    bench.step(3)
    assert short.steps_to_first_token <= 2


def test_long_ones_that_have_all_aged_do_not_starve_a_short_one() -> None:
    """More long ones than the engine can take, for much longer than `aging_seconds`: a backlog that is always old. A
    question that fits beside the one that runs waits for `aging_seconds` and the end of that one at most."""
    bench = small_slab()
    for index in range(10):
        bench.submit(f"long{index}", prompt(600, index), 100)
    bench.step(50)
    short = bench.submit("short", prompt(30, 99), 5)
    bench.run_until(lambda: short.first_token_at is not None)
    assert short.seconds_to_first_token <= AGING_SECONDS + LONG_STEPS * STEP_SECONDS
    bench.run()
    bench.check_all_as_alone()


def test_a_steady_flow_of_both_at_more_than_there_is_starves_neither_lane() -> None:
    """Nobody can say how long a wait becomes when more comes than goes; but each lane goes on."""
    bench = small_slab(max_queued_requests=100_000)
    for second in range(120):
        if second % 2 == 0:
            bench.submit(f"long{second}", prompt(600, second), 60)
        for index in range(3):
            bench.submit(f"short{second}-{index}", prompt(100, 1000 + 10 * second + index), 20)
        bench.step(10)
    for lane, least in (("long", 2), ("short", 25)):
        for begin in (300, 600, 900):
            ended = [
                record
                for name, record in bench.records.items()
                if name.startswith(lane) and record.ended_step is not None and begin <= record.ended_step < begin + 300
            ]
            assert len(ended) >= least, (lane, begin)


def test_when_a_slot_is_free_a_short_one_comes_before_long_ones_that_wait_since_less_than_ageing() -> None:
    bench = small_slab(max_num_seqs=1, aging_seconds=1000.0)
    for index in range(4):
        bench.submit(f"long{index}", prompt(600, index), 20)
    bench.step(2)
    bench.submit("short", prompt(30, 99), 5)
    bench.run()
    assert bench.joins == ["long0", "short", "long1", "long2", "long3"]


def test_ageing_is_hot() -> None:
    bench = small_slab(max_num_seqs=1, aging_seconds=1000.0)
    for index in range(2):
        bench.submit(f"long{index}", prompt(600, index), 30)
    bench.step(10)
    for index in range(3):
        bench.submit(f"short{index}", prompt(30, 90 + index), 5)
    bench.configure(aging_seconds=0.5)
    bench.run()
    assert bench.joins == ["long0", "long1", "short0", "short1", "short2"]


# ---- skipping ahead ----------------------------------------------------------------------------------------------


def test_a_head_that_does_not_fit_is_passed_but_never_starved() -> None:
    """All in the express lane. The head needs 40 of 64 pages; small ones come for ever."""
    bench = small_slab(long_request_tokens=5000)

    def flood() -> None:
        while bench.stats.requests_waiting < 6:
            bench.submit(f"s{len(bench.records)}", prompt(100, len(bench.records)), 20)

    for index in range(5):
        bench.submit(f"first{index}", prompt(100, 5000 + index), 20)
    bench.step(2)
    head = bench.submit("head", prompt(640, 9999), 10)
    passed = bench.submit("passes", prompt(20, 9998), 4)
    bench.step(3)
    assert passed.join_steps, "pages are there, and the head does not fit yet"
    assert not head.join_steps
    while head.first_token_at is None:
        flood()
        bench.step()
        assert bench.steps < 1000
    assert head.seconds_to_first_token <= AGING_SECONDS + (22 + 3 + 3) * STEP_SECONDS
    bench.run()
    bench.check_all_as_alone()


def test_within_a_lane_and_a_class_the_order_is_that_of_arrival() -> None:
    bench = Bench(max_num_seqs=2)
    for index in range(12):
        bench.submit(str(index), prompt(20 + index, index), 5 + index % 3)
    bench.run()
    assert bench.joins == [str(index) for index in range(12)]


def test_priorities_are_strict_classes() -> None:
    bench = Bench(max_num_seqs=1)
    bench.submit("runs", prompt(10, 0), 3, priority=9)
    bench.step()
    for index, priority in enumerate([0, 2, 1, 2, 0, 1]):
        bench.submit(f"p{priority}-{index}", prompt(10, 1 + index), 3, priority=priority)
    bench.run()
    assert bench.joins == ["runs", "p2-1", "p2-3", "p1-2", "p1-5", "p0-0", "p0-4"]


def test_waiting_ones_are_counted_by_lane() -> None:
    bench = small_slab(max_num_seqs=1)
    bench.submit("runs", prompt(10, 0), 30)
    bench.step()
    bench.submit("long", prompt(600, 1), 10)
    bench.submit("long by what it may generate", prompt(10, 2), 490)
    bench.submit("short", prompt(10, 3), 489)
    assert (bench.stats.requests_waiting, bench.stats.requests_waiting_slow) == (3, 2)


# ---- tenants -----------------------------------------------------------------------------------------------------


def tenants(bench: Bench, tenant: str, number: int) -> None:
    for index in range(number):
        bench.submit(f"{tenant}{index}", prompt(40, len(bench.records)), 5, tenant=tenant)


def test_a_tenant_with_a_hundred_waiting_does_not_starve_one_with_one() -> None:
    bench = Bench(max_concurrency_soft=2, fairness="apiKey")
    tenants(bench, "a", 100)
    bench.step(10)
    before = len(bench.joins)
    tenants(bench, "b", 1)
    bench.run()
    assert bench.joins.index("b0") - before <= 1


def test_without_fairness_it_is_first_come_first_served() -> None:
    bench = Bench(max_concurrency_soft=2, aging_seconds=0.0)
    tenants(bench, "a", 30)
    tenants(bench, "b", 1)
    bench.run()
    assert bench.joins[-1] == "b0"


def test_tenants_share_by_tokens_not_by_requests() -> None:
    """One whose requests are four times as large gets a fourth as many."""
    bench = Bench(max_concurrency_soft=1, fairness="apiKey")
    for index in range(20):
        bench.submit(f"large{index}", prompt(150, index), 10, tenant="large")
    for index in range(80):
        bench.submit(f"small{index}", prompt(35, 100 + index), 5, tenant="small")
    bench.run()
    first = bench.joins[:50]
    assert sum(name.startswith("large") for name in first) == pytest.approx(10, abs=2)


def test_who_was_away_has_no_claim_to_what_others_got_meanwhile() -> None:
    bench = Bench(max_concurrency_soft=2, fairness="apiKey")
    tenants(bench, "a", 60)
    bench.run()
    tenants(bench, "b", 60)
    bench.step(10)
    before = len(bench.joins)
    bench.submit("a again", prompt(40, 9999), 5, tenant="a")
    bench.run()
    assert bench.joins.index("a again") - before <= 2


def test_three_tenants_take_turns() -> None:
    bench = Bench(max_concurrency_soft=1, fairness="apiKey")
    for tenant in "abc":
        tenants(bench, tenant, 6)
    bench.run()
    turns = [name[0] for name in bench.joins]
    for begin in range(1, 16, 3):
        assert sorted(turns[begin : begin + 3]) == ["a", "b", "c"], turns


def test_fairness_is_hot_for_those_who_come_later() -> None:
    bench = Bench(max_concurrency_soft=2)
    tenants(bench, "a", 50)
    bench.step(5)
    bench.configure(fairness="apiKey")
    before = len(bench.joins)
    tenants(bench, "b", 1)
    bench.run()
    assert bench.joins.index("b0") - before <= 2
    bench.check_all_as_alone()
    assert {record.finish for record in bench.records.values()} == {Finish.LENGTH}
