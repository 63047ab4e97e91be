"""From start to exit code over the fake engine: loading, draining, failing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket

import pytest

from tidemark_runtime import config, errors
from tidemark_runtime.contract import reasons
from tidemark_runtime.engine import messages
from tidemark_runtime.server import app as server_app
from tidemark_runtime.server import lifecycle, listening


class Notes:
    """An announcer that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def loading(self, progress: messages.LoadProgress) -> None:
        self.said.append(f"loading {progress.phase}")

    def ready(self) -> None:
        self.said.append("ready")

    def draining(self, num_requests: int, seconds: float) -> None:
        self.said.append(f"draining {num_requests}")

    def failed(self, reason: reasons.Reason, message: str) -> None:
        self.said.append(f"failed {reason}: {message}")


@pytest.fixture
def settings(settings):
    return dataclasses.replace(settings, server=config.ServerConfig(drain_seconds=50.0, lame_duck_seconds=5.0))


@pytest.fixture
def listener():
    with listening.bind("127.0.0.1", 0) as bound:
        yield bound


@pytest.fixture
def address(listener):
    return listener.getsockname()[:2]


@pytest.fixture
def run(engine, text, settings, listener, clock, monkeypatch):
    """Starts a server; gives its lifecycle, context, notes and the task that ends with the exit code. Drain and
    lame-duck time pass when the test says so."""
    monkeypatch.setattr(lifecycle, "WATCH_SECONDS", 0.001)

    async def begin(load_text=lambda: None):
        shared = server_app.create_context(settings, clock=clock)

        async def start_engine():
            return engine

        notes = Notes()
        life = lifecycle.Lifecycle(shared, start_engine, lambda: load_text() or text, notes)
        task = asyncio.create_task(life.run(listener))
        while not notes.said and not task.done():
            await asyncio.sleep(0)
        return life, shared, notes, task

    return begin


def with_server(parsed: config.EngineConfig, **changes: float) -> config.EngineConfig:
    return dataclasses.replace(parsed, server=dataclasses.replace(parsed.server, **changes))


async def ended(task: asyncio.Task[int], clock) -> int:
    """The exit code. Time goes on, a tenth of a second at each turn of the loop."""
    while not task.done():
        clock.now += 0.1
        await asyncio.sleep(0)
    return await task


async def ask(listener: socket.socket, path: str, body: dict | None = None) -> bytes:
    """One request over the real socket, read to the end of the connection."""
    reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_serves_drains_what_runs_and_ends_with_zero(run, engine, listener, clock):
    life, shared, notes, task = await run()
    assert notes.said == ["ready"]
    engine.pause_after = 2
    running = asyncio.create_task(ask(listener, "/v1/completions", {"prompt": "Hi"}))
    while not engine.num_running:
        await asyncio.sleep(0)
    life.stop()
    while not shared.draining:
        await asyncio.sleep(0)
    assert b" 503 " in await ask(listener, "/health/ready")
    assert b" 200 " in await ask(listener, "/health/live")
    engine.resume.set()
    assert b"Hello, world!" in await running
    assert await ended(task, clock) == 0
    assert notes.said == ["ready", "draining 1"]
    assert (engine.drained, engine.closed) == (True, True)


async def refused(address: tuple[str, int]) -> bool:
    try:
        _, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it was not accepted yet when the listener closed
        return False
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()
    return False


