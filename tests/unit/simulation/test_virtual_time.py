"""One step ahead on a clock that only moves when it is asked for a result."""

from __future__ import annotations

from tidemark_runtime.core import step_plan
from tidemark_runtime.planning import page_layout
from tidemark_runtime.simulation import virtual_time
from tidemark_runtime.worker import interface


class Steps:
    """Step n takes n seconds."""

    facts = interface.WorkerFacts(
        kind="simulated",
        device="none",
        dtype="bfloat16",
        layout=page_layout.PageLayout(page_layout.KVShape(1, 1, 8), 4, "bfloat16"),
        num_pages=1,
        max_context_tokens=1,
        memory_bytes={},
    )

    def __init__(self) -> None:
        self.closed = False

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        return step_plan.StepResult(plan.step, (), (), float(plan.step))

    def close(self) -> None:
        self.closed = True


def plan(step: int) -> step_plan.StepPlan:
    return step_plan.StepPlan(step=step, decodes=(0,))


def test_a_step_starts_when_the_one_before_is_done() -> None:
    clock = virtual_time.VirtualClock()
    seen: list[tuple[float, float]] = []
    device = virtual_time.VirtualDevice(Steps(), clock, seen=lambda _, start, end: seen.append((start, end)))
    clock.move_to(10.0)
    first, second = device.submit(plan(1)), device.submit(plan(2))
    assert clock.now == 10.0, "submitting takes no time"
    assert first.result().step == 1
    assert clock.now == 11.0
    third = device.submit(plan(3))
    assert second.result().execute_seconds == 2.0
    assert clock.now == 13.0
    third.result()
    assert (clock.now, seen) == (16.0, [(10.0, 11.0), (11.0, 13.0), (13.0, 16.0)])
    assert (device.num_steps, device.busy_seconds) == (3, 6.0)


def test_after_an_idle_time_a_step_starts_now() -> None:
    clock = virtual_time.VirtualClock()
    device = virtual_time.VirtualDevice(Steps(), clock)
    device.submit(plan(1)).result()
    clock.move_to(100.0)
    device.submit(plan(1)).result()
    assert clock.now == 101.0


def test_host_time_is_hidden_behind_the_device_and_no_more() -> None:
    clock = virtual_time.VirtualClock()
    device = virtual_time.VirtualDevice(Steps(), clock, host_seconds=0.25)
    first = device.submit(plan(1))
    second = device.submit(plan(2))
    first.result()
    assert clock.now == 1.25
    second.result()
    assert clock.now == 3.25, "planning the second was hidden"


def test_a_step_is_done_when_the_clock_says_so() -> None:
    device = virtual_time.VirtualDevice(Steps(), virtual_time.VirtualClock())
    step = device.submit(plan(1))
    assert not step.done()
    step.result()
    assert step.done()


def test_the_clock_never_goes_back_and_close_reaches_the_worker() -> None:
    clock = virtual_time.VirtualClock()
    clock.move_to(5.0)
    clock.move_to(4.0)
    assert clock() == 5.0
    worker = Steps()
    virtual_time.VirtualDevice(worker, clock).close()
    assert worker.closed
