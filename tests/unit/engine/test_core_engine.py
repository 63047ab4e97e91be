"""The wheel, turned by hand with a worker that notices every mistake with pages."""

from __future__ import annotations

import dataclasses
import re

import page_checking_worker
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark_runtime import config
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import core_engine, messages, worker_thread

Finish = messages.FinishReason


class Bench:
    """An engine with a clock of its own, and what came out of it."""

    def __init__(self, *, num_pages: int = 64, block_size: int = 16, overlap: bool = True, **scheduler: float) -> None:
        values = {"max_num_seqs": 8, "max_num_batched_tokens": 256, **scheduler}
        self.now = 0.0
        self.settings = config.SchedulerConfig(**values)
        self.worker = page_checking_worker.PageCheckingWorker(
            num_pages=num_pages, block_size=block_size, max_num_seqs=int(values["max_num_seqs"])
        )
        self.engine = core_engine.CoreEngine(
            self.settings,
            worker_thread.WorkerThread(lambda: self.worker),
            max_context_tokens=2048,
            now=lambda: self.now,
            overlap=overlap,
        )
        self.tokens: dict[str, list[int]] = {}
        self.finishes: dict[str, Finish] = {}
        self.messages: dict[str, str] = {}

    def submit(self, name: str, prompt: list[int], max_tokens: int, **more: object) -> None:
        self.submit_all([(name, prompt, max_tokens)], **more)

    def submit_all(self, requests: list[tuple[str, list[int], int]], **more: object) -> None:
        deadline = more.pop("deadline_seconds", None)
        self.take(
            self.engine.submit(
                [
                    messages.EngineRequest(
                        name, prompt, sampling.SamplingParams(max_tokens, **more), deadline_seconds=deadline
                    )  # type: ignore[arg-type]
                    for name, prompt, max_tokens in requests
                ]
            )
        )

    def abort(self, *names: str) -> None:
        self.take(self.engine.abort(names))

    def step(self) -> None:
        self.take(self.engine.step())
        self.engine.check_integrity()

    def run(self, limit: int = 5000) -> None:
        while self.engine.has_work:
            limit -= 1
            assert limit, "the engine does not come to an end"
            self.step()

    def take(self, outputs: list[messages.SequenceOutput]) -> None:
        for output in outputs:
            assert output.id not in self.finishes, "an output after the last one"
            self.tokens.setdefault(output.id, []).extend(output.token_ids)
            if output.finish is not None:
                self.finishes[output.id] = output.finish
                self.messages[output.id] = output.message

    @property
    def stats(self) -> messages.EngineStats:
        return self.engine.stats()


@pytest.fixture(params=[True, False], ids=["overlap", "in-turn"])
def overlap(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(seed * 7919 + index * 31) % page_checking_worker.VOCABULARY for index in range(length)]


def test_one_request_ends_with_its_length(overlap: bool) -> None:
    bench = Bench(overlap=overlap)
    bench.submit("a", prompt(20), 30)
    bench.run()
    assert bench.tokens["a"] == page_checking_worker.solo(prompt(20), 30)
    assert bench.finishes == {"a": Finish.LENGTH}
    assert bench.stats.pages_used == 0


def test_a_stop_token_ends_a_request_and_nothing_comes_after_it(overlap: bool) -> None:
    expected = page_checking_worker.solo(prompt(20), 30)
    stop = expected[11]
    bench = Bench(overlap=overlap)
    bench.submit("a", prompt(20), 30, stop_token_ids=(stop,))
    bench.submit("b", prompt(20), 30, stop_token_ids=(stop,), ignore_stop_tokens=True)
    bench.run()
    assert bench.tokens["a"] == expected[: expected.index(stop) + 1]
    assert bench.tokens["b"] == expected
    assert bench.finishes == {"a": Finish.STOP, "b": Finish.LENGTH}


def test_sixteen_together_and_in_chunks_get_what_each_gets_alone(overlap: bool) -> None:
    bench = Bench(num_pages=512, overlap=overlap, max_num_seqs=16, max_num_batched_tokens=40)
    for index in range(16):
        bench.submit(str(index), prompt(10 + 13 * index, index), 20 + index)
    bench.run()
    for index in range(16):
        assert bench.tokens[str(index)] == page_checking_worker.solo(prompt(10 + 13 * index, index), 20 + index)
    assert bench.stats.preemptions_total == 0


