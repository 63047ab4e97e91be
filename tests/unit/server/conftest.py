"""A server over the fake engine, reached without any socket."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import sys
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from tidemark_runtime import config
from tidemark_runtime.server import app as server_app


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"server_tests_{name}", Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_fakes = _load("fake_engine")


class Clock:
    """Time that only moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Exchange:
    """One HTTP request spoken in ASGI events, so that the client can leave at any moment."""

    def __init__(self, app, path: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.sent: list[dict] = []
        self.left = asyncio.Event()
        self.num_receives = 0
        self.num_receives_at_answer: int | None = None
        self.hang_after: int | None = None
        """`send` number so many does not return before `go_on` is set: a client that does not read."""
        self.go_on = asyncio.Event()
        self._news = asyncio.Event()
        self._parts = [body]
        pairs = [(key.encode(), value.encode()) for key, value in (headers or {}).items()]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST"}
        scope |= {"scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
        self.task = asyncio.create_task(app(scope | {"headers": pairs}, self._receive, self._send))

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    async def until(self, wanted: bytes) -> None:
        """Wait until the response holds these bytes."""
        while wanted not in self.body:
            self._news.clear()
            await self._news.wait()

    async def _receive(self) -> dict:
        self.num_receives += 1
        if self._parts:
            return {"type": "http.request", "body": self._parts.pop(0), "more_body": bool(self._parts)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict) -> None:
        if self.num_receives_at_answer is None:
            self.num_receives_at_answer = self.num_receives
        self.sent.append(message)
        self._news.set()
        if len(self.sent) == self.hang_after:
            await self.go_on.wait()


def sse(text: str) -> list:
    """The events of a stream; the last is the text `[DONE]` when it ended well."""
    events = [block.removeprefix("data: ") for block in text.split("\n\n") if block]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


@pytest.fixture(autouse=True)
def _level_as_before():
    """A new configuration sets the level of the whole process."""
    loggers = [logging.getLogger(name) for name in ("", "uvicorn", "asyncio")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def fakes() -> ModuleType:
    return _fakes


@pytest.fixture
def exchange():
    return Exchange


@pytest.fixture
def parse_events():
    return sse


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def text():
    return _fakes.ByteText()


@pytest.fixture
async def engine():
    return _fakes.FakeEngine()


@pytest.fixture
def settings() -> config.EngineConfig:
    return config.EngineConfig(model=config.ModelConfig(source="/models/tiny.gguf", name="M"))


@pytest.fixture
def app(engine, text, settings, clock):
    return server_app.create_app(engine, text, settings, clock=clock)


@pytest.fixture
def shared(app):
    return app.state.shared


@pytest.fixture
async def http(app):
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        yield client
