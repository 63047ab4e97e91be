"""B011, B013: a client that leaves, at any moment, frees everything it had."""

from __future__ import annotations

import asyncio
import json

import pytest

PATHS = {"/v1/completions": {"prompt": "Hi"}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]}}


@pytest.fixture(params=PATHS, ids=["completions", "chat"])
def start(request, app, engine, exchange):
    engine.pause_after = 3

    def send(**fields):
        body = {"model": "M", "max_tokens": 800, **PATHS[request.param], **fields}
        return exchange(app, request.param, json.dumps(body).encode())

    return send


def aborted_total(shared) -> float:
    return shared.metrics.registry.get_sample_value("tidemark_requests_total", {"outcome": "aborted"})


async def running(engine, count: int) -> None:
    while engine.num_running != count:
        await asyncio.sleep(0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 4])
async def test_b011_b013_leaving_aborts_all_choices(start, engine, shared, stream, n):
    client = start(stream=stream, n=n)
    await running(engine, n)
    if stream:
        await client.until(b"data: ")
    client.left.set()
    await client.task
    assert engine.num_running == 0
    assert sorted(engine.aborted) == sorted(request.id for request in engine.submitted)
    assert shared.generations == set()
    assert aborted_total(shared) == 1
    assert client.sent == [] or stream


async def test_leaving_while_waiting_for_a_turn(start, engine, shared):
    engine.pause_after = 0
    client = start(stream=True)
    await running(engine, 1)
    client.left.set()
    await client.task
    assert (engine.num_running, len(engine.aborted), client.sent) == (0, 1, [])


async def test_a_finished_choice_is_not_aborted(start, engine):
    engine.script = lambda request: [65] if request.id.endswith("-0") else list(b"long text")
    client = start(stream=True, n=2)
    await client.until(b'"finish_reason":"stop"')
    await running(engine, 1)
    client.left.set()
    await client.task
    assert engine.aborted == [engine.submitted[1].id]


async def test_a_cancelled_handler_aborts_too(start, engine, shared):
    client = start(stream=True)
    await client.until(b"data: ")
    client.task.cancel()
    await asyncio.gather(client.task, return_exceptions=True)
    assert client.task.cancelled()
    assert engine.num_running == 0
    assert shared.generations == set()


async def test_a_slow_client_does_not_hold_others_up(app, engine, exchange, http):
    """The send of one stream hangs; another request is answered meanwhile, and the first goes on in one chunk."""
    engine.pause_after = None
    slow = exchange(app, "/v1/completions", json.dumps({"prompt": "Hi", "stream": True, "max_tokens": 40}).encode())
    slow.hang_after = 2
    await slow.until(b'"text":"H"')
    answer = await http.post("/v1/completions", json={"prompt": "Hi"})
    assert answer.json()["choices"][0]["text"] == "Hello, world!"
    slow.go_on.set()
    await slow.task
    assert b'"text":"ello, world!"' in slow.body
