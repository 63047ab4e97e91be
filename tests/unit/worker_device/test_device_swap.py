"""Pages out and in, and who waits for whom."""

from __future__ import annotations

import made_devices
import pytest
import torch

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.worker import accelerators, device_swap

PAGE_BYTES = 64
PARAMS = sampling.SamplingParams(max_tokens=1)


def made_slab(num_pages: int = 4) -> torch.Tensor:
    return torch.arange(num_pages, dtype=torch.uint8)[:, None].repeat(1, PAGE_BYTES)


def plan(**parts: object) -> step_plan.StepPlan:
    return step_plan.StepPlan(step=1, **parts)


def event(device: accelerators.Accelerator) -> accelerators.Event:
    return device.event()


def test_pages_go_out_and_come_back_elsewhere() -> None:
    device, slab = accelerators.Interpreter(), made_slab()
    space = device_swap.DeviceSwap(device, slab, 3)
    space.copy(plan(swaps_out=(step_plan.Copy(1, 2), step_plan.Copy(3, 0))), event(device))
    slab[[1, 3]] = 9
    space.copy(plan(swaps_in=(step_plan.Copy(0, 2), step_plan.Copy(2, 0))), event(device))
    assert slab[:, 0].tolist() == [1, 9, 3, 9]
    assert space.num_pages == 3


def test_a_page_that_leaves_may_be_filled_by_the_same_plan() -> None:
    device, slab = accelerators.Interpreter(), made_slab()
    space = device_swap.DeviceSwap(device, slab, 2)
    space.copy(plan(swaps_out=(step_plan.Copy(3, 0),)), event(device))
    space.copy(plan(swaps_out=(step_plan.Copy(1, 1),), swaps_in=(step_plan.Copy(1, 0),)), event(device))
    assert slab[:, 0].tolist() == [0, 3, 2, 3]


def test_copies_wait_for_the_step_before_and_nobody_for_pages_that_stay_unused() -> None:
    device = made_devices.Written()
    space = device_swap.DeviceSwap(device, made_slab(), 2)
    before = event(device)
    space.copy(plan(swaps_out=(step_plan.Copy(1, 0),)), before)
    assert device.log == ["copies:", "wait 1", "record 2", "steps:"]
    assert space.waits(plan(decodes=(0,))) == []
    assert space.waits(plan(new_pages=(step_plan.NewPages(0, (2,)),))) == []


@pytest.mark.parametrize(
    "later",
    [
        plan(new_pages=(step_plan.NewPages(0, (2, 1)),)),
        plan(joins=(step_plan.Join(0, (5,), 1, PARAMS, pages=(1,)),)),
    ],
    ids=["new page", "join"],
)
def test_who_is_given_a_page_that_leaves_waits_for_its_copy_once(later: step_plan.StepPlan) -> None:
    device = made_devices.Written()
    space = device_swap.DeviceSwap(device, made_slab(), 2)
    space.copy(plan(swaps_out=(step_plan.Copy(1, 0), step_plan.Copy(3, 1))), event(device))
    (found,) = space.waits(later)
    assert isinstance(found, made_devices.WrittenEvent)
    assert found.number == 2
    assert space.waits(later) == []


def test_a_step_waits_for_the_pages_that_come_in_with_it() -> None:
    device = made_devices.Written()
    space = device_swap.DeviceSwap(device, made_slab(), 2)
    coming = plan(swaps_out=(step_plan.Copy(1, 0),), swaps_in=(step_plan.Copy(1, 1), step_plan.Copy(2, 0)))
    with pytest.raises(ValueError, match="write to the same page"):
        space.copy(plan(swaps_in=(step_plan.Copy(1, 0), step_plan.Copy(1, 1))), event(device))
    space.copy(coming, event(device))
    (found,) = space.waits(coming)
    assert isinstance(found, made_devices.WrittenEvent)
    assert device.log[-2:] == [f"record {found.number}", "steps:"]  # the last thing in the stream of copies


def test_copies_without_room_are_refused_before_any_is_made() -> None:
    device, slab = accelerators.Interpreter(), made_slab()
    space = device_swap.DeviceSwap(device, slab, 1)
    with pytest.raises(ValueError, match="the swap space has 1"):
        space.copy(plan(swaps_out=(step_plan.Copy(0, 0), step_plan.Copy(1, 1))), event(device))
    assert device_swap.DeviceSwap(device, slab, 0).measure() == 0.0
    assert space.measure() > 0
    assert slab[:, 0].tolist() == [0, 1, 2, 3]


def test_many_pages_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_swap, "CHUNK_BYTES", 3 * PAGE_BYTES)
    device, slab = accelerators.Interpreter(), made_slab(8)
    space = device_swap.DeviceSwap(device, slab, 7)
    assert space.num_pages == 7
    space.copy(plan(swaps_out=tuple(step_plan.Copy(page, page - 1) for page in range(1, 8))), event(device))
    slab.zero_()
    space.copy(plan(swaps_in=tuple(step_plan.Copy(page, page - 1) for page in range(1, 8))), event(device))
    assert slab[:, 0].tolist() == list(range(8))
