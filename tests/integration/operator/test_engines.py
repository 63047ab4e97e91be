"""Asking an engine for its status, and what comes of answers that are none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from tidemark_operator import settings
from tidemark_operator.cluster import engines

GOOD = {
    "version": "1",
    "state": "ready",
    "message": "fine",
    "model": {"name": "m", "source": "s"},
    "config": {"hash": "h"},
    "somethingNewer": 1,
}


class Engine:
    """Answers everything with `reply`."""

    def __init__(self) -> None:
        self.reply = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.reply)
        if not self.reply:
            await reader.read()  # until the other side gives up
        writer.close()
        await writer.wait_closed()


def reply(body: bytes, code: int = 200) -> bytes:
    return f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


@pytest.fixture
async def asking() -> AsyncIterator[engines.Engines]:
    async with httpx.AsyncClient() as client:
        yield engines.Engines(client, settings.EngineSettings(timeout_seconds=0.5))


async def test_a_good_answer_of_a_newer_engine_is_read(engine: Engine, asking: engines.Engines) -> None:
    engine.reply = reply(json.dumps(GOOD).encode())
    found = await asking.ask(engines.Address("127.0.0.1", engine.port))
    assert found is not None
    assert (found.state, found.config.hash) == ("ready", "h")


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(b"", id="silence"),
        pytest.param(b"SSH-2.0\r\n\r\n", id="not HTTP"),
        pytest.param(reply(b"{}"), id="another document"),
        pytest.param(reply(b"<html>"), id="not JSON"),
        pytest.param(reply(json.dumps({**GOOD, "state": "dancing"}).encode()), id="an unknown state"),
        pytest.param(reply(json.dumps(GOOD).encode(), 500), id="an error"),
    ],
)
async def test_anything_else_is_no_answer(engine: Engine, asking: engines.Engines, wrong: bytes) -> None:
    engine.reply = wrong
    assert await asking.ask(engines.Address("127.0.0.1", engine.port)) is None


async def test_nobody_there_is_no_answer(engine: Engine, asking: engines.Engines) -> None:
    assert await asking.ask(engines.Address("127.0.0.1", 1)) is None
