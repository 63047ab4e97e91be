"""Pages that are shared, found again, taken away and brought back, with a real model: nobody can tell from the text."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import live
import pytest

from tidemark_runtime.contract import http as paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GREEDY = {"temperature": 0, "ignore_eos": True}
PAGE = 16
FLAGS = {
    "num-pages": 16,
    "block-size": PAGE,
    "swap-space": "16Mi",
    "preemption-mode": "swap",
    "max-num-seqs": 4,
    "queue-watermark": 1.0,
    "preempt-watermark": 1.0,
    "threads": 1,
}
"""256 tokens of memory, and swap space for more than that. No line keeps anybody out before the slab is full."""


@pytest.fixture(scope="module")
def server(smollm2_path: Path, tmp_path_factory) -> Iterator[live.Server]:
    flags = [f"--{name}={value}" for name, value in FLAGS.items()]
    with live.serving(tmp_path_factory.mktemp("memory"), str(smollm2_path), *flags) as running:
        yield running


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count(1)


class Client:
    def __init__(self, http: httpx.AsyncClient, numbers: Iterator[int]) -> None:
        self._http = http
        self._numbers = numbers

    def prompt(self, num_tokens: int) -> list[int]:
        """One that no other request begins like, so that nothing of it is found in the prefix cache."""
        chance = random.Random(next(self._numbers))
        return [chance.randrange(1000, 40_000) for _ in range(num_tokens)]

    async def ask(self, prompt: list[int], max_tokens: int, priority: int = 0) -> dict:
        body = GREEDY | {"prompt": prompt, "max_tokens": max_tokens}
        headers = {paths.PRIORITY_HEADER: str(priority)}
        response = await self._http.post(paths.COMPLETIONS_PATH, json=body, headers=headers)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def text(self, prompt: list[int], max_tokens: int, priority: int = 0) -> str:
        return str((await self.ask(prompt, max_tokens, priority))["choices"][0]["text"])

    @contextlib.asynccontextmanager
    async def streaming(self, prompt: list[int], max_tokens: int) -> AsyncIterator[asyncio.Task[str]]:
        """The block begins with the first token; the task is the rest. It is over, or given up, after the block."""
        began = asyncio.Event()
        task = asyncio.create_task(self._stream(prompt, max_tokens, began))
        await began.wait()
        yield task
        await asyncio.gather(task, return_exceptions=True)

    async def _stream(self, prompt: list[int], max_tokens: int, began: asyncio.Event) -> str:
        body = GREEDY | {"prompt": prompt, "max_tokens": max_tokens, "stream": True}
        text = ""
        async with self._http.stream("POST", paths.COMPLETIONS_PATH, json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
                    began.set()
        return text

    async def forget(self) -> None:
        """Take the whole slab once, so that the cache has nothing of what was before."""
        await self.text(self.prompt(PAGE * 15), PAGE)

    async def status(self) -> dict:
        return dict((await self._http.get(paths.STATUS_PATH)).json())

    async def counted(self, name: str) -> float:
        lines = (await self._http.get(paths.METRICS_PATH)).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"tidemark_{name}"))

    async def baseline(self) -> None:
        """Nothing runs, waits, or is held on either side."""
        async with asyncio.timeout(60):
            while True:
                seen = await self.status()
                queue, memory = seen["queue"], seen["memory"]
                if not (queue["running"] or queue["waiting"] or memory["pagesUsed"] or memory["pagesSwapped"]):
                    return
                await asyncio.sleep(0.02)


@pytest.fixture
async def client(server, numbers):
    async with httpx.AsyncClient(base_url=server.url, timeout=120, verify=live.CERTIFICATES) as http:
        made = Client(http, numbers)
        yield made
        await made.baseline()
    assert "Traceback" not in server.log


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33])
async def test_b049_a_prompt_that_is_cached_as_a_whole(client, length):
    prompt = client.prompt(length)
    answers = [await client.ask(prompt, 20) for _ in range(3)]
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached == [0, (length - 1) // PAGE * PAGE, (length - 1) // PAGE * PAGE]


async def test_b047_the_same_second_block_after_another_first(client):
    """The hash is what it is in the product; that weak ones do no harm is tested without a model."""
    same, end = client.prompt(PAGE), client.prompt(5)
    prompts = [[*client.prompt(PAGE), *same, *end] for _ in range(3)] + [[*same, *end]]
    alone = [await client.text(prompt, 12) for prompt in prompts]
    await client.forget()
    for prompt, expected in zip(reversed(prompts), reversed(alone), strict=True):
        answer = await client.ask(prompt, 12)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert answer["choices"][0]["text"] == expected


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_b045_a_cached_block_is_not_stolen_from_who_has_found_it(client, order):
    """X needs all that is free and cached beside the one that runs; Y begins with what is cached."""
    prefix = client.prompt(64)
    wanted = [(client.prompt(70), 7), ([*prefix, *client.prompt(5)], 20)]
    alone = [await client.text(*each) for each in wanted]
    await client.forget()
    await client.ask(prefix, 1)
    async with client.streaming(client.prompt(PAGE * 7), 40):
        together = await asyncio.gather(*(client.text(*wanted[index]) for index in order))
    assert together == [alone[index] for index in order]


async def test_b041_a_pool_just_too_small_with_swap(client):
    prompts = [client.prompt(50) for _ in range(4)]
    alone = [await client.text(prompt, 30) for prompt in prompts]
    await client.forget()
    before = await client.counted('preemptions_total{mode="swap"}')
    assert await asyncio.gather(*(client.text(prompt, 30) for prompt in prompts)) == alone
    assert 1 <= await client.counted('preemptions_total{mode="swap"}') - before <= 3 * len(prompts)


async def test_who_gives_way_to_a_higher_priority_goes_on_where_it_was(client):
    low, high = client.prompt(150), client.prompt(170)
    alone = [await client.text(low, 80), await client.text(high, 5)]
    await client.forget()
    before = await client.counted('preemptions_total{mode="swap"}')
    async with client.streaming(low, 80) as first:
        assert await client.text(high, 5, priority=1) == alone[1]
        assert await first == alone[0]
    assert await client.counted('preemptions_total{mode="swap"}') == before + 1


async def test_b057_an_abort_at_any_moment_of_a_swap_leaks_nothing(client):
    """Its client leaves at moments spread over the time from the first token of the victim to the end of who took its
    pages: while it is copied out, waits, and is copied back."""
    rounds, seconds = 8, 0.0
    swaps = 'preemptions_total{mode="swap"}'
    before = await client.counted(swaps)
    for round_ in range(rounds + 1):
        async with client.streaming(client.prompt(150), 80) as victim:
            started = time.monotonic()
            high = asyncio.create_task(client.text(client.prompt(170), 3, priority=1))
            if round_ == 0:
                await high
                seconds = time.monotonic() - started
            else:
                await asyncio.sleep(1.2 * seconds * round_ / rounds)
            victim.cancel()
        assert await high
        await client.baseline()
    assert await client.counted(swaps) - before > rounds / 2
    await client.forget()
