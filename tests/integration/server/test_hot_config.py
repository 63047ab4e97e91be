"""Settings that change while the real engine serves: every hot one has its effect, and no stream notices.

`EFFECTS` has one test for each hot setting, here or in `test_hot_scheduling.py`; a hot setting without one fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import json
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import live
import pytest
import yaml

from tidemark_runtime.contract import http as paths
from tidemark_runtime.contract import reasons
from tidemark_runtime.contract import settings as contract
from tidemark_runtime.server import app as server_app
from tidemark_runtime.server import lifecycle, listening

pytestmark = pytest.mark.timeout(400)
"""On a machine that others keep busy a start alone can take a minute or two, and an answer of 200 tokens one more."""

TOKEN = {"authorization": "Bearer the-token"}
GREEDY = {"prompt": "The three largest rivers of Europe are", "temperature": 0, "ignore_eos": True}
LONG = "one two three four five six seven eight nine ten " * 30
CERTIFICATES = Path(__file__).parents[2] / "support" / "certificates"

START = {
    "model": {"name": "small", "maxContextTokens": 512},
    "kvCache": {"numPages": 32},
    "scheduler": {"maxNumSeqs": 4, "maxNumBatchedTokens": 256},
    "server": {"drainSeconds": 20},
    "hardware": {"threads": 1},
}


def start_with(**sections: dict) -> dict:
    return {**START, **{name: {**START[name], **settings} for name, settings in sections.items()}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("hot")
    (made / "token").write_text("the-token\n")
    (made / "engine.yaml").write_text(yaml.safe_dump(START))
    return made


def flags(folder: Path, model: Path) -> list[str]:
    return [str(model), "--config", str(folder / "engine.yaml"), "--admin-token-file", str(folder / "token")]


@pytest.fixture(scope="module")
def server(smollm2_path: Path, folder: Path) -> Iterator[live.Server]:
    """512 tokens of memory for four sequences that may have as many each, so that it runs dry soon."""
    with live.serving(folder, *flags(folder, smollm2_path)) as running:
        yield running


@pytest.fixture(scope="module")
def own_server(smollm2_path: Path, folder: Path, tmp_path_factory) -> Iterator[live.Server]:
    """Just started. First for the test of what it says while it loads, then for the one that ends it."""
    started = live.start(tmp_path_factory.mktemp("own"), *flags(folder, smollm2_path))
    yield started
    started.process.kill()
    started.process.wait()


class Clock:
    """Time that only moves when told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass(frozen=True)
class Scripted:
    """A server in this process, over an engine that says what the test wants."""

    url: str
    engine: Any
    clock: Clock
    life: lifecycle.Lifecycle
    task: asyncio.Task[int]

    async def ended(self) -> int:
        """The exit code. Time goes on meanwhile."""
        while not self.task.done():
            self.clock.now += 0.1
            await asyncio.sleep(0.01)
        return await self.task


class Silent:
    def loading(self, progress: object) -> None: ...

    def ready(self) -> None: ...

    def draining(self, num_requests: int, seconds: float) -> None: ...

    def failed(self, reason: reasons.Reason, message: str) -> None: ...


@pytest.fixture
async def scripted(fakes, folder) -> AsyncIterator[Scripted]:
    engine = fakes.FakeEngine()
    parsed = contract.parse({"model": {"source": "m.gguf"}, "server": {"adminTokenFile": str(folder / "token")}})

    async def start_engine():
        return engine

    clock = Clock()
    shared = server_app.create_context(parsed, clock=clock)
    life = lifecycle.Lifecycle(shared, start_engine, fakes.ByteText, Silent())
    with listening.bind("127.0.0.1", 0) as listener:
        task = asyncio.create_task(life.run(listener))
        url = listening.url(listener)
        async with httpx.AsyncClient(base_url=url) as client:
            while (await client.get(paths.READY_PATH)).status_code != 200:
                await asyncio.sleep(0.01)
        yield Scripted(url, engine, clock, life, task)
        life.interrupt()
        life.interrupt()
        await task