def test_the_next_step_is_planned_while_one_computes() -> None:
    bench = Bench()
    bench.submit("a", prompt(20), 4)
    bench.step()
    assert bench.tokens == {}, "the first step's result is still out"
    bench.step()
    assert bench.tokens == {"a": page_checking_worker.solo(prompt(20), 1)}


def test_b053_running_answers_go_before_prompts_in_every_step() -> None:
    bench = Bench(num_pages=512, overlap=False)
    bench.submit("stream", prompt(5), 300)
    for _ in range(10):
        bench.step()
    for index in range(4):
        bench.submit(f"long{index}", prompt(1500, index), 1)
    before = len(bench.tokens["stream"])
    steps = 0
    while len(bench.finishes) < 4:
        bench.step()
        steps += 1
    assert len(bench.tokens["stream"]) - before >= steps - 1, "a token for the stream in every step"
    assert steps <= 4 * 1500 / 255 + 5, "and the prompts get all the rest of the budget"


def test_b037_what_can_never_fit_is_refused_with_the_sum_and_holds_nobody_up() -> None:
    bench = Bench(num_pages=32)
    bench.submit("never", prompt(600), 1)
    bench.submit("small", prompt(10), 5)
    bench.submit("just too long", prompt(500), 100)
    bench.run()
    assert bench.finishes == {"never": Finish.REJECTED, "small": Finish.LENGTH, "just too long": Finish.REJECTED}
    assert "601 tokens" in bench.messages["never"]
    assert "32 pages (512 tokens)" in bench.messages["never"]


def test_b043_a_request_that_fills_the_whole_pool_ends(overlap: bool) -> None:
    bench = Bench(num_pages=32, overlap=overlap)
    bench.submit("too long", prompt(400), 400)
    bench.submit("whole pool", prompt(400), 112)
    bench.submit("small", prompt(10), 10)
    bench.run()
    assert bench.finishes == {"too long": Finish.REJECTED, "whole pool": Finish.LENGTH, "small": Finish.LENGTH}
    assert bench.tokens["whole pool"] == page_checking_worker.solo(prompt(400), 112)


def test_b041_four_that_need_more_than_there_is_all_end_as_alone(overlap: bool) -> None:
    bench = Bench(overlap=overlap)
    for index in range(4):
        bench.submit(str(index), prompt(200, index), 200)
    bench.run()
    for index in range(4):
        assert bench.tokens[str(index)] == page_checking_worker.solo(prompt(200, index), 200)
    assert 1 <= bench.stats.preemptions_total <= 4 * 3
    recomputed = bench.stats.prompt_tokens_total - 4 * 200
    assert recomputed <= bench.stats.preemptions_total * 200


def test_b039_a_preempted_request_comes_back_before_any_that_never_ran() -> None:
    bench = Bench(overlap=False)
    bench.submit("a", prompt(300, 1), 300)
    bench.submit("b", prompt(300, 2), 300)
    for index in range(20):
        bench.submit(f"fresh{index}", prompt(100, 3 + index), 4)
    first_joins: list[int] = []
    bench.run()
    seen_preempted = False
    for plan in bench.worker.plans:
        for join in plan.joins:
            if len(join.token_ids) > join.num_prompt_tokens:
                seen_preempted = True
                assert not first_joins or seen_preempted
            else:
                first_joins.append(join.num_prompt_tokens)
    assert seen_preempted
    assert all(bench.finishes[f"fresh{index}"] is Finish.LENGTH for index in range(20))
    order = list(bench.finishes)
    assert order.index("a") < order.index("b"), "who came first keeps its turn"


def test_the_bound_of_preemptions_holds(overlap: bool) -> None:
    for bound in (0, 1, 2):
        bench = Bench(overlap=overlap, num_pages=24, max_preemptions_per_request=bound)
        for index in range(6):
            bench.submit(str(index), prompt(60, index), 200)
        bench.run()
        joins = {str(index): 0 for index in range(6)}
        for plan in bench.worker.plans:
            for join in plan.joins:
                joins[next(str(i) for i in range(6) if list(join.token_ids[:60]) == prompt(60, i))] += 1
        assert max(joins.values()) <= bound + 1
        for index in range(6):
            assert bench.tokens[str(index)] == page_checking_worker.solo(prompt(60, index), 200)


