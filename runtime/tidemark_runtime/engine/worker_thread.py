"""The one thread on which a worker lives: made there, run there, closed there.

One thread, because steps execute strictly in the order of their plans. And *the same* thread for loading and for
steps: OpenMP keeps a pool of helpers for each thread that ever computed, and once its pools count more threads than
there are cores it puts helpers to sleep between two kernels instead of letting them spin. A step has 250 kernels.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Protocol

from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import interface


class Steps(Protocol):
    """What the engine asks of whatever stands between it and a worker: a thread, or a clock of its own."""

    @property
    def facts(self) -> interface.WorkerFacts: ...

    def submit(self, plan: step_plan.StepPlan) -> concurrent.futures.Future[step_plan.StepResult]:
        """Queue a step behind those that are queued already; steps execute strictly in this order."""
        ...

    def close(self) -> None:
        """After the steps that are queued."""
        ...


class WorkerThread:
    """`Steps` of a real worker. Runs `make` on a new thread at once; raises what it raises."""

    def __init__(self, make: Callable[[], interface.Worker]) -> None:
        self._executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="worker")
        try:
            self._worker = self._executor.submit(make).result()
        except BaseException:
            self._executor.shutdown(wait=False)
            raise

    @property
    def facts(self) -> interface.WorkerFacts:
        return self._worker.facts

    def submit(self, plan: step_plan.StepPlan) -> concurrent.futures.Future[step_plan.StepResult]:
        """Queue a step behind those that are queued already."""
        return self._executor.submit(self._worker.execute, plan)

    def close(self) -> None:
        """After the steps that are queued."""
        self._executor.submit(self._worker.close).result()
        self._executor.shutdown()
