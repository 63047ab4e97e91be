"""Runs the cases of device ops, which are made of tensors of the processor, on a card: ops are ferried across.

While `ferried(device)` holds, every op of `tidemark_kernels.device` copies the memory of its arguments to the device,
runs there, and brings back its results and whatever it wrote into its arguments, byte by byte: views stay views, poison
stays poison. So a case needs no second form, and each one that passes under the interpreter is run by compiled code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import device_ops
import torch

from tidemark_kernels import device as device_package


@contextlib.contextmanager
def ferried(device: torch.device) -> Iterator[None]:
    """`cpu` as a device is other memory of the processor: what tests of this file use."""
    with contextlib.ExitStack() as stack:
        for name, function in device_ops.ops().items():
            module = importlib.import_module(function.__module__)
            setattr(module, name, across(function, device))
            stack.callback(setattr, module, name, function)
        yield


def across(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """`function`, with its arguments taken to `device` and everything it leaves brought back."""

    @functools.wraps(function)
    def ferrying(*arguments: Any, **named: Any) -> Any:
        crossing = Crossing(device)
        result = function(
            *(crossing.over(one) for one in arguments), **{name: crossing.over(one) for name, one in named.items()}
        )
        crossing.write_back()
        return crossing.back(result)

    return ferrying


class Crossing:
    """The memory of one call: each storage is copied once, so that tensors that share it still do."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """Address of a storage here -> its bytes here, its bytes there."""
        self._homes: dict[int, torch.Tensor] = {}
        """Address of a storage there -> its bytes here."""
        self._taken: dict[int, tuple[Any, Any]] = {}
        """`id` of a value there -> that value, and the one here that it was made from."""

    def over(self, value: Any) -> Any:
        """The same value on the device: tensors, also in tuples, lists, dicts and dataclasses of the device package."""
        there = self._over(value) if isinstance(value, torch.Tensor) else _mapped(value, self.over)
        if there is not value:
            self._taken[id(there)] = (there, value)
        return there

    def _over(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu" or self._is_there(tensor):
            return tensor
        address = tensor.untyped_storage().data_ptr()
        if not address:
            return tensor.to(self._device)
        if address not in self._pairs:
            here = _bytes_of(tensor)
            there = torch.empty_like(here, device=self._device)
            there.copy_(here)
            self._pairs[address] = (here, there)
            self._homes[there.untyped_storage().data_ptr()] = here
        return _like(tensor, self._pairs[address][1])

    def _is_there(self, tensor: torch.Tensor) -> bool:
        """Already taken over: an op that calls another hands on what it was given. (No memory has the address 0.)"""
        return tensor.untyped_storage().data_ptr() in self._homes

    def write_back(self) -> None:
        for here, there in self._pairs.values():
            here.copy_(there)

    def back(self, value: Any) -> Any:
        """A result: an argument itself or its own memory where it is that, else a copy here."""
        if id(value) in self._taken:
            return self._taken[id(value)][1]
        if isinstance(value, torch.Tensor):
            home = self._homes.get(value.untyped_storage().data_ptr())
            return value.cpu() if home is None else _like(value, home)
        return _mapped(value, self.back)


def _mapped(value: Any, one: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(one(each) for each in value))
    if isinstance(value, tuple | list):
        return type(value)(one(each) for each in value)
    if isinstance(value, dict):
        return {name: one(each) for name, each in value.items()}
    # What lies in host memory on purpose (`LayerSegments`) is of other packages, and stays.
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith(device_package.__name__):
        made = object.__new__(type(value))
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, one(getattr(value, field.name)))
        return made
    return value


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Its whole storage as uint8."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))  # type: ignore[call-overload, no-any-return]


def _like(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """A tensor with the dtype, shape, strides and offset of `tensor` over the storage of `memory`."""
    made = torch.empty(0, dtype=tensor.dtype, device=memory.device)
    return made.set_(memory.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())  # type: ignore[call-overload, no-any-return]
