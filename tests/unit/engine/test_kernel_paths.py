"""A path that only a later step takes is told to the server, and ends an engine whose kernels are strict."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest

from tidemark_runtime import config, errors
from tidemark_runtime.contract import status
from tidemark_runtime.engine import client, messages, process
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface

FAST = status.KernelPath("rms_norm", "cpu-c", "cpu-c", "float32", status.SelfTest.OK, 1e-7, 1e-4)
SLOW = status.KernelPath("rms_norm", "cpu-c", "torch", "float32", reason="its library is gone")


class Steps:
    """A worker of which a step may take other paths."""

    def __init__(self) -> None:
        layout = page_layout.PageLayout(page_layout.KVShape(1, 1, 32), 4, "float32")
        self.facts = interface.WorkerFacts("torch", "cpu", "float32", layout, 8, 32, {}, kernel_paths=(FAST,))

    def take(self, *paths: status.KernelPath) -> None:
        self.facts = dataclasses.replace(self.facts, kernel_paths=paths)


class Socket:
    """Keeps what is sent, decoded."""

    def __init__(self) -> None:
        self.sent: list[messages.FromEngine] = []

    def send(self, frame: bytes) -> None:
        self.sent.append(msgspec.msgpack.decode(frame, type=messages.FromEngine))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1000.0]
    monkeypatch.setattr(process.time, "monotonic", lambda: clock[0])
    return clock


def engine_process(socket: Socket) -> process.EngineProcess:
    launch = process.Launch("", "", 0, {}, "gguf", "", "")
    made = process.EngineProcess(launch, socket, socket)  # type: ignore[arg-type]
    made._kernel_paths = (FAST,)
    return made


def test_new_paths_are_told_once_and_looked_at_once_a_second(now: list[float]) -> None:
    socket, worker = Socket(), Steps()
    engine = engine_process(socket)

    def look() -> list[messages.FromEngine]:
        engine._tell_kernels(worker, config.HardwareConfig())  # type: ignore[arg-type]
        return socket.sent

    assert look() == []
    worker.take(FAST, SLOW)
    now[0] += 0.5
    assert look() == [], "not in every step"
    now[0] += 0.6
    assert look() == [messages.KernelPaths([FAST, SLOW])]
    now[0] += 5
    assert len(look()) == 1


def test_strict_kernels_end_an_engine_that_took_another_path(now: list[float]) -> None:
    socket, worker = Socket(), Steps()
    worker.take(FAST, SLOW)
    with pytest.raises(errors.KernelPathError, match=r"rms_norm \(float32\): planned on cpu-c.*its library is gone"):
        engine_process(socket)._tell_kernels(worker, config.HardwareConfig(strict_kernels=True))  # type: ignore[arg-type]
    assert socket.sent == [messages.KernelPaths([FAST, SLOW])], "told before it ends"


class Frames:
    """What an engine sends, in this process."""

    def __init__(self, *sent: messages.FromEngine) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        for message in sent:
            self._queue.put_nowait(msgspec.msgpack.encode(message))

    async def recv(self) -> bytes:
        return await self._queue.get()

    async def poll(self, _milliseconds: int) -> bool:
        return False

    def close(self, linger: int = 0) -> None:
        pass


class Process:
    """Lives until it is killed."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def kill(self) -> None:
        self.returncode = 0
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return 0


async def test_the_server_knows_the_newest(tmp_path: Any) -> None:
    ready = messages.EngineReady({}, [FAST], {}, 8, 4, 256, 32, 32)
    frames: Any = Frames(ready, messages.KernelPaths([FAST, SLOW]))
    engine = client.EngineClient(Process(), frames, frames, str(tmp_path / "sockets"))  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        while engine.ready is None or len(engine.ready.kernel_paths) < 2:
            await asyncio.sleep(0)
    assert engine.ready.kernel_paths == [FAST, SLOW]
    assert engine.ready.num_pages == 8
    await engine.close()
