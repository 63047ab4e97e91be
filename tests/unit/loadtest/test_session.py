"""Whole tests of a made server on a virtual clock: from the first question to the knee."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from typing import Any

import pytest
import virtual_loop

from tidemark_runtime import errors
from tidemark_runtime.contract import http as paths
from tidemark_runtime.loadtest import knee, levels, results, session, tables, target
from tidemark_runtime.simulation import senders, workload

WINDOW = levels.Window(1.0, 5.0, 10, 50.0)
SHAPE = levels.Shape(prompt_tokens="64", output_tokens="20")


def plan_of(chosen: list[levels.Level], **changes: Any) -> session.Plan:
    plan = session.Plan(
        url="http://made",
        endpoint=target.Endpoint.CHAT,
        model=None,
        keys=(),
        levels=tuple(chosen),
        stops_at_knee=False,
        rule=knee.Rule(2.0, 0.05),
        checks=False,
        timeout_seconds=60.0,
        seed=1,
        salt="salt",
        describes="made",
    )
    return dataclasses.replace(plan, **changes)


def users(*amounts: int) -> list[levels.Level]:
    return [levels.of_users(amount, SHAPE, WINDOW, 1) for amount in amounts]


@pytest.fixture
def bench(open_http):
    def run(plan: session.Plan) -> results.Result:
        async def whole() -> results.Result:
            async with open_http() as http:
                work = session.Session(plan, http, lambda what, seconds, answers: None)
                await work.run()
                return work.result()

        return virtual_loop.run(whole())

    return run


def test_a_ramp_finds_the_places_of_the_server_and_stops(bench, server) -> None:
    found = bench(plan_of(users(1, 4, 8, 16, 64), stops_at_knee=True))
    assert [level.name for level in found.levels] == ["1 user", "4 users", "8 users", "16 users"]
    assert found.knee is not None
    assert (found.knee.level, found.knee.value) == ("4 users", 4)
    one, four, eight, _ = found.levels
    # 0.1 s to the first token and 19 times 0.02 s: 20 tokens in 0.48 s
    assert one.output_tokens_per_second == pytest.approx(20 / 0.48, rel=0.05)
    assert four.output_tokens_per_second == pytest.approx(4 * 20 / 0.48, rel=0.05)
    assert eight.total.time_to_first_token.p50 == pytest.approx(0.48 + 0.1, rel=0.05), "half of them wait a turn"
    assert eight.server is not None
    assert eight.server.queue_wait_mean == pytest.approx(0.48, rel=0.25)
    assert (eight.server.running_peak, eight.server.waiting_peak) == (4, 4)
    assert found.about.prompts.startswith("exact")
    assert found.about.notes == ()


def test_what_is_sent(bench, server) -> None:
    bench(plan_of(users(1)))
    body = server.bodies[0]
    assert body["max_tokens"] == 20
    assert body["ignore_eos"] is True
    assert (body["temperature"], body["stream"], body["stream_options"]) == (0, True, {"include_usage": True})
    assert body["model"] == "made"
    assert "authorization" not in server.headers[0]


def test_prompts_are_as_long_as_wanted_and_never_the_same(bench, server) -> None:
    found = bench(plan_of(users(1, 4)))
    total = found.levels[1].total
    assert total.prompt_tokens == total.wanted_prompt_tokens == 64 * total.served
    texts = [body["messages"][0]["content"] for body in server.bodies]
    assert len(set(texts)) == len(texts)


def test_the_same_workload_file_sends_what_a_simulation_would(bench, server) -> None:
    values = {
        "durationSeconds": 20,
        "classes": {
            "chat": {
                "arrivals": {"poisson": {"perSecond": 2}},
                "promptTokens": {"lognormal": {"median": 60, "sigma": 0.5, "min": 16, "max": 200}},
                "outputTokens": {"uniform": {"min": 1, "max": 30}},
                "maxTokens": 25,
            },
            "batch": {"arrivals": {"bursts": {"size": 3, "everySeconds": 9}}, "promptTokens": 40, "outputTokens": 9},
        },
    }
    load = workload.parse(values, "mixed", seed=7)
    server.places = 100
    found = bench(plan_of([levels.Level(levels.Kind.SCALE, 1, load, None)]))
    queue = senders.Senders(load, 7)
    wanted = sorted((request.num_prompt_tokens, min(25, request.num_output_tokens)) for request, _ in queue.due(1e9))
    sent = sorted((server._count(body), body["max_tokens"]) for body in server.bodies)
    assert sent == wanted
    assert list(found.levels[0].classes) == ["all", "chat", "batch"]
    assert found.levels[0].total.served == len(wanted)
    assert found.knee is None, "one level has none"
    # names that `tidemark simulate -o json` has too
    entry = results.to_mapping(found, [])["levels"][0]["classes"]["chat"]
    for name in ("requests", "tries", "served", "servedFirstTry", "gaveUp", "promptTokens", "outputTokens"):
        assert name in entry
    assert set(entry["timeToFirstToken"]) == {"num", "mean", "p50", "p90", "p95", "p99", "max"}
    assert {"betweenTokens", "endToEnd"} <= set(entry)


def test_outcomes_are_told_apart(bench, server) -> None:
    server.most_waiting = 4
    server.breaks = lambda number: {3: "lost", 5: "error", 7: "short"}.get(number % 10, "")
    found = bench(plan_of(users(16)))
    (level,) = found.levels
    outcomes = level.total.outcomes
    assert {"ok", "429 queue_full", "broken connection_lost", "broken engine_dead", "broken no_finish_reason"} == set(
        outcomes
    )
    assert level.total.retry_after.p50 == 3.0
    assert sum(outcomes.values()) == level.total.tries
    assert level.total.gave_up == level.total.requests - level.total.served
    assert "429 queue_full" in json.dumps([table.rows for table in tables.of_result(found)])


def test_keys_go_round_the_tenants_and_headers_of_ours_to_ours_only(bench, server) -> None:
    kind = {
        "arrivals": {"even": {"perSecond": 1}},
        "promptTokens": 40,
        "outputTokens": 3,
        "requests": 4,
        "tenants": 2,
        "priority": 5,
        "deadlineSeconds": 9,
        "areRetries": True,
    }
    load = workload.parse({"classes": {"chat": kind}}, "w")
    level = levels.Level(levels.Kind.SCALE, 1, load, None)
    bench(plan_of([level], keys=("one", "two")))
    assert [found["authorization"] for found in server.headers] == ["Bearer one", "Bearer two"] * 2
    assert {found[paths.PRIORITY_HEADER] for found in server.headers} == {"5"}
    assert {found[paths.RETRY_COUNT_HEADER] for found in server.headers} == {"1"}
    assert {body["deadline_seconds"] for body in server.bodies} == {9}
    server.is_ours = False
    server.headers.clear()
    server.bodies.clear()
    found = bench(plan_of([level], keys=("one",)))
    assert paths.PRIORITY_HEADER not in server.headers[0]
    assert "deadline_seconds" not in server.bodies[0]
    assert any("2 tenants share 1 API keys" in note for note in found.about.notes)
    assert any("priority and deadline were not sent" in note for note in found.about.notes)


def test_another_server_that_knows_less(bench, server) -> None:
    server.is_ours = server.counts_tokens = server.says_usage = server.takes_ignore_eos = False
    found = bench(plan_of(users(2)))
    (level,) = found.levels
    assert level.server is None
    assert level.total.output_tokens == 20 * level.total.served, "counted as events"
    assert "ignore_eos" not in server.bodies[0]
    assert any("ignore_eos" in note for note in found.about.notes)
    assert any("does not say usage" in note for note in found.about.notes)
    assert found.about.prompts.startswith("guessed")


def test_lengths_that_came_out_otherwise_are_told(bench, server, monkeypatch: pytest.MonkeyPatch) -> None:
    count = server._count
    monkeypatch.setattr(server, "_count", lambda body: count(body) + (50 if body.get("stream") else 0))
    found = bench(plan_of(users(1)))
    assert any("prompt tokens were counted by the server" in note for note in found.about.notes)


def test_answers_under_load_are_compared_with_those_alone(bench, server) -> None:
    found = bench(plan_of(users(4), checks=True))
    (level,) = found.levels
    assert level.check is not None
    assert (level.check.asked, level.check.identical) == (4, 4)
    assert level.total.requests < len(server.bodies) - 4, "they are not counted"
    assert results.over(found, results.Limits(min_identical=1.0)) == []


def test_answers_that_the_load_changes_are_shown(bench, server) -> None:
    server.places = 16
    server.answers = lambda prompt, running: "other" if running > 4 and "prime" in prompt else "same"
    found = bench(plan_of(users(1, 12), checks=True))
    checked = found.levels[1].check
    assert checked is not None
    assert (checked.answered, checked.identical) == (4, 3)
    assert "prime numbers.': from sign 1 on 'other" in checked.different[0]
    (sentence,) = results.over(found, results.Limits(min_identical=1.0))
    assert sentence == "12 users: 75% of the answers are identical, --min-identical asks for 100%"


def test_limits(bench) -> None:
    found = bench(plan_of(users(4, 8)))
    assert results.no_answer(found) == ""
    for limits, num in (
        (results.Limits(), 0),
        (results.Limits(max_ttft_p95=0.11, min_tokens_per_second=150), 0),
        (results.Limits(max_ttft_p95=0.09), 1),
        (results.Limits(min_tokens_per_second=200), 1),
        # 8 users have the speed and 4 users the wait, but none has both
        (results.Limits(max_ttft_p95=0.11, min_tokens_per_second=found.levels[1].output_tokens_per_second), 1),
        (results.Limits(min_identical=0.5), 2),
    ):
        assert len(results.over(found, limits)) == num, limits


def test_a_server_that_serves_nothing_in_the_load(bench, server) -> None:
    server.most_waiting = 0
    found = bench(plan_of(users(1)))
    assert results.no_answer(found) == "not one request was served. They ended as: 429 queue_full"


def test_the_model_must_be_chosen_where_there_are_two(bench, server, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    real = type(server).__call__

    async def two(self, request):
        if request.url.path == paths.MODELS_PATH:
            return httpx.Response(200, json={"data": [{"id": "a"}, {"id": "b"}]})
        return await real(self, request)

    monkeypatch.setattr(type(server), "__call__", two)
    with pytest.raises(errors.ConfigError, match="--model: got none, expected one of the server's: a, b"):
        bench(plan_of(users(1)))
    assert bench(plan_of(users(1), model="b")).about.model == "b"


def test_a_key_that_is_missing_is_said(bench, server) -> None:
    server.key = "secret"
    with pytest.raises(
        target.NoAnswer, match=r"answered 401 \(invalid_api_key\): no such key Give its key: --api-key-file"
    ):
        bench(plan_of(users(1)))
    assert bench(plan_of(users(1), keys=("secret",))).levels[0].total.served


def test_the_same_seed_is_the_same_load(bench, server) -> None:
    shape = levels.Shape(prompt_tokens="{uniform: {min: 20, max: 90}}", output_tokens="{uniform: {min: 1, max: 9}}")

    def lengths(seed: int) -> list[tuple[int, int]]:
        server.bodies.clear()
        bench(plan_of([levels.of_rate(3, shape, WINDOW, seed)], salt=str(random.random())))
        return [(server._count(body), body["max_tokens"]) for body in server.bodies]

    assert lengths(3) == lengths(3)
    assert lengths(3) != lengths(4)


def test_what_there_is_when_it_is_stopped(open_http) -> None:
    async def stopped() -> results.Result:
        async with open_http() as http:
            work = session.Session(plan_of(users(1, 2, 4)), http, lambda what, seconds, answers: None)
            task = asyncio.get_running_loop().create_task(work.run())
            await asyncio.sleep(10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return work.result()

    found = virtual_loop.run(stopped())
    assert found.interrupted
    assert [(level.name, level.whole) for level in found.levels] == [("1 user", True), ("2 users", False)]
    assert found.levels[1].total.served > 0
    assert found.knee is not None
    assert not found.knee.is_reached, "of the whole levels only"
