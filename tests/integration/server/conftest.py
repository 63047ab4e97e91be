"""Real uvicorn on a real socket over the scripted engine, for what only a socket shows; and OpenAI's own client."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import openai
import pytest

from tidemark_runtime import config
from tidemark_runtime.contract import reasons
from tidemark_runtime.server import app as server_app
from tidemark_runtime.server import lifecycle, listening

_FAKES = Path(__file__).parents[2] / "unit" / "server" / "fake_engine.py"


def _load_fakes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("server_integration_fake_engine", _FAKES)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    return _load_fakes()


@pytest.fixture
async def engine(fakes):
    return fakes.FakeEngine()


@pytest.fixture
def text(fakes):
    return fakes.ByteText()


@pytest.fixture
def settings() -> config.EngineConfig:
    return config.EngineConfig(model=config.ModelConfig(source="/models/tiny.gguf", name="M"))


@pytest.fixture
async def scripted_url(engine, text, settings) -> AsyncIterator[str]:
    """The whole HTTP process but its engine, in this event loop."""
    shared = server_app.create_context(settings)
    notes = _Quiet()

    async def start_engine():
        return engine

    life = lifecycle.Lifecycle(shared, start_engine, lambda: text, notes)
    with listening.bind("127.0.0.1", 0) as listener:
        task = asyncio.create_task(life.run(listener))
        await notes.is_ready.wait()
        yield listening.url(listener)
        life.interrupt()
        await asyncio.sleep(0)
        life.interrupt()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def scripted(scripted_url) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client, unchanged, and without retries so that errors are seen."""
    async with openai.AsyncOpenAI(base_url=f"{scripted_url}/v1", api_key="none", max_retries=0) as client:
        yield client


class _Quiet:
    def __init__(self) -> None:
        self.is_ready = asyncio.Event()

    def loading(self, progress: object) -> None: ...

    def ready(self) -> None:
        self.is_ready.set()

    def draining(self, num_requests: int, seconds: float) -> None: ...

    def failed(self, reason: reasons.Reason, message: str) -> None: ...
