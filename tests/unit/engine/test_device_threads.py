"""One thread launches, one waits: nobody waits to launch, and results come in the order of the plans."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.engine import device_threads

TIMEOUT = 20


def plan(step: int) -> step_plan.StepPlan:
    return step_plan.StepPlan(step=step, decodes=(0,))


class Launched:
    def __init__(self, finish: Callable[[], step_plan.StepResult]) -> None:
        self._finish = finish

    def result(self) -> step_plan.StepResult:
        return self._finish()


class Worker:
    """Steps end when the test says so."""

    facts: Any = "facts"

    def __init__(self) -> None:
        self.launched: list[int] = []
        self.launched_all = threading.Event()
        self.may_end = threading.Event()
        self.fails_to_launch: dict[int, Exception] = {}
        self.fails_to_end: dict[int, Exception] = {}
        self.threads: set[str] = set()
        self.closed = False

    def launch(self, plan: step_plan.StepPlan) -> Launched:
        self.threads.add(f"launch on {threading.current_thread().name}")
        self.launched.append(plan.step)
        if len(self.launched) == 3:
            self.launched_all.set()
        if plan.step in self.fails_to_launch:
            raise self.fails_to_launch[plan.step]
        return Launched(lambda: self._end(plan.step))

    def _end(self, step: int) -> step_plan.StepResult:
        self.threads.add(f"end on {threading.current_thread().name}")
        assert self.may_end.wait(TIMEOUT)
        if step in self.fails_to_end:
            raise self.fails_to_end[step]
        return step_plan.StepResult(step, (step,), (None,), 0.1)

    def close(self) -> None:
        self.closed = True


def test_steps_are_launched_while_the_first_one_computes_and_end_in_order() -> None:
    worker = Worker()
    threads = device_threads.DeviceThreads(lambda: worker)
    assert threads.facts == "facts"
    ended: list[int] = []
    futures = [threads.submit(plan(step)) for step in (1, 2, 3)]
    for future in futures:
        future.add_done_callback(lambda done: ended.append(done.result().step))
    assert worker.launched_all.wait(TIMEOUT)
    assert not any(future.done() for future in futures)
    worker.may_end.set()
    assert [future.result(TIMEOUT).token_ids for future in futures] == [(1,), (2,), (3,)]
    threads.close()
    assert ended == [1, 2, 3]
    assert worker.closed
    assert worker.threads == {"launch on launches_0", "end on waits_0"}


def test_errors_end_in_the_future_of_their_step_after_the_results_before_it() -> None:
    worker = Worker()
    worker.fails_to_launch[2] = errors.OutOfMemory("memory ran out in a step")
    worker.fails_to_end[3] = errors.EngineError("no finite number")
    threads = device_threads.DeviceThreads(lambda: worker)
    futures = [threads.submit(plan(step)) for step in (1, 2, 3, 4)]
    assert worker.launched_all.wait(TIMEOUT)
    assert not futures[1].done()  # the result of 1 comes first
    worker.may_end.set()
    assert futures[0].result(TIMEOUT).step == 1
    with pytest.raises(errors.OutOfMemory):
        futures[1].result(TIMEOUT)
    with pytest.raises(errors.EngineError):
        futures[2].result(TIMEOUT)
    assert futures[3].result(TIMEOUT).step == 4
    threads.close()


def test_what_making_the_worker_raises_comes_out() -> None:
    def make() -> Worker:
        raise errors.CapacityError("no room")

    with pytest.raises(errors.CapacityError, match="no room"):
        device_threads.DeviceThreads(make)
