"""The two threads of a device's worker: one launches steps, one waits for what they brought.

A step is launched while the one before it computes, so that the device never waits for the host; and whoever waits for
a result keeps nobody from launching. Each thread does its work strictly in the order of the plans, so results come in
that order, too.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Protocol

from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import interface


class Launched(Protocol):
    """A step that is on its way."""

    def result(self) -> step_plan.StepResult:
        """Waits for it; raises what came of it instead."""
        ...


class LaunchingWorker(Protocol):
    """A worker whose steps can be begun without waiting for their end."""

    @property
    def facts(self) -> interface.WorkerFacts: ...

    def launch(self, plan: step_plan.StepPlan) -> Launched: ...

    def close(self) -> None: ...


class DeviceThreads:
    """`worker_thread.Steps` of a device. Runs `make` on the launching thread at once; raises what it raises."""

    def __init__(self, make: Callable[[], LaunchingWorker]) -> None:
        self._launching = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="launches")
        self._waiting = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="waits")
        try:
            self._worker = self._launching.submit(make).result()
        except BaseException:
            self._launching.shutdown(wait=False)
            self._waiting.shutdown(wait=False)
            raise

    @property
    def facts(self) -> interface.WorkerFacts:
        return self._worker.facts

    def submit(self, plan: step_plan.StepPlan) -> concurrent.futures.Future[step_plan.StepResult]:
        """Queue a step behind those that are queued already."""
        promised: concurrent.futures.Future[step_plan.StepResult] = concurrent.futures.Future()
        self._launching.submit(self._launch, plan, promised)
        return promised

    def close(self) -> None:
        """After the steps that are queued."""
        self._launching.submit(self._worker.close).result()
        self._launching.shutdown()
        self._waiting.shutdown()

    def _launch(self, plan: step_plan.StepPlan, promised: concurrent.futures.Future[step_plan.StepResult]) -> None:
        try:
            launched = self._worker.launch(plan)
        except BaseException as error:  # noqa: BLE001  whatever it was, it belongs to whoever waits for this step
            # By way of the other thread, so that results of steps before it are there first.
            self._waiting.submit(promised.set_exception, error)
            return
        self._waiting.submit(_wait, launched, promised)


def _wait(launched: Launched, promised: concurrent.futures.Future[step_plan.StepResult]) -> None:
    try:
        result = launched.result()
    except BaseException as error:  # noqa: BLE001  as above
        promised.set_exception(error)
        return
    promised.set_result(result)
