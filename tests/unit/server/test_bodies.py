"""B029: large bodies are refused early or handled off the loop."""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest

from tidemark_runtime import config
from tidemark_runtime.server import bodies

PATH = "/v1/completions"


@pytest.fixture
def settings(settings):
    return dataclasses.replace(settings, server=config.ServerConfig(max_body=200_000))


async def test_a_declared_size_over_the_limit_is_refused_before_reading(app, exchange, shared):
    client = exchange(app, PATH, b"x", {"content-length": "200001"})
    await client.task
    assert client.status == 413
    assert client.num_receives_at_answer == 0
    assert json.loads(client.body)["error"]["code"] == "body_too_large"
    assert (b"connection", b"close") in client.sent[0]["headers"]


async def test_a_body_of_unknown_size_is_refused_when_it_passes_the_limit(app, exchange):
    client = exchange(app, PATH, b"x" * 150_000, {"transfer-encoding": "chunked"})
    client._parts += [b"x" * 150_000] * 10
    await client.task
    assert client.status == 413
    assert client.num_receives_at_answer == 2


async def test_at_the_limit_it_is_served(http):
    body = json.dumps({"prompt": [65], "user": ""})
    body = body.replace('"user": ""', '"user": "' + "x" * (200_000 - len(body)) + '"')
    assert len(body) == 200_000
    assert (await http.post(PATH, content=body)).status_code == 200


@pytest.mark.parametrize(("size", "is_elsewhere"), [(100, False), (100_000, True)])
async def test_large_prompts_are_tokenized_in_another_thread(http, text, monkeypatch, size, is_elsewhere):
    threads = []

    def encode(prompt, *, add_special):
        threads.append(threading.current_thread())
        return [65]

    monkeypatch.setattr(text, "encode", encode)
    assert (await http.post(PATH, json={"prompt": "x" * size})).status_code == 200
    assert (threads[0] is not threading.current_thread()) == is_elsewhere


async def test_an_error_from_the_other_thread_is_answered_too(http):
    response = await http.post(PATH, json={"prompt": "x" * 100_000, "temperature": 3})
    assert response.status_code == 400


async def test_a_client_that_leaves_in_the_middle_of_its_body(app, engine):
    events = [{"type": "http.request", "body": b'{"prompt": ', "more_body": True}, {"type": "http.disconnect"}]
    sent = []

    async def receive() -> dict:
        return events.pop(0)

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": PATH, "headers": [], "query_string": b""}
    await app(scope, receive, send)
    assert sent == []
    assert engine.submitted == []


def test_numbers_that_are_not_finite_are_named_by_path():
    with pytest.raises(bodies.errors.InvalidRequest) as caught:
        bodies.parse(b'{"a": {"b": [1, NaN]}}')
    assert caught.value.param == "a.b[1]"
