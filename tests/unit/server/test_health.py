"""B035: live, ready and status tell loading, draining, stalled and dead apart."""

from __future__ import annotations

import msgspec
import pytest

from tidemark_runtime.contract import http as paths
from tidemark_runtime.engine import messages


@pytest.fixture
def probe(http):
    async def ask() -> tuple[int, int, str]:
        live, ready = await http.get(paths.LIVE_PATH), await http.get(paths.READY_PATH)
        assert live.json()["state"] == ready.json()["state"]
        assert live.json()["reason"]
        return live.status_code, ready.status_code, live.json()["state"]

    return ask


async def test_serving(probe):
    assert await probe() == (200, 200, "ready")


async def test_loading_is_alive_but_not_ready(probe, http, engine):
    engine.ready, engine.progress = None, messages.LoadProgress("reading weights", 0.25)
    assert await probe() == (200, 503, "loading")
    assert (await http.get(paths.READY_PATH)).json()["reason"] == "Loading: reading weights, 25%."
    response = await http.post(paths.COMPLETIONS_PATH, json={"prompt": "Hi"})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "loading")
    assert response.headers["retry-after"]


async def test_the_tokenizer_has_to_be_there_too(probe, shared):
    shared.text = None
    assert await probe() == (200, 503, "loading")


async def test_draining_is_alive_but_not_ready(probe, shared, http):
    shared.draining = True
    assert await probe() == (200, 503, "draining")
    request = {"messages": [{"role": "user", "content": "Hi"}]}
    response = await http.post(paths.CHAT_PATH, json=request)
    assert (response.status_code, response.headers["connection"]) == (200, "close")
    shared.closed = True
    response = await http.post(paths.CHAT_PATH, json=request)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
    assert response.headers["retry-after"]


async def test_b035_a_dead_engine_is_not_alive_at_once(probe, engine, http):
    engine.failure, engine.failure_kind = "exit code 1", "EngineDead"
    assert await probe() == (503, 503, "failed")
    assert (await http.get(paths.STATUS_PATH)).json()["reason"] == "EngineDied"


async def test_b035_no_progress_with_work(probe, engine):
    engine.tell(messages.EngineStats(requests_running=1))
    engine.progress_age_seconds = 61.0
    assert await probe() == (503, 503, "stalled")


async def test_b035_no_progress_with_work_the_engine_never_mentioned(probe, shared, engine):
    """It may have stopped before the first step of the only request."""
    shared.generations.add(object())
    engine.progress_age_seconds = 61.0
    assert (await probe())[2] == "stalled"


async def test_b035_idle_for_long_and_a_legal_long_prefill_are_healthy(probe, engine):
    engine.progress_age_seconds = 600.0
    assert await probe() == (200, 200, "ready")
    engine.tell(messages.EngineStats(requests_running=1))
    engine.progress_age_seconds = 20.0
    assert await probe() == (200, 200, "ready")


async def test_status_tells_model_memory_and_queue(http, engine, clock):
    stats = messages.EngineStats(requests_running=2, requests_waiting=3, pages_used=5, oldest_wait_seconds=3.0)
    lanes_and_pages = {"requests_waiting_slow": 1, "pages_cached": 2, "pages_swapped": 3, "swap_pages_total": 4}
    lines = {"above_queue_line": True, "seconds_above_queue_line_total": 7.5}
    prices = {"base": 0.02, "decode": 0.001}
    engine.tell(msgspec.structs.replace(stats, **lanes_and_pages, **lines, step_prices=prices))
    clock.now += 12
    body = (await http.get(paths.STATUS_PATH)).json()
    assert body["state"] == "ready"
    assert body["stepPrices"] == prices
    shape = body["model"].pop("shape")
    assert body["model"] == {
        "name": "M",
        "source": "/models/tiny.gguf",
        "maxContextTokens": 2048,
        "maxRequestTokens": 2048,
    }
    assert (shape["numLayers"], shape["weightsBytes"], shape["kvTokenBytes"]) == (30, 1000, 1.0)
    assert body["memory"]["usageRatio"] == 0.5
    assert body["memory"]["partsBytes"]["weights"] == 1000
    assert body["memory"]["plannedBytes"] == {"weights": 1000, "kv": 2560, "activations": 100}
    assert (body["memory"]["pagesCached"], body["memory"]["pagesSwapped"], body["memory"]["swapPagesTotal"]) == (
        2,
        3,
        4,
    )
    assert body["lines"] == {
        "queue": {"level": 0.7, "above": True, "secondsAboveTotal": 7.5},
        "preempt": {"level": 0.9, "above": False, "secondsAboveTotal": 0.0},
    }
    assert body["queue"] == {
        "running": 2,
        "waiting": 3,
        "oldestWaitSeconds": 3.0,
        "preemptionsTotal": 0,
        "waitingByLane": {"express": 2, "slow": 1},
        "places": 64,
        "stepTokensMost": 512,
    }
    assert body["worker"]["device"] == "cpu"
    assert body["uptimeSeconds"] == 12
    assert body["config"]["generation"] == 1
    assert len(body["config"]["hash"]) == len(body["config"]["restartHash"]) == 12


async def test_models_and_tokenize(http, engine):
    listed = (await http.get(paths.MODELS_PATH)).json()
    assert [(model["id"], model["max_context_tokens"]) for model in listed["data"]] == [("M", 2048)]
    assert (await http.get(paths.MODELS_PATH + "/M")).json()["id"] == "M"
    missing = await http.get(paths.MODELS_PATH + "/x/y")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_b031_chat_has_one_begin_token_and_completions_follow_the_tokenizer(http, engine, fakes):
    messages_ = [{"role": "user", "content": "Hi"}]
    counted = (await http.post(paths.TOKENIZE_PATH, json={"messages": messages_})).json()
    assert counted["tokens"].count(fakes.BEGIN) == 1
    assert counted["count"] == len(counted["tokens"])
    assert counted["max_context_tokens"] == 2048
    answer = (await http.post(paths.CHAT_PATH, json={"messages": messages_, "max_tokens": 1})).json()
    assert answer["usage"]["prompt_tokens"] == counted["count"]
    assert engine.submitted[0].token_ids == counted["tokens"]
    plain = (await http.post(paths.TOKENIZE_PATH, json={"prompt": "Hi"})).json()
    assert plain["tokens"] == [fakes.BEGIN, *b"Hi"]
    bare = (await http.post(paths.TOKENIZE_PATH, json={"prompt": "Hi", "add_special_tokens": False})).json()
    assert bare["tokens"] == [*b"Hi"]


@pytest.mark.parametrize("body", [{}, {"prompt": "a", "messages": []}, {"prompt": 5}, {"text": "a"}])
async def test_tokenize_refuses_what_it_does_not_know(http, body):
    assert (await http.post(paths.TOKENIZE_PATH, json=body)).status_code == 400
