"""The official `openai` client against the real server, engine and model."""

from __future__ import annotations

import json
import time

import httpx
import live
import openai
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MODEL = "smollm2-135m"
GREETING = [{"role": "user", "content": "Reply with a short greeting."}]


@pytest.fixture(scope="module")
def client(base_url):
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def complete(client: openai.OpenAI, **fields):
    return client.completions.create(**({"model": MODEL, "prompt": "Once upon a time", "max_tokens": 12} | fields))


def joined(stream) -> tuple[str, str | None, list[str]]:
    """Text, finish reason and pieces of a completions stream."""
    pieces, finish = [], None
    for chunk in stream:
        pieces.append(chunk.choices[0].text)
        finish = chunk.choices[0].finish_reason or finish
    return "".join(pieces), finish, pieces


def wait_until_idle(base_url: str) -> None:
    end = time.monotonic() + 60
    with httpx.Client(base_url=base_url, verify=live.CERTIFICATES) as client:
        while client.get("/status").json()["queue"]["running"]:
            assert time.monotonic() < end, "the engine goes on although nobody listens"
            time.sleep(0.05)


def aborted_total(base_url: str) -> float:
    lines = httpx.get(f"{base_url}/metrics").text.splitlines()
    return next(
        float(line.split()[1]) for line in lines if line.startswith('tidemark_requests_total{outcome="aborted"')
    )


def test_chat_and_its_stream_agree(client):
    fields = {"model": MODEL, "messages": GREETING, "max_tokens": 16, "temperature": 0}
    whole = client.chat.completions.create(**fields).choices[0].message.content
    chunks = list(client.chat.completions.create(**fields, stream=True))
    assert whole
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_b001_stop_strings_do_not_leak(client):
    full = complete(client, temperature=0, max_tokens=40).choices[0].text
    fields = {"temperature": 0, "max_tokens": 40, "stop": [full[8:24]]}
    text, finish, _ = joined(complete(client, **fields, stream=True))
    assert text == full[:8]
    assert finish == "stop"
    assert complete(client, **fields).choices[0].text == text


def test_b003_a_stop_that_never_comes_delays_nothing(client):
    text, _, pieces = joined(complete(client, temperature=0, stream=True, stop=["zqzqzqzqzqzqzqzqzqzqzqzqzqzq"]))
    assert text == complete(client, temperature=0).choices[0].text
    assert pieces[0]


def test_b005_b025_the_context_length(client, base_url):
    limit = httpx.get(f"{base_url}/v1/models").json()["data"][0]["max_context_tokens"]
    assert complete(client, prompt=[100] * 3, max_tokens=1).choices[0].finish_reason == "length"
    for prompt, wanted in (([100] * 20, limit - 19), ([100] * limit, 1), ([100] * (limit + 1), None)):
        with pytest.raises(openai.BadRequestError, match=str(limit)) as caught:
            complete(client, prompt=prompt, max_tokens=wanted)
        assert caught.value.code == "context_length_exceeded"
        assert str(len(prompt)) in str(caught.value)


def test_b007_a_prompt_that_ends_in_half_a_character(client, base_url):
    ids = httpx.post(f"{base_url}/v1/tokenize", json={"prompt": "Hello world 語"}).json()["tokens"]
    fields = {"prompt": ids[:-1], "max_tokens": 8, "temperature": 0}
    whole = complete(client, **fields).choices[0].text
    assert "Hello" not in whole[:5]
    assert joined(complete(client, **fields, stream=True))[0] == whole


@pytest.mark.parametrize("stream", [False, True])
def test_b011_a_client_that_leaves_frees_its_pages(base_url, stream):
    body = {"model": MODEL, "prompt": "Write a very long story.", "max_tokens": 1800, "ignore_eos": True}
    before = aborted_total(base_url)
    with httpx.Client(timeout=60) as leaving:
        request = leaving.build_request("POST", f"{base_url}/v1/completions", json=body | {"stream": stream})
        if stream:
            next(leaving.send(request, stream=True).iter_lines())
        else:
            request.extensions["timeout"]["read"] = 1.0
            with pytest.raises(httpx.ReadTimeout):
                leaving.send(request)
    end = time.monotonic() + 60
    while aborted_total(base_url) == before:  # it may not even have begun yet
        assert time.monotonic() < end, "nobody was noticed to leave"
        time.sleep(0.05)
    wait_until_idle(base_url)
    assert httpx.get(f"{base_url}/status").json()["memory"]["pagesUsed"] == 0
    assert aborted_total(base_url) == before + 1


