"""The engine in its own process, as the server has it: real model, real socket, real signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import engine_waits
import pytest
import pytest_asyncio

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import client, messages
from tidemark_runtime.model import sources

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 60.0
"""For what is due at once, on a busy machine."""
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
    facts = await engine_waits.ready(engine)
    assert facts.max_request_tokens == 512
    queues = engine.submit([request("a", 8), request("b", 16)])
    results = await asyncio.gather(*(engine_waits.whole(queue) for queue in queues.values()))
    assert [len(tokens) for tokens, _ in results] == [8, 16]
    assert results[0][0] == results[1][0][:8], "the same prompt, the same tokens"
    assert [output.finish for _, output in results] == [Finish.LENGTH, Finish.LENGTH]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while engine.stats.pages_used:
            await asyncio.sleep(0.01)


async def test_b011_an_abort_frees_the_pages_at_once(engine: client.EngineClient) -> None:
    await engine_waits.ready(engine)
    queue = engine.submit([request("a", 400)])["a"]
    await queue.get()
    engine.abort(["a", "a", "nobody"])
    async with asyncio.timeout(PATIENCE_SECONDS):
        tokens, output = await engine_waits.whole(queue)
        while engine.stats.requests_running or engine.stats.pages_used:
            await asyncio.sleep(0.01)
    assert output.finish is Finish.ABORT
    assert len(tokens) < 200, "long before its end"


async def test_refusals_come_back_as_the_only_output(engine: client.EngineClient) -> None:
    await engine_waits.ready(engine)
    queues = engine.submit([request("fits", 5), request("too long", 600)])
    for queue in queues.values():
        tokens, output = await engine_waits.whole(queue)
        assert (tokens, output.finish, output.reject) == ([], Finish.REJECTED, messages.RejectReason.CONTEXT_LENGTH)
        assert "610 tokens" in output.message


async def test_draining_lets_the_running_end_and_refuses_the_new(own_engine: client.EngineClient) -> None:
    await engine_waits.ready(own_engine)
    running = own_engine.submit([request("a", 60)])["a"]
    await running.get()
    drain = asyncio.create_task(own_engine.drain(120))
    await asyncio.sleep(0)
    refused = own_engine.submit([request("late", 5)])["late"]
    assert (await engine_waits.whole(refused))[1].reject is messages.RejectReason.DRAINING
    assert (await engine_waits.whole(running))[1].finish is Finish.LENGTH
    assert await drain
    assert own_engine.failure is None


async def test_b035_a_killed_engine_is_noticed_at_once_and_everybody_is_told(own_engine: client.EngineClient) -> None:
    await engine_waits.ready(own_engine)
    queue = own_engine.submit([request("a", 400)])["a"]
    await queue.get()
    os.kill(own_engine.pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_SECONDS):
        _, output = await engine_waits.whole(queue)
        await own_engine.ended.wait()
    assert output.finish is Finish.FAILED
    assert own_engine.failure is not None
    assert "SIGKILL" in own_engine.failure
    with pytest.raises(errors.EngineDead, match="SIGKILL"):
        own_engine.submit([request("b", 5)])


async def test_b035_a_stuck_step_shows_as_age_and_an_idle_engine_does_not(engine: client.EngineClient) -> None:
    """An idle engine says so every second, so its age begins anew again and again."""
    await engine_waits.ready(engine)
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(3):
            while (age := engine.progress_age_seconds) < 0.5:
                await asyncio.sleep(0.01)
            while engine.progress_age_seconds >= age:
                await asyncio.sleep(0.01)
    queue = engine.submit([request("a", 400)])["a"]
    await queue.get()
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while engine.progress_age_seconds < 3.0:  # more than between two signs of life
                await asyncio.sleep(0.05)
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    engine.abort(["a"])
    assert (await engine_waits.whole(queue))[1].finish is Finish.ABORT


async def test_a_model_that_cannot_be_loaded_is_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    engine = await client.start(settings(broken), sources.resolve(str(broken), Path()))
    async with asyncio.timeout(engine_waits.START_SECONDS):
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
    async with asyncio.timeout(engine_waits.START_SECONDS):
        await engine.ended.wait()
    assert engine.failure is not None
    assert "kvCache" in engine.failure
    await engine.close()