@pytest.fixture
async def client(server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as made:
        await put(made, START)
        yield made
        await put(made, START)


async def put(client: httpx.AsyncClient, document: dict) -> dict:
    response = await client.put(paths.ADMIN_CONFIG_PATH, json=document, headers=TOKEN)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def complete(client: httpx.AsyncClient, **fields) -> httpx.Response:
    return await client.post("/v1/completions", json=GREEDY | fields)


async def streamed(client: httpx.AsyncClient, began: asyncio.Event, **fields) -> str:
    text = ""
    async with client.stream("POST", "/v1/completions", json=GREEDY | {"stream": True} | fields) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                text += event["choices"][0]["text"]
                began.set()
    assert line == "data: [DONE]" or not line
    return text


@contextlib.asynccontextmanager
async def busy(client: httpx.AsyncClient, count: int = 4) -> AsyncIterator[None]:
    """All places of the batch are taken while the block runs."""
    began = [asyncio.Event() for _ in range(count)]
    streams = [asyncio.create_task(streamed(client, event, max_tokens=100)) for event in began]
    await asyncio.gather(*(event.wait() for event in began))
    yield
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)


async def counted(client: httpx.AsyncClient, name: str) -> float:
    lines = (await client.get(paths.METRICS_PATH)).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


# ---- one effect a setting ------------------------------------------------------------------------------------


async def a_smaller_budget_takes_more_steps(client, server) -> None:
    async def steps(prompt: str) -> float:
        before = await counted(client, 'tidemark_step_tokens_count{phase="prompt"}')
        assert (await complete(client, prompt=prompt, max_tokens=1)).status_code == 200
        return await counted(client, 'tidemark_step_tokens_count{phase="prompt"}') - before

    few = await steps(f"First: {LONG[:1000]}")
    await put(client, start_with(scheduler={"maxNumBatchedTokens": 8}))
    many = await steps(f"Again: {LONG[:1000]}")  # another beginning, or the prefix cache would have all of it
    assert few <= 3
    assert many > 20


async def a_queue_of_none_refuses_what_cannot_run_now(client, server) -> None:
    await put(client, start_with(scheduler={"maxQueuedRequests": 0}))
    async with busy(client):
        response = await complete(client, max_tokens=1)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "queue_full")
        await put(client, START)
        waiting = asyncio.create_task(complete(client, max_tokens=1))
        while not (await client.get("/status")).json()["queue"]["waiting"]:
            assert not waiting.done()
    assert (await waiting).status_code == 200


async def a_short_wait_ends_those_who_wait_already(client, server) -> None:
    async with busy(client):
        waiting = asyncio.create_task(complete(client, max_tokens=1))
        while not (await client.get("/status")).json()["queue"]["waiting"]:
            assert not waiting.done()
        await put(client, start_with(scheduler={"maxQueueSeconds": 0.05}))
        response = await waiting
    assert (response.status_code, response.json()["error"]["code"]) == (429, "queue_timeout")


async def without_preemptions_nobody_loses_pages(client, server) -> None:
    async def preempted() -> float:
        before = await counted(client, "tidemark_preemptions_total")
        requests = [complete(client, prompt=LONG[index:520], max_tokens=40) for index in range(4)]
        assert {response.status_code for response in await asyncio.gather(*requests)} == {200}
        return await counted(client, "tidemark_preemptions_total") - before

    assert await preempted() > 0
    await put(client, start_with(scheduler={"maxPreemptionsPerRequest": 0}))
    assert await preempted() == 0


async def a_smaller_body_is_the_most_that_is_read(client, server) -> None:
    assert (await complete(client, user="x" * 3000, max_tokens=1)).status_code == 200
    await put(client, start_with(server={"maxBody": "2Ki"}))
    response = await complete(client, user="x" * 3000, max_tokens=1)
    assert response.status_code == 413
    assert "at most 2048 bytes" in response.json()["error"]["message"]


