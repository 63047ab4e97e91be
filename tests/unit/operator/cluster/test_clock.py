from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark_operator.cluster import clock as clock_


async def result_after(clock: Any, seconds: float, result: str | Exception) -> str:
    await clock.sleep(seconds)
    if isinstance(result, Exception):
        raise result
    return result


async def test_what_is_done_in_time_gives_its_result(clock: Any) -> None:
    task = asyncio.ensure_future(clock_.within(clock, result_after(clock, 3, "done"), 4))
    await clock.advance(3)
    assert await task == "done"


async def test_what_fails_in_time_fails_as_it_did(clock: Any) -> None:
    task = asyncio.ensure_future(clock_.within(clock, result_after(clock, 3, ValueError("broken")), 4))
    await clock.advance(3)
    with pytest.raises(ValueError, match="broken"):
        await task


async def test_what_takes_longer_is_cancelled(clock: Any) -> None:
    ended = []

    async def work() -> None:
        try:
            await clock.sleep(1000)
        finally:
            ended.append(clock.monotonic())

    task = asyncio.ensure_future(clock_.within(clock, work(), 4))
    await clock.advance(4)
    with pytest.raises(TimeoutError):
        await task
    assert ended == [4]


async def test_whoever_is_cancelled_while_waiting_cancels_the_work(clock: Any) -> None:
    work = asyncio.ensure_future(result_after(clock, 1000, "late"))

    async def waits() -> str:
        return await work

    task = asyncio.ensure_future(clock_.within(clock, waits(), 2000))
    await clock.settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert work.cancelled()
