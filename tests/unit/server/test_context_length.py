"""B005, B025: prompt plus output against the context length, with true numbers and nothing reaching the engine."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from tidemark_runtime import config
from tidemark_runtime.contract import http as paths

PATH = "/v1/completions"


async def ask(http, num_prompt_tokens: int, max_tokens: int | None = None):
    return await http.post(PATH, json={"model": "M", "prompt": [65] * num_prompt_tokens, "max_tokens": max_tokens})


@pytest.mark.parametrize(("num_prompt_tokens", "max_tokens"), [(20, 2028), (2047, 1), (2047, None), (20, None)])
async def test_b005_what_fits_runs(http, engine, num_prompt_tokens, max_tokens):
    assert (await ask(http, num_prompt_tokens, max_tokens)).status_code == 200
    assert engine.submitted[0].params.max_tokens == (max_tokens or 2048 - num_prompt_tokens)


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens"),
    [(20, 2029), (20, 2048), (2047, 100)]
    + [(length, wanted) for length in (2048, 2049, 11_680) for wanted in (None, 1, 100)],
)
async def test_b025_what_does_not_is_400_with_both_numbers(http, engine, num_prompt_tokens, max_tokens):
    response = await ask(http, num_prompt_tokens, max_tokens)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "2048" in error["message"]
    assert str(num_prompt_tokens) in error["message"]
    assert "-" not in error["message"]
    assert error["param"] == ("max_tokens" if max_tokens else "prompt")
    assert engine.submitted == []


async def test_left_out_means_what_the_slab_leaves(http, engine, fakes):
    engine.ready = fakes.ready(max_request_tokens=100)
    assert (await ask(http, 40)).status_code == 200
    assert engine.submitted[0].params.max_tokens == 60


async def test_a_prompt_larger_than_the_slab_is_left_to_the_engines_arithmetic(http, engine, fakes):
    engine.ready = fakes.ready(max_request_tokens=100)
    engine.refuse = fakes.messages.RejectReason.NEVER_FITS
    response = await ask(http, 200)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "exceeds_kv_capacity"
    assert "9 of 8" in response.json()["error"]["message"]


async def test_chat_takes_either_name_of_the_limit_but_not_two_values(http, engine):
    body = {"model": "M", "messages": [{"role": "user", "content": "Hi"}]}
    for limit in ({"max_tokens": 3}, {"max_completion_tokens": 3}, {"max_tokens": 3, "max_completion_tokens": 3}):
        response = await http.post("/v1/chat/completions", json=body | limit)
        assert response.json()["choices"][0]["message"]["content"] == "Hel"
        assert response.json()["choices"][0]["finish_reason"] == "length"
    response = await http.post("/v1/chat/completions", json=body | {"max_tokens": 3, "max_completion_tokens": 4})
    assert response.status_code == 400


# ---- a limit that is hot ------------------------------------------------------------------------------------------


def limited(settings: config.EngineConfig, num_tokens: int | None) -> config.EngineConfig:
    return dataclasses.replace(settings, model=dataclasses.replace(settings.model, max_context_tokens=num_tokens))


async def told(http) -> list[int]:
    """What the three routes that say it say."""
    listed = (await http.get(paths.MODELS_PATH)).json()["data"][0]["max_context_tokens"]
    counted = (await http.post(paths.TOKENIZE_PATH, json={"prompt": "Hi"})).json()["max_context_tokens"]
    status = (await http.get(paths.STATUS_PATH)).json()["model"]
    return [listed, counted, status["maxContextTokens"], status["maxRequestTokens"]]


async def test_a_limit_that_is_set_is_named_with_the_moment_since_when(http, shared, settings, monkeypatch):
    assert (await ask(http, 60, 41)).status_code == 200
    monkeypatch.setattr(type(shared), "unix_time", lambda _: 1_800_000_000)
    shared.take_over(limited(settings, 100))
    monkeypatch.setattr(type(shared), "unix_time", lambda _: 1_800_000_999)
    shared.take_over(dataclasses.replace(shared.config, scheduler=config.SchedulerConfig(max_queued_requests=1)))
    assert (await ask(http, 60, 40)).status_code == 200
    response = await ask(http, 60, 41)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert response.json()["error"]["message"].startswith(
        "The context is limited to 100 tokens, prompt and output together (model.maxContextTokens, in force since "
        "2027-01-15 08:00:00 UTC). The prompt has 60 tokens and 41 to generate, 101 together."
    )


async def test_a_limit_of_the_start_is_in_force_since_then(http, shared, settings):
    shared.config = limited(settings, 100)
    since = datetime.datetime.fromtimestamp(shared.created, datetime.UTC)
    message = (await ask(http, 101)).json()["error"]["message"]
    assert f"in force since {since:%Y-%m-%d %H:%M:%S} UTC" in message


async def test_a_limit_is_told_and_left_out_max_tokens_follow_it(http, shared, settings, engine, fakes):
    engine.ready = fakes.ready(max_request_tokens=300)
    assert await told(http) == [2048, 2048, 2048, 300]
    shared.take_over(limited(settings, 500))
    assert await told(http) == [500, 500, 500, 300]
    shared.take_over(limited(settings, 100))
    assert await told(http) == [100, 100, 100, 100]
    assert (await ask(http, 60)).status_code == 200
    assert engine.submitted[-1].params.max_tokens == 40
    shared.take_over(limited(settings, None))
    assert await told(http) == [2048, 2048, 2048, 300]
