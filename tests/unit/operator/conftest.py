"""Time that only passes when a test says so."""

from __future__ import annotations

import asyncio
import datetime

import pytest

_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_TURNS = 60
"""Turns of the event loop after which everything that can run has run."""


class VirtualClock:
    """A `cluster.clock.Clock`."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._seconds

    def now(self) -> datetime.datetime:
        return _START + datetime.timedelta(seconds=self._seconds)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._seconds + seconds, future))
        await future

    async def settle(self) -> None:
        """Let everything run that waits for no time."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, waking each sleeper at its own moment."""
        end = self._seconds + seconds
        await self.settle()
        while True:
            self._sleepers = [item for item in self._sleepers if not item[1].done()]
            due = min((item for item in self._sleepers if item[0] <= end), key=lambda item: item[0], default=None)
            if due is None:
                break
            self._seconds = max(self._seconds, due[0])
            due[1].set_result(None)
            await self.settle()
        self._seconds = end
        await self.settle()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()
