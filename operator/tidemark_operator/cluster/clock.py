"""Time as an argument: the real clock here, a virtual one in tests."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Clock(Protocol):
    """What code that waits may ask for."""

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        ...

    def now(self) -> datetime.datetime:
        """Wall time, with time zone."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait(clock: Clock, event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for `event`, at most `seconds` (None: without end). True: it is set."""
    if event.is_set() or (seconds is not None and seconds <= 0):
        await asyncio.sleep(0)  # others get a turn, whatever the caller's loop looks like
        return event.is_set()
    tasks: set[asyncio.Future[Any]] = {asyncio.ensure_future(event.wait())}
    if seconds is not None:
        tasks.add(asyncio.ensure_future(clock.sleep(seconds)))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    return event.is_set()


async def within(clock: Clock, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """What `work` returns or raises. Raises `TimeoutError`, and cancels it, when it takes longer than `seconds`."""
    task, limit = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, limit), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        task.cancel()
        limit.cancel()
        await asyncio.gather(task, limit, return_exceptions=True)