async def a_body_that_does_not_come_is_waited_for_no_longer(client, server) -> None:
    await put(client, start_with(server={"bodySeconds": 0.1}))
    request = client.build_request("POST", "/v1/completions", content=b"{}")
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    writer.write(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n{{".encode())  # one byte of two
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"in 0.1 seconds (server.bodySeconds), 1 bytes of it came" in answer


async def a_louder_log_says_each_request(client, server) -> None:
    await complete(client, max_tokens=1)
    assert "request ended" not in server.log
    await put(client, start_with(server={"logLevel": "debug"}))
    await complete(client, max_tokens=1)
    await asyncio.to_thread(server.wait_logged, "request ended path=/v1/completions outcome=length")


async def a_short_stall_fails_liveness_during_a_long_step(client, server) -> None:
    """A prompt's step takes longer than a tenth of a second."""
    await put(client, start_with(server={"stallSeconds": 0.1}, scheduler={"maxNumBatchedTokens": 512}))
    asked = asyncio.create_task(complete(client, prompt=LONG + LONG[:600], max_tokens=1))
    seen = set()
    while not asked.done():
        seen.add((await client.get(paths.LIVE_PATH)).status_code)
    assert (await asked).status_code == 200
    assert 503 in seen
    await put(client, START)
    assert (await client.get(paths.LIVE_PATH)).status_code == 200


async def a_short_drain_ends_what_runs(client, scripted) -> None:
    scripted.engine.pause_after = 2
    began = asyncio.Event()
    await put(client, {"server": {"drainSeconds": 20}})
    running = asyncio.create_task(streamed(client, began))
    await began.wait()
    scripted.life.stop()
    await draining(client)
    scripted.clock.now += 20  # not the minute that is the default
    with pytest.raises(AssertionError, match="shutting down"):
        await running
    assert await scripted.task == 0


async def draining(client) -> None:
    """Until it knows that it was told to end."""
    while (await client.get(paths.READY_PATH)).status_code == 200:
        await asyncio.sleep(0.01)


async def a_lame_duck_still_takes_new_connections(client, scripted) -> None:
    await put(client, {"server": {"lameDuckSeconds": 30.0}})
    scripted.life.stop()
    await draining(client)
    scripted.clock.now += 29.0  # without it, nobody is taken any more
    for _ in range(3):
        async with httpx.AsyncClient(base_url=scripted.url, timeout=60) as fresh:
            response = await complete(fresh)
        assert (response.status_code, response.headers.get("connection")) == (200, "close")
    assert await scripted.ended() == 0
    async with httpx.AsyncClient(base_url=scripted.url) as fresh:
        with pytest.raises(httpx.ConnectError):
            await complete(fresh)


EFFECTS: dict[str, Callable[..., Awaitable[None]]] = {
    "scheduler.maxNumBatchedTokens": a_smaller_budget_takes_more_steps,
    "scheduler.maxQueuedRequests": a_queue_of_none_refuses_what_cannot_run_now,
    "scheduler.maxQueueSeconds": a_short_wait_ends_those_who_wait_already,
    "scheduler.maxPreemptionsPerRequest": without_preemptions_nobody_loses_pages,
    "server.maxBody": a_smaller_body_is_the_most_that_is_read,
    "server.bodySeconds": a_body_that_does_not_come_is_waited_for_no_longer,
    "server.logLevel": a_louder_log_says_each_request,
    "server.stallSeconds": a_short_stall_fails_liveness_during_a_long_step,
    "server.drainSeconds": a_short_drain_ends_what_runs,
    "server.lameDuckSeconds": a_lame_duck_still_takes_new_connections,
}
ENDING = {"server.drainSeconds", "server.lameDuckSeconds"}
"""Seen at the end of a server: one over the scripted engine, in this process."""


@pytest.mark.parametrize("key", sorted(set(EFFECTS) - ENDING))
async def test_every_hot_setting_has_its_effect(key, client, server) -> None:
    await EFFECTS[key](client, server)


@pytest.mark.parametrize("key", sorted(ENDING))
async def test_every_setting_of_the_end_has_its_effect(key, scripted) -> None:
    async with httpx.AsyncClient(base_url=scripted.url, timeout=60) as client:
        await EFFECTS[key](client, scripted)


def test_no_hot_setting_is_left_over() -> None:
    spec = importlib.util.spec_from_file_location("hot_scheduling", Path(__file__).with_name("test_hot_scheduling.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(EFFECTS) | set(module.EFFECTS) == contract.HOT_KEYS
    assert set(EFFECTS) & set(module.EFFECTS) == set()


# ---- nobody notices ------------------------------------------------------------------------------------------


async def test_streams_across_many_changes_are_those_of_a_quiet_engine(client, server) -> None:
    fields = [{"prompt": LONG[: 40 + 150 * index], "max_tokens": 60} for index in range(3)]
    quiet = [(await complete(client, **each)).json()["choices"][0]["text"] for each in fields]
    began = [asyncio.Event() for _ in fields]
    streams = [asyncio.create_task(streamed(client, event, **each)) for event, each in zip(began, fields, strict=True)]
    changes = 0
    while not all(stream.done() for stream in streams):
        budget, queue = (8, 1) if changes % 2 else (300 + changes, 50)
        scheduler = {"maxNumBatchedTokens": budget, "maxQueuedRequests": queue, "maxPreemptionsPerRequest": changes % 4}
        answer = await put(client, start_with(scheduler=scheduler, server={"stallSeconds": 5 + changes}))
        assert answer["changed"]
        changes += 1
        await asyncio.sleep(0.02)
    assert [await stream for stream in streams] == quiet
    assert changes >= 5


async def test_the_file_it_was_started_with_is_what_runs(client, server, folder) -> None:
    parsed = contract.parse(yaml.safe_load((folder / "engine.yaml").read_text()))
    status = (await client.get("/status")).json()["config"]
    assert status["hash"] == contract.config_hash(parsed)
    before = status["generation"]
    answer = await client.put(
        paths.ADMIN_CONFIG_PATH,
        content=(folder / "engine.yaml").read_bytes(),
        headers={**TOKEN, "content-type": "application/yaml"},
    )
    assert answer.json() == {"hash": status["hash"], "generation": before, "changed": {}}
    shown = (await client.get(paths.ADMIN_CONFIG_PATH, headers=TOKEN)).json()
    in_force = contract.parse(shown["config"])
    assert shown["restartHash"] == status["restartHash"] == contract.restart_hash(in_force)
    assert in_force.server.port == int(server.url.rsplit(":", 1)[1])


async def test_status_has_what_a_plan_is_made_of(client) -> None:
    shape = (await client.get("/status")).json()["model"]["shape"]
    assert (shape["numLayers"], shape["numKvHeads"], shape["headDim"]) == (30, 3, 64)
    assert shape["kvTokenBytes"] == 2 * 30 * 3 * 64 * 4
    assert 50e6 < shape["weightsBytes"] < 700e6


async def test_the_engine_refuses_a_budget_that_memory_does_not_hold(client) -> None:
    document = start_with(scheduler={"maxNumBatchedTokens": 1_000_000})
    response = await client.put(paths.ADMIN_CONFIG_PATH, json=document, headers=TOKEN)
    assert response.status_code == 400
    assert "bytes of activations" in response.json()["error"]["problems"][0]["expected"]
    shown = (await client.get(paths.ADMIN_CONFIG_PATH, headers=TOKEN)).json()
    assert shown["config"]["scheduler"]["maxNumBatchedTokens"] == 256


async def test_while_loading_a_change_is_told_to_come_back(own_server) -> None:
    document = start_with(server={"maxBody": 4096})
    codes = set()
    async with asyncio.timeout(live.START_SECONDS), httpx.AsyncClient(base_url=own_server.url) as client:
        while 200 not in codes:
            with contextlib.suppress(httpx.TransportError):
                response = await client.put(paths.ADMIN_CONFIG_PATH, json=document, headers=TOKEN)
                codes.add(response.status_code)
                if response.status_code == 503:
                    assert response.json()["error"]["code"] == "loading"
                    assert response.headers["retry-after"]
            await asyncio.sleep(0.1)  # no more: the engine loads on the same core
        status = (await client.get("/status")).json()["config"]
        await put(client, START)
    assert codes == {503, 200}
    assert status["hash"] == contract.config_hash(contract.parse(document))


# ---- going away without losing a request -----------------------------------------------------------------------


async def test_clients_see_no_failure_across_sigterm_and_no_stream_is_cut(own_server) -> None:
    """Clients with kept and with fresh connections, and streams, while the server is told to end."""
    await asyncio.to_thread(live.wait_ready, own_server)
    stop = asyncio.Event()
    answers: dict[str, list[tuple[int, bool]]] = {"kept": [], "fresh": []}

    async def ask(name: str, client: httpx.AsyncClient) -> None:
        response = await complete(client, max_tokens=2)
        answers[name].append((response.status_code, response.headers.get("connection") == "close"))

    async def keep_asking() -> None:
        async with httpx.AsyncClient(base_url=own_server.url, timeout=200) as kept:
            while not stop.is_set():
                await ask("kept", kept)

    async def ask_afresh() -> None:
        while not stop.is_set():
            async with httpx.AsyncClient(base_url=own_server.url, timeout=200, verify=live.CERTIFICATES) as fresh:
                await ask("fresh", fresh)

    async def answered(more: int) -> None:
        wanted = {name: len(known) + more for name, known in answers.items()}
        while any(len(answers[name]) < count for name, count in wanted.items()):
            assert not any(loop.done() for loop in loops), await asyncio.gather(*loops)
            await asyncio.sleep(0.01)

    async with httpx.AsyncClient(base_url=own_server.url, timeout=200) as streaming:
        quiet = (await complete(streaming, max_tokens=200)).json()["choices"][0]["text"]
        began = asyncio.Event()
        stream = asyncio.create_task(streamed(streaming, began, max_tokens=200))
        await began.wait()
        before = time.monotonic()
        loops = [asyncio.create_task(loop()) for loop in (keep_asking, ask_afresh)]
        await answered(2)
        lame_duck = 5.0 + 10 * (time.monotonic() - before)  # for a few more answers at the pace of this machine
        async with httpx.AsyncClient(base_url=own_server.url, timeout=200) as admin:
            await put(admin, start_with(server={"lameDuckSeconds": lame_duck, "drainSeconds": lame_duck + 200}))
        ending = asyncio.create_task(asyncio.to_thread(own_server.terminate, lame_duck + 230))
        started = time.monotonic()
        async with httpx.AsyncClient(base_url=own_server.url) as probe:
            while (ready := await probe.get(paths.READY_PATH)).status_code == 200:
                assert time.monotonic() - started < lame_duck
            assert (ready.status_code, ready.json()["state"]) == (503, "draining")
            refused = await probe.put(paths.ADMIN_CONFIG_PATH, json=START, headers=TOKEN)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        await answered(3)
        stop.set()
        await asyncio.gather(*loops)
        assert time.monotonic() - started < lame_duck, "this machine is too slow to tell"
        assert await stream == quiet
        assert await ending == 0
    assert {status for known in answers.values() for status, _ in known} == {200}
    assert answers["kept"][0] == (200, False)
    assert answers["kept"][-1] == (200, True), "after SIGTERM each answer closes its connection"


# ---- TLS -----------------------------------------------------------------------------------------------------


def certificate_of(url: str) -> str:
    host, _, port = url.removeprefix("https://").partition(":")
    der = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))
    known = {ssl.PEM_cert_to_DER_cert((CERTIFICATES / f"{name}.crt").read_text()): name for name in ("one", "two")}
    return known[der]


async def test_a_new_certificate_needs_no_restart_and_cuts_no_stream(smollm2_path, folder, tmp_path) -> None:
    def install(crt: str, key: str) -> None:
        for source, target in ((f"{crt}.crt", "tls.crt"), (f"{key}.key", "tls.key")):
            shutil.copy(CERTIFICATES / source, tmp_path / "next")
            (tmp_path / "next").replace(tmp_path / target)

    install("one", "one")
    more = ("--tls-cert-file", str(tmp_path / "tls.crt"), "--tls-key-file", str(tmp_path / "tls.key"))
    server = live.start(tmp_path, *flags(folder, smollm2_path), *more)
    url = server.url.replace("http:", "https:")
    try:
        async with (
            asyncio.timeout(live.START_SECONDS + 60),
            httpx.AsyncClient(base_url=url, verify=False, timeout=200) as client,
        ):

            async def until(wanted: Callable[[dict], bool]) -> dict:
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        status = (await client.get("/status")).json()
                        if wanted(status):
                            return dict(status)
                    await asyncio.sleep(0.05)

            await until(lambda status: status["state"] == "ready")
            quiet = (await complete(client, max_tokens=200)).json()["choices"][0]["text"]
            began = asyncio.Event()
            stream = asyncio.create_task(streamed(client, began, max_tokens=200))
            await began.wait()
            assert await asyncio.to_thread(certificate_of, url) == "one"
            install("two", "two")
            while await asyncio.to_thread(certificate_of, url) != "two":
                await asyncio.sleep(0.05)
            assert await stream == quiet
            install("one", "two")
            status = await until(lambda status: status["reason"] != "")
            assert (status["state"], status["reason"]) == ("ready", "TlsUnreadable")
            assert await asyncio.to_thread(certificate_of, url) == "two"
            install("one", "one")
            await until(lambda status: status["reason"] == "")
            assert await asyncio.to_thread(certificate_of, url) == "one"
        assert f"ready: small at {url}/v1" in server.log
        async with httpx.AsyncClient() as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(f"{server.url}/status")
    finally:
        server.process.kill()
        server.process.wait()
