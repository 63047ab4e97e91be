"""A model in several processes, as the server has it: real sockets, gloo, real signals, and nobody left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import engine_waits
import psutil
import pytest
import pytest_asyncio
import rank_team

from tidemark_runtime import config_parsing
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import client, messages
from tidemark_runtime.model import sources
from tidemark_runtime.worker import torch_worker

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(300)]

Finish = messages.FinishReason


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rank_team.write(tmp_path_factory.mktemp("model"))


@pytest_asyncio.fixture(loop_scope="module")
async def pair(folder: Path) -> AsyncIterator[client.EngineClient]:
    settings = rank_team.settings_of(folder, {"hardware": {"tensorParallel": 2}})
    engine = await client.start(settings, sources.resolve(str(folder), folder))
    yield engine
    await engine.close()


def greedy(name: str, max_tokens: int) -> messages.EngineRequest:
    return messages.EngineRequest(name, [5, 6, 7], sampling.SamplingParams(max_tokens=max_tokens, temperature=0.0))


async def test_two_processes_write_what_one_writes_and_end_together(pair: client.EngineClient, folder: Path) -> None:
    settings = rank_team.settings_of(folder)
    single = torch_worker.create(settings, sources.resolve(str(folder), folder), lambda *_: None)
    one = rank_team.Asked(single, settings)
    one.submit(rank_team.PROMPTS, rank_team.PARAMS)
    want = one.run()
    one.core.close()

    facts = await engine_waits.ready(pair)
    assert facts.worker["ranks"].startswith("2 by gloo")
    others = psutil.Process(pair.pid).children()
    assert len(others) == 1
    requests = [
        messages.EngineRequest(name, prompt, params)
        for name, prompt, params in zip(want, rank_team.PROMPTS, rank_team.PARAMS, strict=True)
    ]
    queues = pair.submit(requests)
    assert {name: (await engine_waits.whole(queue))[0] for name, queue in queues.items()} == want
    assert pair.stats.preemptions_total > 0

    queue = pair.submit([greedy("aborted", 90)])["aborted"]
    await queue.get()
    pair.abort(["aborted"])
    assert (await engine_waits.whole(queue))[1].finish is Finish.ABORT
    async with asyncio.timeout(60):
        while pair.stats.requests_running or pair.stats.pages_used:
            await asyncio.sleep(0.01)

    assert await pair.drain(30)
    assert pair.failure is None
    assert psutil.wait_procs(others, timeout=60)[1] == []


async def test_a_killed_rank_ends_the_engine_with_a_message(pair: client.EngineClient) -> None:
    await engine_waits.ready(pair)
    other = psutil.Process(pair.pid).children()[0]
    queue = pair.submit([greedy("a", 90)])["a"]
    await queue.get()
    os.kill(other.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        _, output = await engine_waits.whole(queue)
        await pair.ended.wait()
    assert output.finish is Finish.FAILED
    assert pair.failure is not None
    assert "rank 1 of 2, which has a part of the model, was killed (SIGKILL)" in pair.failure
    assert pair.failure_kind == "RankLost"


async def test_three_processes_share_the_real_model(smollm2_path: Path) -> None:
    """9 query heads, 3 KV heads, 4- and 8-bit groups, a tied table of tokens."""
    prompt = list(range(500, 540))
    sections = {"kvCache": {"numPages": 32, "blockSize": 16}, "model": {"maxContextTokens": 256}}
    settings = rank_team.settings_of(smollm2_path, {**sections, "hardware": {"threads": None}})
    single = torch_worker.create(settings, sources.resolve(str(smollm2_path), Path()), lambda *_: None)
    params = sampling.SamplingParams(max_tokens=16, temperature=0.0)
    one = rank_team.Asked(single, settings)
    one.submit([prompt], [params])
    want = one.run()["r0"]
    one.core.close()

    values = config_parsing.to_mapping(settings)
    values["hardware"]["tensorParallel"] = 3
    engine = await client.start(config_parsing.parse(values), sources.resolve(str(smollm2_path), Path()))
    facts = await engine_waits.ready(engine)
    assert facts.shape is not None
    assert facts.shape.num_kv_heads == 3
    queue = engine.submit([messages.EngineRequest("a", prompt, params)])["a"]
    assert (await engine_waits.whole(queue))[0] == want

    others = psutil.Process(engine.pid).children()
    assert len(others) == 2
    os.kill(engine.pid, signal.SIGKILL)
    await engine.ended.wait()
    assert psutil.wait_procs(others, timeout=20)[1] == [], "nobody is left when the engine is killed"
    await engine.close()