async def test_new_connections_are_served_for_the_lame_duck_time_and_refused_after_it(
    run, engine, address, listener, clock
):
    life, shared, _, task = await run()
    engine.pause_after = 2
    running = asyncio.create_task(ask(listener, "/v1/completions", {"prompt": "Hi"}))
    while not engine.num_running:
        await asyncio.sleep(0)
    kept, writer = await asyncio.open_connection(*address)
    life.stop()
    while not shared.draining:
        await asyncio.sleep(0)
    engine.pause_after = None
    fresh = await ask(listener, "/v1/completions", {"prompt": "Hi"})
    assert b"Hello, world!" in fresh
    clock.now += 4.9
    await asyncio.sleep(5 * lifecycle.WATCH_SECONDS)
    assert not await refused(address)
    clock.now += 0.2
    while not await refused(address):
        await asyncio.sleep(lifecycle.WATCH_SECONDS)
    assert not task.done(), "one still runs"
    writer.write(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await kept.read()
    assert b" 200 OK" in answer
    assert b"connection: close" in answer
    writer.close()
    engine.resume.set()
    assert b"Hello, world!" in await running
    assert await ended(task, clock) == 0


async def test_without_requests_it_ends_with_the_lame_duck_time(run, engine, clock):
    life, shared, _, task = await run()
    life.stop()
    while not shared.draining:
        await asyncio.sleep(0)
    started = clock.now
    assert await ended(task, clock) == 0
    assert clock.now - started >= 5.0 + lifecycle.QUIET_SECONDS
    assert engine.drained


async def test_what_is_not_done_in_time_gets_an_error(run, engine, listener, clock):
    life, shared, _, task = await run()
    shared.config = with_server(shared.config, drain_seconds=30.0, lame_duck_seconds=0.0)
    engine.pause_after = 2
    running = asyncio.create_task(ask(listener, "/v1/completions", {"prompt": "Hi", "stream": True}))
    while not engine.num_running:
        await asyncio.sleep(0)
    life.stop()
    while not shared.draining:
        await asyncio.sleep(0)
    clock.now += 30.0
    answer = await running
    assert b"shutting down" in answer
    assert b"[DONE]" not in answer
    assert await task == 0


async def test_an_engine_that_stands_still_is_not_waited_for(run, engine, listener):
    life, _, _, task = await run()
    engine.pause_after = 2
    running = asyncio.create_task(ask(listener, "/v1/completions", {"prompt": "Hi"}))
    while not engine.num_running:
        await asyncio.sleep(0)
    engine.progress_age_seconds = 61.0
    life.stop()
    assert b"shutting down" in await running
    assert await task == 0


async def test_the_second_interrupt_ends_now(run, engine, listener):
    life, _, _, task = await run()
    engine.pause_after = 0
    running = asyncio.create_task(ask(listener, "/v1/completions", {"prompt": "Hi"}))
    while not engine.num_running:
        await asyncio.sleep(0)
    life.interrupt()
    await asyncio.sleep(0)
    life.interrupt()
    assert await task == 130
    assert b" 503 " in await running
    assert engine.closed


async def test_b035_the_process_ends_when_the_engine_does_and_clients_hear_of_it(run, engine, listener):
    _, _, notes, task = await run()
    engine.pause_after = 0
    running = asyncio.create_task(ask(listener, "/v1/completions", {"prompt": "Hi"}))
    while not engine.num_running:
        await asyncio.sleep(0)
    engine.die("the engine process was killed")
    assert await task == 1
    assert b"the engine process was killed" in await running
    assert notes.said == ["ready", "failed EngineDied: the engine process was killed"]
    assert engine.closed


async def test_probes_are_answered_while_loading(run, engine, listener, fakes):
    engine.ready, engine.progress = None, messages.LoadProgress("weights", 0.5)
    _, _, notes, task = await run()
    assert notes.said == ["loading weights"]
    answer = await ask(listener, "/health/ready")
    assert b" 503 " in answer
    assert b"weights, 50%" in answer
    engine.ready = fakes.ready()
    while "ready" not in notes.said:
        await asyncio.sleep(0)
    assert b" 200 " in await ask(listener, "/health/ready")
    engine.failure = "over"
    assert await task == 1


async def test_stopping_while_loading_ends_with_zero(run, engine):
    engine.ready, engine.progress = None, messages.LoadProgress("weights", 0.5)
    life, _, _, task = await run()
    life.stop()
    assert await task == 0
    assert engine.closed


@pytest.mark.parametrize(
    ("error", "reason"),
    [(errors.CorruptModel("the file ends early"), "CorruptModel"), (ZeroDivisionError("oops"), "EngineFailed")],
)
async def test_a_tokenizer_that_cannot_be_loaded_ends_the_server(run, engine, error, reason):
    def load_text():
        raise error

    _, _, notes, task = await run(load_text)
    assert await task == 1
    assert notes.said[-1].startswith(f"failed {reason}: ")
    assert str(error) in notes.said[-1]
    assert engine.closed


def test_a_port_in_use_is_named_with_a_remedy(listener):
    port = listener.getsockname()[1]
    with pytest.raises(listening.ListenError, match=f"port {port} on 127.0.0.1 is in use.*--port"):
        listening.bind("127.0.0.1", port)


def test_an_address_of_another_machine(listener):
    with pytest.raises(listening.ListenError, match=r"'192\.0\.2\.1' is no address of this machine"):
        listening.bind("192.0.2.1", 0)


def test_the_url_is_one_that_works(listener):
    port = listener.getsockname()[1]
    assert listening.url(listener) == f"http://127.0.0.1:{port}"
    with listening.bind("0.0.0.0", 0) as everywhere:
        assert listening.url(everywhere) == f"http://127.0.0.1:{everywhere.getsockname()[1]}"
