"""The engine in its own process, as the server has it: real model, real socket, real signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import client, messages
from tidemark_runtime.model import sources

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(300)]

START_SECONDS = 120.0
"""On a busy machine; less than ten otherwise."""

Finish = messages.FinishReason


def settings(source: Path, **scheduler: Any) -> config.EngineConfig:
    return config_parsing.parse(
        {
            "model": {"source": str(source), "maxContextTokens": 512},
            "scheduler": {"maxNumSeqs": 4, **scheduler},
            "kvCache": {"numPages": 128},
            "hardware": {"threads": 2},
        }
    )


async def ready(engine: client.EngineClient) -> messages.EngineReady:
    async with asyncio.timeout(START_SECONDS):
        while engine.ready is None:
            assert engine.failure is None, engine.failure
            await asyncio.sleep(0.02)
    return engine.ready


async def whole(queue: asyncio.Queue[messages.SequenceOutput]) -> tuple[list[int], messages.SequenceOutput]:
    tokens: list[int] = []
    while True:
        output = await queue.get()
        tokens += output.token_ids
        if output.finish is not None:
            assert queue.empty()
            return tokens, output


def request(name: str, max_tokens: int, prompt: int = 10) -> messages.EngineRequest:
    return messages.EngineRequest(
        name, list(range(500, 500 + prompt)), sampling.SamplingParams(max_tokens=max_tokens, temperature=0.0)
    )


async def started(path: Path) -> AsyncIterator[client.EngineClient]:
    made = await client.start(settings(path), sources.resolve(str(path), Path()))
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(smollm2_path: Path) -> AsyncIterator[client.EngineClient]:
    """Shared by the tests that leave it healthy: a start takes seconds."""
    async for made in started(smollm2_path):
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def own_engine(smollm2_path: Path) -> AsyncIterator[client.EngineClient]:
    """For a test that ends it."""
    async for made in started(smollm2_path):
        yield made


async def test_requests_end_once_and_the_pages_come_back(engine: client.EngineClient) -> None:
    facts = await ready(engine)
    assert facts.max_request_tokens == 512
    queues = engine.submit([request("a", 8), request("b", 16)])
    results = await asyncio.gather(*(whole(queue) for queue in queues.values()))
    assert [len(tokens) for tokens, _ in results] == [8, 16]
    assert results[0][0] == results[1][0][:8], "the same prompt, the same tokens"
    assert [output.finish for _, output in results] == [Finish.LENGTH, Finish.LENGTH]
    async with asyncio.timeout(5):
        while engine.stats.pages_used:
            await asyncio.sleep(0.01)


async def test_b011_an_abort_frees_the_pages_at_once(engine: client.EngineClient) -> None:
    await ready(engine)
    queue = engine.submit([request("a", 400)])["a"]
    await queue.get()
    engine.abort(["a", "a", "nobody"])
    async with asyncio.timeout(3):  # a step or two; all 400 tokens take longer
        _, output = await whole(queue)
        while engine.stats.requests_running or engine.stats.pages_used:
            await asyncio.sleep(0.01)
    assert output.finish is Finish.ABORT


async def test_refusals_come_back_as_the_only_output(engine: client.EngineClient) -> None:
    await ready(engine)
    queues = engine.submit([request("fits", 5), request("too long", 600)])
    for queue in queues.values():
        tokens, output = await whole(queue)
        assert (tokens, output.finish, output.reject) == ([], Finish.REJECTED, messages.RejectReason.CONTEXT_LENGTH)
        assert "610 tokens" in output.message


async def test_draining_lets_the_running_end_and_refuses_the_new(own_engine: client.EngineClient) -> None:
    await ready(own_engine)
    running = own_engine.submit([request("a", 60)])["a"]
    await running.get()
    drain = asyncio.create_task(own_engine.drain(120))
    await asyncio.sleep(0)
    refused = own_engine.submit([request("late", 5)])["late"]
    assert (await whole(refused))[1].reject is messages.RejectReason.DRAINING
    assert (await whole(running))[1].finish is Finish.LENGTH
    assert await drain
    assert own_engine.failure is None


async def test_b035_a_killed_engine_is_noticed_at_once_and_everybody_is_told(own_engine: client.EngineClient) -> None:
    await ready(own_engine)
    queue = own_engine.submit([request("a", 400)])["a"]
    await queue.get()
    os.kill(own_engine.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        _, output = await whole(queue)
        await own_engine.ended.wait()
    assert output.finish is Finish.FAILED
    assert own_engine.failure is not None
    assert "SIGKILL" in own_engine.failure
    with pytest.raises(errors.EngineDead, match="SIGKILL"):
        own_engine.submit([request("b", 5)])


async def test_b035_a_stuck_step_shows_as_age_and_an_idle_engine_does_not(engine: client.EngineClient) -> None:
    await ready(engine)
    await asyncio.sleep(2.5)
    assert engine.progress_age_seconds < 2.0, "an idle engine says so every second"
    queue = engine.submit([request("a", 400)])["a"]
    await queue.get()
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(2.5)
        assert engine.progress_age_seconds > 2.0
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    engine.abort(["a"])
    assert (await whole(queue))[1].finish is Finish.ABORT


async def test_a_model_that_cannot_be_loaded_is_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    engine = await client.start(settings(broken), sources.resolve(str(broken), Path()))
    async with asyncio.timeout(START_SECONDS):
        await engine.ended.wait()
    assert engine.failure is not None
    assert str(broken) in engine.failure
    assert "Traceback" not in engine.failure
    await engine.close()


async def test_a_pool_smaller_than_a_page_is_a_sentence(smollm2_path: Path) -> None:
    small = config_parsing.parse(
        {"model": {"source": str(smollm2_path)}, "kvCache": {"memory": "64Ki"}, "scheduler": {"maxNumSeqs": 1}}
    )
    engine = await client.start(small, sources.resolve(str(smollm2_path), Path()))
    async with asyncio.timeout(START_SECONDS):
        await engine.ended.wait()
    assert engine.failure is not None
    assert "kvCache" in engine.failure
    await engine.close()
