"""Hot settings of the scheduler and of overload, each seen in what the real engine does differently.

`EFFECTS` has one test for each; `test_hot_config.py` compares it with the settings that there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import live
import pytest
import yaml

from tidemark_runtime.contract import http as paths

pytestmark = pytest.mark.timeout(400)

KEYS = "first name=first max-priority=5\nsecond name=second\n"
TOKEN = {"authorization": "Bearer the-token"}
FIRST, SECOND = ({"authorization": f"Bearer {key}"} for key in ("first", "second"))
GREEDY = {"temperature": 0, "ignore_eos": True}

START = {
    "model": {"name": "small", "maxContextTokens": 512},
    "kvCache": {"numPages": 32, "blockSize": 16, "swapSpace": "32Mi"},
    "scheduler": {"maxNumSeqs": 4, "maxNumBatchedTokens": 256},
    "hardware": {"threads": 1},
}


@pytest.fixture(scope="module")
def server(smollm2_path: Path, tmp_path_factory) -> Iterator[live.Server]:
    """512 tokens of memory in 32 pages for four sequences, as much swap space, two API keys."""
    folder = tmp_path_factory.mktemp("hot-scheduling")
    for name, text in (("keys", KEYS), ("token", "the-token\n"), ("engine.yaml", yaml.safe_dump(START))):
        (folder / name).write_text(text)
    files = ["--api-keys-file", str(folder / "keys"), "--admin-token-file", str(folder / "token")]
    with live.serving(folder, str(smollm2_path), "--config", str(folder / "engine.yaml"), *files) as running:
        yield running


class Client:
    """Speaks with the server as the first key."""

    def __init__(self, http: httpx.AsyncClient, words: Iterator[int]) -> None:
        self.http = http
        self._words = words

    async def put(self, overload: dict | None = None, **scheduler: object) -> None:
        response = await self.try_to_put({}, overload, **scheduler)
        assert response.status_code == 200, response.text

    async def limit_context(self, num_tokens: int, **scheduler: object) -> None:
        response = await self.try_to_put({"maxContextTokens": num_tokens}, **scheduler)
        assert response.status_code == 200, response.text

    async def try_to_put(self, model: dict, overload: dict | None = None, **scheduler: object) -> httpx.Response:
        document = START | {
            "model": {**START["model"], **model},
            "scheduler": {**START["scheduler"], **scheduler},
            "overload": overload or {},
        }
        return await self.http.put(paths.ADMIN_CONFIG_PATH, json=document, headers=TOKEN)

    async def context_limit(self) -> int:
        return int((await self.http.get(paths.MODELS_PATH, headers=FIRST)).json()["data"][0]["max_context_tokens"])

    def prompt(self, num_tokens: int) -> list[int]:
        """Never the same one, so that none is found in the prefix cache."""
        return [next(self._words)] * num_tokens

    async def complete(self, num_tokens: int, max_tokens: int = 1, headers: dict | None = None) -> httpx.Response:
        body = GREEDY | {"prompt": self.prompt(num_tokens), "max_tokens": max_tokens}
        return await self.http.post(paths.COMPLETIONS_PATH, json=body, headers=FIRST | (headers or {}))

    @contextlib.asynccontextmanager
    async def running(self, num_tokens: int, max_tokens: int = 150, count: int = 1) -> AsyncIterator[None]:
        """`count` requests that have begun to answer and go on while the block runs."""
        began = [asyncio.Event() for _ in range(count)]
        tasks = [asyncio.create_task(self._stream(num_tokens, max_tokens, event)) for event in began]
        await asyncio.gather(*(event.wait() for event in began))
        try:
            yield
            assert not any(task.done() for task in tasks), "it was to run for the whole block"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def waiting(self, *tasks: asyncio.Task) -> AsyncIterator[dict]:
        """The queue, once as many wait as there are tasks; these are ended with the block."""
        try:
            while (queue := (await self.status())["queue"])["waiting"] < len(tasks):
                assert not any(task.done() for task in tasks)
            yield queue
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def status(self) -> dict:
        return dict((await self.http.get(paths.STATUS_PATH)).json())

    async def counted(self, name: str) -> float:
        lines = (await self.http.get(paths.METRICS_PATH)).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"tidemark_{name}"))

    async def idle(self) -> None:
        async with asyncio.timeout(30):
            while (seen := await self.status())["queue"]["running"] or seen["queue"]["waiting"]:
                await asyncio.sleep(0.01)

    async def _stream(self, num_tokens: int, max_tokens: int, began: asyncio.Event) -> None:
        body = GREEDY | {"prompt": self.prompt(num_tokens), "max_tokens": max_tokens, "stream": True}
        async with self.http.stream("POST", paths.COMPLETIONS_PATH, json=body, headers=FIRST) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    assert "error" not in json.loads(line.removeprefix("data: "))
                    began.set()


@pytest.fixture(scope="module")
def words() -> Iterator[int]:
    """Token ids, each once."""
    return itertools.count(1000)


@pytest.fixture
async def client(server, words) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        made = Client(http, words)
        await made.idle()
        await made.put()
        yield made
        await made.idle()
        await made.put()


# ---- who runs ------------------------------------------------------------------------------------------------


async def a_soft_limit_leaves_places_empty(client: Client) -> None:
    async with client.running(16):
        assert (await client.complete(16)).status_code == 200
        await client.put(maxConcurrencySoft=1)
        async with client.waiting(asyncio.create_task(client.complete(16))) as queue:
            assert (queue["running"], queue["waiting"]) == (1, 1)


async def above_the_queue_line_new_ones_wait(client: Client) -> None:
    async with client.running(208):
        assert (await client.complete(112)).status_code == 200, "13 and 7 of 32 pages are below 0.7"
        await client.put(queueWatermark=0.3)
        async with client.waiting(asyncio.create_task(client.complete(112))):
            assert (await client.status())["lines"]["queue"]["above"]
            assert await client.counted('watermark_state{level="queue"}') == 1


async def nobody_starts_above_the_preempt_line(client: Client) -> None:
    await client.put(queueWatermark=0.5, preemptWatermark=0.95)
    async with client.running(208):
        assert (await client.complete(32)).status_code == 200
        await client.put(queueWatermark=0.5, preemptWatermark=0.5)
        async with client.waiting(asyncio.create_task(client.complete(112))):
            assert not (await client.status())["lines"]["queue"]["above"], "only the other line can be the reason"


async def a_wide_hysteresis_leaves_a_line_late(client: Client) -> None:
    async def still_above_with(hysteresis: float) -> bool:
        await client.put(queueWatermark=0.6, watermarkHysteresis=hysteresis)
        async with client.running(160):
            async with client.running(160):
                assert (await client.status())["lines"]["queue"]["above"], "20 of 32 pages"
            while (seen := await client.status())["queue"]["running"] > 1:
                await asyncio.sleep(0.01)
            return bool(seen["lines"]["queue"]["above"])

    assert not await still_above_with(0.05)
    await client.idle()
    assert await still_above_with(0.6)


# ---- lanes ---------------------------------------------------------------------------------------------------


async def shorter_ones_count_as_long(client: Client) -> None:
    async def lanes() -> dict:
        async with client.running(16, count=4), client.waiting(asyncio.create_task(client.complete(64))) as queue:
            return dict(queue["waitingByLane"])

    assert await lanes() == {"express": 1, "slow": 0}
    await client.idle()
    await client.put(longRequestTokens=64)
    assert await lanes() == {"express": 0, "slow": 1}


async def a_share_of_all_leaves_the_express_lane_nothing(client: Client) -> None:
    settings = {"queueWatermark": 0.3, "longRequestTokens": 128}
    await client.put(**settings)
    async with client.running(208):
        assert (await client.complete(32)).status_code == 200, "half of the pages under the line are the express lane's"
        await client.put(**settings, longRequestShare=1.0)
        async with client.waiting(asyncio.create_task(client.complete(32))):
            pass


async def without_patience_nobody_is_passed(client: Client) -> None:
    async def passes(num_waiting: int) -> None:
        """15 pages run, one of 14 does not fit under 0.9, one of 2 does."""
        async with client.running(240, max_tokens=100):
            large = asyncio.create_task(client.complete(224))
            async with client.waiting(large):
                small = asyncio.create_task(client.complete(32))
                if num_waiting == 1:
                    assert (await small).status_code == 200
                    assert not large.done()
                else:
                    async with client.waiting(large, small):
                        pass

    lines = {"queueWatermark": 0.85}
    await client.put(**lines)
    await passes(1)
    await client.idle()
    await client.put(**lines, agingSeconds=0)
    await passes(2)


async def keys_take_turns(client: Client) -> None:
    async def order(**settings: object) -> list[str]:
        done: list[str] = []

        async def ask(name: str, headers: dict) -> None:
            assert (await client.complete(32, max_tokens=4, headers=headers)).status_code == 200
            done.append(name)

        await client.put(maxConcurrencySoft=1, **settings)
        async with client.running(16, max_tokens=60):
            tasks = []
            for name, headers in (*(("first", FIRST),) * 3, ("second", SECOND)):
                tasks.append(asyncio.create_task(ask(name, headers)))
                while (await client.status())["queue"]["waiting"] < len(tasks):
                    await asyncio.sleep(0.002)
        await asyncio.gather(*tasks)
        await client.idle()
        return done

    assert await order() == ["first", "first", "first", "second"]
    assert (await order(fairness="apiKey")).index("second") < 2


# ---- preemption ----------------------------------------------------------------------------------------------


async def pages_come_back_the_way_that_was_set(client: Client) -> None:
    async def preempted(mode: str) -> dict[str, float]:
        await client.put(preemptionMode=mode, queueWatermark=0.9)
        names = {way: f'preemptions_total{{mode="{way}"}}' for way in ("swap", "recompute")}
        before = {way: await client.counted(name) for way, name in names.items()}
        answers = await asyncio.gather(*(client.complete(96, max_tokens=80) for _ in range(4)))
        assert {answer.status_code for answer in answers} == {200}
        return {way: await client.counted(name) - before[way] for way, name in names.items()}

    recomputed = await preempted("recompute")
    assert recomputed["recompute"] > 0
    assert recomputed["swap"] == 0
    swapped = await preempted("swap")
    assert swapped["swap"] > 0
    assert await client.counted('swap_bytes_total{direction="in"}') > 0


# ---- overload ------------------------------------------------------------------------------------------------


async def so_many_tokens_may_wait(client: Client) -> None:
    async with client.running(16, count=4), client.waiting(asyncio.create_task(client.complete(100))):
        await client.put(maxQueuedTokens=120)
        refused = await client.complete(50)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_tokens")
        assert "queue_tokens" in (await client.http.get(paths.METRICS_PATH)).text
        assert int(refused.headers["retry-after"]) >= 1


async def retries_find_the_queue_closed(client: Client) -> None:
    retry = {"x-stainless-retry-count": "1"}
    async with client.running(16, count=4):
        await client.put(retryShare=0)
        refused = await client.complete(16, headers=retry)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "retry_budget")
        await client.put(retryShare=1)
        async with client.waiting(asyncio.create_task(client.complete(16, headers=retry))):
            pass


async def a_rule_takes_from_those_who_agreed(client: Client) -> None:
    rules = {"degrade": [{"at": "backlog", "keys": ["second"], "maxTokens": 2}]}
    async with client.running(16, count=4), client.waiting(asyncio.create_task(client.complete(16))):
        await client.put(rules, maxQueuedRequests=2)
        tight = asyncio.create_task(client.complete(16, max_tokens=5, headers=SECOND))
        while (await client.status())["queue"]["waiting"] < 2:
            assert not tight.done()
    answer = await tight
    assert answer.headers[paths.DEGRADED_HEADER] == "max_tokens=2; rule=overload.degrade[0]; at=backlog"
    assert answer.json()["usage"]["completion_tokens"] == 2
    calm = await client.complete(16, max_tokens=5, headers=SECOND)
    assert calm.json()["usage"]["completion_tokens"] == 5


# ---- the batch -----------------------------------------------------------------------------------------------


async def a_short_step_takes_in_less_of_a_prompt(client: Client) -> None:
    async def num_steps() -> float:
        name = 'step_tokens_count{phase="prompt"}'
        before = await client.counted(name)
        assert (await client.complete(240)).status_code == 200
        return await client.counted(name) - before

    few = await num_steps()
    await client.put(targetStepSeconds=0.05)
    many = await num_steps()
    assert few <= 2
    assert many >= 4


async def a_lower_limit_refuses_what_is_longer(client: Client) -> None:
    async with client.running(100):
        await client.limit_context(120)
        refused = await client.complete(100, max_tokens=21)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        said = refused.json()["error"]["message"]
        assert re.match(
            r"The context is limited to 120 tokens.*, in force since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", said
        )
        assert (await client.complete(100, max_tokens=20)).status_code == 200
        assert await client.context_limit() == (await client.status())["model"]["maxContextTokens"] == 120
        await client.limit_context(512)
        assert (await client.complete(100, max_tokens=21)).status_code == 200


EFFECTS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "scheduler.maxConcurrencySoft": a_soft_limit_leaves_places_empty,
    "scheduler.queueWatermark": above_the_queue_line_new_ones_wait,
    "scheduler.preemptWatermark": nobody_starts_above_the_preempt_line,
    "scheduler.watermarkHysteresis": a_wide_hysteresis_leaves_a_line_late,
    "scheduler.longRequestTokens": shorter_ones_count_as_long,
    "scheduler.longRequestShare": a_share_of_all_leaves_the_express_lane_nothing,
    "scheduler.agingSeconds": without_patience_nobody_is_passed,
    "scheduler.fairness": keys_take_turns,
    "scheduler.preemptionMode": pages_come_back_the_way_that_was_set,
    "scheduler.maxQueuedTokens": so_many_tokens_may_wait,
    "scheduler.retryShare": retries_find_the_queue_closed,
    "scheduler.targetStepSeconds": a_short_step_takes_in_less_of_a_prompt,
    "overload.degrade": a_rule_takes_from_those_who_agreed,
    "model.maxContextTokens": a_lower_limit_refuses_what_is_longer,
}


@pytest.mark.parametrize("key", sorted(EFFECTS))
async def test_every_hot_setting_has_its_effect(key, client) -> None:
    await EFFECTS[key](client)


async def test_who_is_in_flight_keeps_the_context_it_was_admitted_with(client) -> None:
    """One runs and one waits, each of 160 tokens, when the limit falls below what the first one has already."""
    await client.put(maxConcurrencySoft=1)
    runs = asyncio.create_task(client.complete(100, max_tokens=60))
    while not (await client.status())["queue"]["running"]:
        assert not runs.done()
    waits = asyncio.create_task(client.complete(100, max_tokens=60))
    while not (await client.status())["queue"]["waiting"]:
        assert not waits.done()
    await client.limit_context(50, maxConcurrencySoft=1)
    assert not waits.done()
    for answer in await asyncio.gather(runs, waits):
        assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 60)
        assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert (await client.complete(50, max_tokens=1)).status_code == 400


@pytest.mark.parametrize(("wanted", "restart_helps"), [(513, True), (None, True), (100_000, False)])
async def test_more_context_than_at_the_start_is_refused_and_nothing_changes(client, wanted, restart_helps) -> None:
    """None is the model's own limit, 8192."""
    await client.limit_context(300)
    before = (await client.status())["config"]
    refused = await client.try_to_put({"maxContextTokens": wanted}, maxQueuedRequests=3)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "config_invalid")
    (problem,) = refused.json()["error"]["problems"]
    assert problem["key"] == "model.maxContextTokens"
    assert problem["expected"].startswith("at most 512, what this engine was started with")
    assert "8192" in problem["remedy"]
    assert ("restart the engine" in problem["remedy"]) == restart_helps
    assert (await client.status())["config"] == before
    assert await client.context_limit() == 300
