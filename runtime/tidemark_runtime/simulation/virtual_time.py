"""A clock that moves only when somebody moves it, and a worker that computes in no time and says when it is done.

What *one step ahead* means here. The real engine plans step k + 1 while the device computes step k, hands it over, and
then waits for the result of k. So on the virtual clock:

    submit(k + 1)      the clock moves by the host's time for a step; the step *starts* when the device is done with k
    result of k        the clock moves to the end of k, if it is not there yet

Between the two nothing moves. A plan is therefore made with what was known when step k - 1 ended, exactly as on a real
device, the device never idles while there is work (as long as the host is faster than it), and requests that arrive
during a step are seen after it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures

from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import interface


class VirtualClock:
    """Seconds since the start of the simulation."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def move_to(self, seconds: float) -> None:
        """Never backwards."""
        self.now = max(self.now, seconds)


class _Done(futures.Future[step_plan.StepResult]):
    """A result that is there; asking for it takes until the step is over."""

    def __init__(self, clock: VirtualClock, end: float, result: step_plan.StepResult) -> None:
        # Not Future's own: it makes a lock for each, and there is one thread.
        self._clock = clock
        self._end = end
        self._step_result = result

    def done(self) -> bool:
        return self._clock.now >= self._end

    def result(self, timeout: float | None = None) -> step_plan.StepResult:
        self._clock.move_to(self._end)
        return self._step_result


StepSeen = Callable[[step_plan.StepPlan, float, float], None]
"""Told of every step: its plan, when it starts and when it ends."""


class VirtualDevice:
    """What `engine.worker_thread.WorkerThread` is to a real worker."""

    def __init__(
        self,
        worker: interface.Worker,
        clock: VirtualClock,
        *,
        host_seconds: float = 0.0,
        seen: StepSeen | None = None,
    ) -> None:
        """`host_seconds`: what planning a step and taking in its result takes on the host, beside the device."""
        self._worker = worker
        self._clock = clock
        self._host_seconds = host_seconds
        self._seen = seen
        self._free_at = 0.0
        self.num_steps = 0
        self.busy_seconds = 0.0

    @property
    def facts(self) -> interface.WorkerFacts:
        return self._worker.facts

    def submit(self, plan: step_plan.StepPlan) -> futures.Future[step_plan.StepResult]:
        """Executes at once; the step starts, on the clock, when the one before it is over."""
        self._clock.now += self._host_seconds
        result = self._worker.execute(plan)
        start = max(self._clock.now, self._free_at)
        self._free_at = end = start + result.execute_seconds
        self.num_steps += 1
        self.busy_seconds += result.execute_seconds
        if self._seen is not None:
            self._seen(plan, start, end)
        return _Done(self._clock, end, result)

    def close(self) -> None:
        self._worker.close()