def test_b033_the_queue_is_bounded_and_counts_every_choice() -> None:
    bench = Bench(max_num_seqs=2, max_queued_requests=8)
    for index in range(200):
        bench.submit(str(index), prompt(20, index), 20)
    refused = [name for name, finish in bench.finishes.items() if finish is Finish.REJECTED]
    assert refused == [str(index) for index in range(10, 200)]
    bench.submit_all([(f"choice{index}", prompt(5), 5) for index in range(10)])
    assert all(bench.finishes[f"choice{index}"] is Finish.REJECTED for index in range(10))
    assert "not for 10" in bench.messages["choice0"]
    bench.run()
    assert sum(finish is Finish.LENGTH for finish in bench.finishes.values()) == 10


def test_b033_who_waits_too_long_gets_an_answer() -> None:
    bench = Bench(max_num_seqs=1, max_queue_seconds=5)
    bench.submit("a", prompt(20), 100)
    bench.submit("b", prompt(20), 100)
    bench.step()
    bench.now = 4.9
    bench.step()
    assert "b" not in bench.finishes
    bench.now = 5.1
    bench.step()
    assert bench.finishes["b"] is Finish.TIMEOUT
    assert "5.1 s" in bench.messages["b"]
    bench.run()
    assert bench.tokens["a"] == page_checking_worker.solo(prompt(20), 100), "the running one is unharmed"


def test_a_deadline_ends_a_running_request() -> None:
    bench = Bench()
    bench.submit("a", prompt(20), 1000, deadline_seconds=3.0)
    for _ in range(10):
        bench.step()
    bench.now = 3.0
    bench.step()
    assert bench.finishes["a"] is Finish.DEADLINE
    assert re.search(r"deadline of 3 s has passed: it took 3\.0 s, and had \d+ of at most 1000", bench.messages["a"])
    bench.run()
    assert bench.stats.pages_used == 0


def test_b055_aborts_are_idempotent_at_every_moment(overlap: bool) -> None:
    bench = Bench(overlap=overlap, max_num_seqs=1)
    bench.abort("nobody")
    bench.submit("a", prompt(20), 10)
    bench.submit("b", prompt(20), 10)
    bench.abort("b", "b")
    bench.step()
    bench.abort("a")
    bench.abort("a")
    bench.run()
    assert bench.finishes == {"a": Finish.ABORT, "b": Finish.ABORT}
    assert bench.stats.pages_used == 0
    assert bench.stats.requests_waiting == 0


def test_draining_refuses_the_new_and_ends_the_old() -> None:
    bench = Bench()
    bench.submit("a", prompt(20), 10)
    bench.engine.drain()
    assert not bench.engine.drained
    bench.submit("b", prompt(20), 10)
    assert bench.finishes == {"b": Finish.REJECTED}
    bench.run()
    assert bench.finishes["a"] is Finish.LENGTH
    assert bench.engine.drained


