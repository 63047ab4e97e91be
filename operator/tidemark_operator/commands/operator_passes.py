"""Passes of the reconciler, measured, and finished before the operator ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tidemark_operator.cluster import interface
from tidemark_operator.reconcile import queue

Observe = Callable[[str, float], None]
"""Told of every pass: its result and how many seconds it took."""


class Passes:
    """The work of the loop's queue. After `drain` no pass begins any more."""

    def __init__(self, work: queue.Work[interface.Key], observe: Observe) -> None:
        self._work = work
        self._observe = observe
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending = False

    async def run(self, key: interface.Key) -> float | None:
        if self._ending:
            return None
        self._running += 1
        self._idle.clear()
        started, result = time.monotonic(), "failed"
        try:
            again = await self._work(key)
            result = "gone" if again == queue.GONE else "done"
            return again
        finally:
            self._observe(result, time.monotonic() - started)
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def drain(self, seconds: float) -> bool:
        """Wait for the passes that run, at most so long. Whether all have finished."""
        self._ending = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
