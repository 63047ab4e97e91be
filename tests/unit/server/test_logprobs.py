"""B021, B023: log-probabilities are finite, complete, and right about bytes and offsets."""

from __future__ import annotations

import json
import math

import pytest

from tidemark_runtime.core import step_plan
from tidemark_runtime.server import choice, logprobs

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]


async def chat(http, **fields):
    response = await http.post(CHAT, json={"model": "M", "messages": HI, "max_tokens": 40, "logprobs": True, **fields})
    assert response.status_code == 200
    return response


async def test_b023_bytes_of_the_chosen_tokens_are_the_content(http, engine):
    engine.script = lambda request: list("😀é".encode())
    choice_ = (await chat(http, top_logprobs=3)).json()["choices"][0]
    entries = choice_["logprobs"]["content"]
    assert (
        bytes(byte for entry in entries for byte in entry["bytes"]).decode() == choice_["message"]["content"] == "😀é"
    )
    assert [entry["token"] for entry in entries[:2]] == ["bytes:\\xf0", "bytes:\\x9f"]
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)
    assert all(len(other["bytes"]) == 1 for entry in entries for other in entry["top_logprobs"])


async def test_b023_the_same_streamed_with_text_held_back(http, engine, parse_events):
    engine.script = lambda request: list("ab😀stop it".encode())
    response = await chat(http, stream=True, stop=["stop"])
    content, data = "", b""
    for event in parse_events(response.text)[:-1]:
        delta = event["choices"][0]
        content += delta["delta"].get("content", "")
        for entry in (delta["logprobs"] or {"content": []})["content"]:
            data += bytes(entry["bytes"])
    assert content == data.decode() == "ab😀"


async def test_b021_top_logprobs_zero_works_and_none_means_none(http):
    entries = (await chat(http, top_logprobs=0)).json()["choices"][0]["logprobs"]["content"]
    assert len(entries) == 13
    assert all(entry["top_logprobs"] == [] and entry["logprob"] == -1.5 for entry in entries)
    assert (await chat(http, logprobs=False)).json()["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("count", [0, 2, 20])
async def test_b021_completions_always_list_the_chosen_token(http, count):
    response = await http.post(COMPLETIONS, json={"prompt": "Hi", "max_tokens": 5, "logprobs": count})
    values = response.json()["choices"][0]["logprobs"]
    assert values["tokens"] == list("Hello")
    for token, top in zip(values["tokens"], values["top_logprobs"], strict=True):
        assert top[token] == -1.5
        assert len(top) == count + 1


async def test_b023_offsets_count_characters_and_never_go_back(http, engine):
    engine.script = lambda request: list("é語x".encode())
    response = await http.post(COMPLETIONS, json={"prompt": "caf\u00e9", "max_tokens": 40, "logprobs": 2})
    assert response.json()["choices"][0]["logprobs"]["text_offset"] == [0, 0, 1, 1, 1, 2]


def test_b021_infinities_are_floored(text):
    lowest = step_plan.TokenLogprobs(-math.inf, (65, 66), (math.nan, -math.inf))
    entries = [choice.TokenEntry(65, 0, lowest)]
    shown = logprobs.for_chat(text, entries).content[0]
    assert [shown.logprob] + [other.logprob for other in shown.top_logprobs] == [logprobs.FLOOR] * 3
    assert logprobs.for_completions(text, entries).token_logprobs == [logprobs.FLOOR]


async def test_answers_with_logprobs_are_strictly_valid_json(http):
    response = await chat(http, top_logprobs=20)
    json.loads(response.content, parse_constant=pytest.fail)
