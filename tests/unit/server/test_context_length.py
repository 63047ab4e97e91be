"""B005, B025: prompt plus output against the context length, with true numbers and nothing reaching the engine."""

from __future__ import annotations

import pytest

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