def test_b013_choices_have_their_own_texts(client):
    answer = complete(client, n=3, temperature=1, seed=5, max_tokens=8)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) > 1
    alone = complete(client, temperature=1, seed=6, max_tokens=8)
    assert answer.choices[1].text == alone.choices[0].text
    assert answer.usage.prompt_tokens == alone.usage.prompt_tokens


@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p"])
def test_b015_numbers_that_are_not_finite_beside_a_greedy_companion(base_url, field):
    for raw in ("NaN", "1e999", '"NaN"', "-0.1"):
        body = f'{{"model":"{MODEL}","prompt":"Hi","max_tokens":2,"{field}":{raw}}}'
        response = httpx.post(f"{base_url}/v1/completions", content=body.encode())
        assert response.status_code == 400
        assert json.loads(response.text)["error"]["param"] == field


def test_b015_tiny_temperatures_are_greedy(client):
    greedy = complete(client, temperature=0).choices[0].text
    assert {complete(client, temperature=value).choices[0].text for value in (9e-6, 1e-40)} == {greedy}


def test_b017_seeds_at_the_ends_of_their_range(client):
    for seed in (-1, 0, 2**63 - 1, -(2**63)):
        first, second = (complete(client, temperature=1, seed=seed).choices[0].text for _ in range(2))
        assert first == second


def test_b019_temperature_one_samples(client):
    at_one = {complete(client, temperature=1.0, seed=seed).choices[0].text for seed in range(1, 5)}
    left_out = {complete(client, seed=seed).choices[0].text for seed in range(1, 5)}
    assert len(at_one) > 1
    assert left_out == at_one
    assert len({complete(client, temperature=0, seed=seed).choices[0].text for seed in range(1, 4)}) == 1


def test_b021_filters_leave_logprobs_finite(base_url):
    body = {"model": MODEL, "prompt": "One two three", "max_tokens": 8, "temperature": 0.01, "top_p": 0.3, "top_k": 1}
    body |= {"logprobs": 5, "logit_bias": {"5": -100}}
    response = httpx.post(f"{base_url}/v1/completions", json=body, timeout=60)
    values = json.loads(response.text, parse_constant=pytest.fail)["choices"][0]["logprobs"]
    assert len(values["tokens"]) == len(values["token_logprobs"]) == 8
    assert all(token in top for token, top in zip(values["tokens"], values["top_logprobs"], strict=True))


def test_b023_bytes_join_to_the_content(client):
    messages = [{"role": "user", "content": "Reply with one emoji and the letter é."}]
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=24, temperature=0, logprobs=True, top_logprobs=3
    )
    data = bytes(byte for entry in answer.choices[0].logprobs.content for byte in entry.bytes)
    assert data.decode("utf-8", "replace") == answer.choices[0].message.content
    offsets = complete(client, prompt="caf\u00e9 \u8a9e", logprobs=2).choices[0].logprobs.text_offset
    assert offsets == sorted(offsets)


def test_b031_one_way_to_count_a_prompt(client, base_url):
    counted = httpx.post(f"{base_url}/v1/tokenize", json={"messages": GREETING}).json()["count"]
    answer = client.chat.completions.create(model=MODEL, messages=GREETING, max_tokens=1)
    assert answer.usage.prompt_tokens == counted


def test_a_service_tier_goes_through_to_the_engine_and_back(client):
    """By the client as it is: a field, and a prompt that the engine has seen before."""
    fields = {"model": MODEL, "messages": [{"role": "user", "content": "Count to twenty. " * 12}], "max_tokens": 4}
    answers = [
        client.chat.completions.create(**fields, temperature=0, service_tier=tier) for tier in ("priority", "flex")
    ]
    assert [answer.service_tier for answer in answers] == ["priority", "flex"]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    cached, prompt = answers[1].usage.prompt_tokens_details.cached_tokens, answers[1].usage.prompt_tokens
    assert prompt / 2 < cached < prompt


def test_metrics_and_status_speak_of_what_was_done(base_url):
    text = httpx.get(f"{base_url}/metrics").text
    assert 'tidemark_kv_pages{state="free"}' in text
    assert "tidemark_generated_tokens_total" in text
    status = httpx.get(f"{base_url}/status").json()
    assert status["state"] == "ready"
    memory = status["memory"]
    measured, planned = memory["partsBytes"], memory["plannedBytes"]
    for part in ("weights", "kv"):
        assert measured[part] == pytest.approx(planned[part], rel=0.03), "as `tidemark plan` has it"
        assert f'tidemark_memory_bytes{{part="{part}"}}' in text
        assert f'tidemark_memory_planned_bytes{{part="{part}"}}' in text
    if "activations" in measured:
        assert measured["activations"] == pytest.approx(planned["activations"], rel=0.25), status["worker"][
            "activations"
        ]
    assert 'tidemark_memory_bytes{part="free"}' in text