def test_waits_are_reported_once() -> None:
    bench = Bench(overlap=False, max_num_seqs=1)
    bench.submit("a", prompt(20), 2)
    bench.submit("b", prompt(20), 2)
    bench.now = 1.0
    bench.step()
    assert bench.stats.queue_waits_seconds == [1.0]
    assert bench.stats.queue_waits_seconds == []
    assert bench.stats.oldest_wait_seconds == 1.0
    bench.now = 2.0
    bench.run()
    assert bench.stats.queue_waits_seconds == [2.0]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 120), st.integers(1, 120), st.integers(0, 20)),
        st.tuples(st.just("abort"), st.integers(0, 40)),
        st.tuples(st.just("steps"), st.integers(1, 12)),
        st.tuples(st.just("later"), st.integers(1, 4)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(OPERATIONS, st.sampled_from([1, 4, 16]), st.integers(1, 30), st.booleans(), st.integers(0, 3))
def test_whatever_comes_each_request_ends_once_and_as_alone(
    operations: list[tuple[str, int, int, int]], block_size: int, pages: int, overlap: bool, bound: int
) -> None:
    """Random add, abort, step, waiting: sums right after each operation, one terminal event each, nobody starves."""
    bench = Bench(
        num_pages=pages * 16 // block_size,
        block_size=block_size,
        overlap=overlap,
        max_num_seqs=4,
        max_num_batched_tokens=24,
        max_queued_requests=6,
        max_queue_seconds=9.0,
        max_preemptions_per_request=bound,
    )
    wanted: dict[str, tuple[list[int], int, list[int]]] = {}
    for name, *numbers in operations:
        if name == "add":
            length, max_tokens, stop = numbers
            text = prompt(length, len(wanted))
            request, stops = f"r{len(wanted)}", [stop * 50]
            wanted[request] = (text, max_tokens, stops)
            bench.submit(request, text, max_tokens, stop_token_ids=tuple(stops))
        elif name == "abort":
            bench.abort(f"r{numbers[0]}")
        elif name == "later":
            bench.now += numbers[0]
        else:
            for _ in range(numbers[0]):
                bench.step()
        bench.engine.check_integrity()
    bench.run()
    assert set(bench.finishes) == set(wanted)
    for request, (text, max_tokens, stops) in wanted.items():
        expected = page_checking_worker.solo(text, max_tokens, stops)
        if bench.finishes[request] in (Finish.STOP, Finish.LENGTH):
            assert bench.tokens[request] == expected
        else:
            assert bench.tokens.get(request, []) == expected[: len(bench.tokens.get(request, []))]
    assert bench.stats.pages_used == bench.stats.requests_running == bench.stats.requests_waiting == 0


# ---- settings that change while requests run ---------------------------------------------------------------------


def test_a_change_between_steps_takes_effect_with_the_next_and_disturbs_nobody(overlap: bool) -> None:
    bench = Bench(overlap=overlap, num_pages=256)
    for index in range(4):
        bench.submit(str(index), prompt(90 + index, index), 40)
    budgets = (8, 256, 16, 1024, 9)
    for step in range(60):
        wanted = dataclasses.replace(bench.settings, max_num_batched_tokens=budgets[step % len(budgets)])
        bench.engine.configure(wanted)
        bench.step()
    bench.run()
    for index in range(4):
        assert bench.tokens[str(index)] == page_checking_worker.solo(prompt(90 + index, index), 40)


def test_the_budget_is_that_of_the_last_change() -> None:
    bench = Bench(overlap=False)
    bench.submit("a", prompt(100), 2)
    bench.engine.configure(dataclasses.replace(bench.settings, max_num_batched_tokens=10))
    bench.step()
    assert bench.stats.step_tokens == 10
    bench.engine.configure(dataclasses.replace(bench.settings, max_num_batched_tokens=70))
    bench.step()
    assert bench.stats.step_tokens == 70


def test_a_shorter_queue_keeps_those_who_wait_and_refuses_the_next() -> None:
    bench = Bench(max_num_seqs=1)
    for name in "abc":
        bench.submit(name, prompt(5), 3)
    bench.step()
    bench.engine.configure(dataclasses.replace(bench.settings, max_queued_requests=1))
    bench.submit("d", prompt(5), 3)
    assert bench.finishes == {"d": Finish.REJECTED}
    assert "maxQueuedRequests is 1" in bench.messages["d"]
    bench.run()
    assert {bench.finishes[name] for name in "abc"} == {Finish.LENGTH}


def test_a_shorter_wait_ends_those_who_have_waited_longer() -> None:
    bench = Bench(max_num_seqs=1)
    bench.submit("a", prompt(5), 40)
    bench.submit("b", prompt(5), 3)
    bench.step()
    bench.now = 10.0
    bench.engine.configure(dataclasses.replace(bench.settings, max_queue_seconds=9.0))
    bench.step()
    assert bench.finishes == {"b": Finish.TIMEOUT}
    assert "longest allowed are 9 s" in bench.messages["b"]


def test_without_preemptions_allowed_those_who_start_have_all_their_pages() -> None:
    bench = Bench(num_pages=12, max_num_seqs=4)
    bench.engine.configure(dataclasses.replace(bench.settings, max_preemptions_per_request=0))
    for index in range(6):
        bench.submit(str(index), prompt(20, index), 100)
    bench.run()
    assert bench.stats.preemptions_total == 0
    bench.engine.configure(bench.settings)
    for index in range(6):
        bench.submit(f"again-{index}", prompt(20, index), 100)
    bench.run()
    assert bench.stats.preemptions_total > 0
    assert set(bench.finishes.values()) == {Finish.LENGTH}


def test_the_number_of_slots_is_for_good() -> None:
    bench = Bench(max_num_seqs=4)
    with pytest.raises(ValueError, match="max_num_seqs is 4 for good, got 5"):
        bench.engine.configure(dataclasses.replace(bench.settings, max_num_seqs=5))
    bench.submit("a", prompt(5), 3)
    bench.run()
    assert bench.finishes == {"a": Finish.LENGTH}
