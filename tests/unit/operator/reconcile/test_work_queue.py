"""The queue runs passes, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidemark_operator import settings
from tidemark_operator.reconcile import queue

SETTINGS = settings.QueueSettings(min_interval_seconds=1, backoff_seconds=4, jitter_ratio=0)


class Work:
    """Records passes; does what the test says."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.passes: list[tuple[str, float]] = []
        self.failures: list[tuple[str, str, float]] = []
        self.fails = False
        self.result: float | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, key: str) -> float | None:
        self.passes.append((key, self.clock.monotonic()))
        await self.gate.wait()
        if self.fails:
            raise RuntimeError("broken")
        return self.result


@pytest.fixture
def work(clock: Any) -> Work:
    return Work(clock)


@pytest.fixture
async def running(work: Work, clock: Any) -> AsyncIterator[queue.WorkQueue[str]]:
    made: queue.WorkQueue[str] = queue.WorkQueue(
        work,
        lambda key, failure, delay: work.failures.append((key, str(failure), delay)),
        settings=SETTINGS,
        clock=clock,
        rng=random.Random(1),
    )
    task = asyncio.ensure_future(made.run())
    await clock.settle()
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_burst_becomes_one_pass(work: Work, running: queue.WorkQueue[str]) -> None:
    for _ in range(50):
        running.add("a")
    await work.clock.advance(10)
    assert work.passes == [("a", 0)]


async def test_events_during_a_pass_cause_one_more_and_never_two_at_once(
    work: Work, running: queue.WorkQueue[str]
) -> None:
    work.gate.clear()
    running.add("a")
    await work.clock.advance(5)
    running.add("a")
    running.add("a")
    await work.clock.advance(5)
    assert len(work.passes) == 1
    work.gate.set()
    await work.clock.advance(5)
    assert work.passes == [("a", 0), ("a", 10)]


async def test_a_failure_is_told_and_retried_later(work: Work, running: queue.WorkQueue[str]) -> None:
    work.fails = True
    running.add("a")
    await work.clock.advance(3.9)
    assert work.passes == [("a", 0)]
    await work.clock.advance(8.1)
    assert [at for _, at in work.passes] == [0, 4, 12]
    assert work.failures[:2] == [("a", "broken", 4), ("a", "broken", 8)]


async def test_one_broken_key_does_not_hold_up_another(work: Work, running: queue.WorkQueue[str]) -> None:
    work.gate.clear()
    running.add("a")
    await work.clock.settle()
    running.add("b")
    await work.clock.settle()
    assert {key for key, _ in work.passes} == {"a", "b"}


async def test_looks_again_when_asked_and_stops_when_gone_b065(work: Work, running: queue.WorkQueue[str]) -> None:
    work.result = 5
    running.add("a")
    await work.clock.advance(11)
    assert [at for _, at in work.passes] == [0, 5, 10]
    work.result = queue.GONE
    await work.clock.advance(1000)
    assert [at for _, at in work.passes] == [0, 5, 10, 15]
    assert len(running) == 0


async def test_cancelling_the_queue_cancels_its_passes(work: Work, clock: Any) -> None:
    made: queue.WorkQueue[str] = queue.WorkQueue(
        work, lambda *_: None, settings=SETTINGS, clock=clock, rng=random.Random(1)
    )
    task = asyncio.ensure_future(made.run())
    work.gate.clear()
    made.add("a")
    await clock.settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert work.passes == [("a", 0)]
    assert len(made) == 0


async def test_a_pass_that_something_else_cancelled_is_made_again(clock: Any) -> None:
    passes: list[float] = []

    async def cancelled_once(_: str) -> float | None:
        passes.append(clock.monotonic())
        if len(passes) == 1:
            raise asyncio.CancelledError
        return None

    told: list[BaseException] = []
    made: queue.WorkQueue[str] = queue.WorkQueue(
        cancelled_once, lambda key, failure, delay: told.append(failure), settings=SETTINGS, clock=clock,
        rng=random.Random(1),
    )  # fmt: skip
    task = asyncio.ensure_future(made.run())
    made.add("a")
    await clock.advance(10)
    assert passes == [0, 4]
    assert [type(failure) for failure in told] == [asyncio.CancelledError]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
