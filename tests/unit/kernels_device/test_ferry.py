"""Cases made on the processor run on a device: memory goes there and comes back, byte by byte."""

from __future__ import annotations

import dataclasses
import importlib

import device_ops
import ferry
import torch

from tidemark_kernels import segments
from tidemark_kernels.device import layout

OTHER_MEMORY = torch.device("cpu")


def test_results_come_back_and_arguments_are_elsewhere_meanwhile() -> None:
    x = torch.arange(6.0)

    def op(one: torch.Tensor) -> torch.Tensor:
        assert one.data_ptr() != x.data_ptr()
        assert torch.equal(one, x)
        return one + 1

    assert torch.equal(ferry.across(op, OTHER_MEMORY)(x), x + 1)


def test_what_is_written_into_an_argument_comes_back() -> None:
    x = torch.zeros(4)

    def op(one: torch.Tensor) -> torch.Tensor:
        one[1] = 7
        return one

    result = ferry.across(op, OTHER_MEMORY)(x)
    assert x.tolist() == [0, 7, 0, 0]
    assert result is x


def test_views_of_the_same_memory_stay_views_of_it() -> None:
    slab = torch.zeros(4, 8, dtype=torch.uint8)

    def op(pages: torch.Tensor, columns: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        columns.fill_(3)
        assert pages[:, 2:4].eq(3).all()
        return out.view(torch.float16)

    result = ferry.across(op, OTHER_MEMORY)(slab, slab[:, 2:4], out=slab)
    assert slab[:, 2:4].eq(3).all()
    assert slab[:, :2].eq(0).all()
    assert result.shape == (4, 4)
    assert result.data_ptr() == slab.data_ptr()


def test_dataclasses_of_the_device_package_are_taken_along_and_host_memory_is_not() -> None:
    source = segments.LayerSegments.from_offsets([0], [64], torch.float16, torch.float16)
    made = layout.DeviceSegments.of(source, OTHER_MEMORY)

    def op(one: layout.DeviceSegments) -> list[torch.Tensor]:
        assert dataclasses.is_dataclass(one)
        assert one.source is source
        assert one.table.data_ptr() != made.table.data_ptr()
        return [one.table, one.fixed.clone()]

    table, fixed = ferry.across(op, OTHER_MEMORY)(made)
    assert table.data_ptr() == made.table.data_ptr()
    assert torch.equal(fixed, made.fixed)


def test_tensors_without_memory_go_along() -> None:
    empty, x = torch.empty(0, 4), torch.ones(2)
    one, other = ferry.across(lambda *tensors: tensors, OTHER_MEMORY)(empty, x)
    assert one.shape == (0, 4)
    assert other.tolist() == [1, 1]


def test_every_op_is_replaced_and_put_back() -> None:
    before = device_ops.ops()
    with ferry.ferried(OTHER_MEMORY):
        for name, function in before.items():
            assert getattr(importlib.import_module(function.__module__), name) is not function
    for name, function in before.items():
        assert getattr(importlib.import_module(function.__module__), name) is function
