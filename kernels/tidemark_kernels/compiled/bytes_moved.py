"""Counts the bytes that kernels load and store, from the program itself, as it runs under Triton's interpreter.

A device moves memory in sectors of 32 bytes. So what one load or store of one program touches counts as its sectors,
each once (lanes that ask for the same bytes share them): `moved_bytes`. A row of 20 bytes costs 32 or 64, a stride of
64 bytes costs the double; a tile that another program loads again counts again, although a cache may have it.
`asked_bytes` are the bytes of lanes that are not masked off, each address once an instruction.

Traffic is told apart by tensor: those that `counting` is given, `other` for what an op allocates itself.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

SECTOR_BYTES = 32
"""The least that CUDA devices fetch from their memory (compute capability 5.0 and later)."""
OTHER = "other"


@dataclass(slots=True)
class Traffic:
    """Of one tensor."""

    loaded_bytes: int = 0
    """In whole sectors."""
    stored_bytes: int = 0
    asked_bytes: int = 0
    """Loaded and stored, without what only fills sectors."""

    @property
    def moved_bytes(self) -> int:
        return self.loaded_bytes + self.stored_bytes


@dataclass(slots=True)
class Counted:
    by_tensor: dict[str, Traffic] = field(default_factory=dict)

    @property
    def moved_bytes(self) -> int:
        return sum(one.moved_bytes for one in self.by_tensor.values())

    @property
    def asked_bytes(self) -> int:
        return sum(one.asked_bytes for one in self.by_tensor.values())


@contextlib.contextmanager
def counting(tensors: Mapping[str, torch.Tensor], every: int = 1) -> Iterator[Counted]:
    """Count every load, store and atomic of kernels that run inside. `tensors` are contiguous and on the processor.

    `every` 8 runs programs 0, 8, 16, ... of each launch alone, and counts them eightfold: exact where that is one head
    of eight that all move as much. Results are then not to be used. Raises `RuntimeError` where kernels are not
    interpreted.
    """
    from triton import knobs
    from triton.runtime import interpreter

    if not knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET is not 1: what a device does cannot be counted, expected the interpreter")
    ranges = {
        name: (tensor.data_ptr(), tensor.data_ptr() + tensor.untyped_storage().nbytes())
        for name, tensor in tensors.items()
    }
    counted = Counted({name: Traffic() for name in (*tensors, OTHER)})
    with contextlib.ExitStack() as stack:
        builder = interpreter.interpreter_builder
        for hook in HOOKS:
            stack.enter_context(_replaced(builder, hook[0], _counting_method(builder, hook, ranges, counted)))
        for name in UNCOUNTED:
            stack.enter_context(_replaced(builder, name, _refusing_method(name)))
        if every > 1:
            stack.enter_context(_skipping(interpreter, every))
        yield counted
    for traffic in counted.by_tensor.values():
        traffic.loaded_bytes *= every
        traffic.stored_bytes *= every
        traffic.asked_bytes *= every


HOOKS: tuple[tuple[str, int, int, bool], ...] = (
    ("create_masked_load", 0, 1, False),
    ("create_masked_store", 0, 2, True),
    ("create_atomic_rmw", 1, 3, True),
)
"""Method of the interpreter, its argument with the pointers, that with the mask, whether it stores. Loads and stores
without a mask, and those by descriptors, come by the same methods."""
UNCOUNTED = ("create_atomic_cas",)
"""No kernel of ours uses it; one that begins to is told to have it counted."""


@contextlib.contextmanager
def _replaced(builder: Any, name: str, method: Callable[..., Any]) -> Iterator[None]:
    setattr(builder, name, method)
    try:
        yield
    finally:
        # The class's own method shows again.
        delattr(builder, name)


@contextlib.contextmanager
def _skipping(interpreter: Any, every: int) -> Iterator[None]:
    """Launches run each `every`-th program along the first axis."""
    original = interpreter.GridExecutor.__init__

    def init(self: Any, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        original(self, function, *arguments, **named)
        self.fn = _Some(function, interpreter.interpreter_builder, every)

    interpreter.GridExecutor.__init__ = init
    try:
        yield
    finally:
        interpreter.GridExecutor.__init__ = original


class _Some:
    """A kernel that does nothing in most programs; to the interpreter it looks like the kernel."""

    def __init__(self, function: Callable[..., Any], builder: Any, every: int) -> None:
        functools.update_wrapper(self, function)
        self.__signature__ = inspect.signature(function)
        self.__globals__ = function.__globals__
        self._function = function
        self._builder = builder
        self._every = every

    def __call__(self, **arguments: Any) -> None:
        if self._builder.grid_idx[0] % self._every == 0:
            self._function(**arguments)


def _counting_method(
    builder: Any, hook: tuple[str, int, int, bool], ranges: Mapping[str, tuple[int, int]], counted: Counted
) -> Callable[..., Any]:
    from triton.runtime import interpreter

    name, pointers_at, mask_at, is_store = hook
    original: Callable[..., Any] = getattr(builder, name)

    def method(*arguments: Any, **named: Any) -> Any:
        pointers = arguments[pointers_at]
        width = np.dtype(interpreter._get_np_dtype(pointers.get_element_ty())).itemsize
        _add(counted, ranges, pointers.data, arguments[mask_at].data, width, is_store)
        return original(*arguments, **named)

    return method


def _refusing_method(name: str) -> Callable[..., Any]:
    def method(*arguments: Any, **named: Any) -> Any:
        raise NotImplementedError(f"a kernel uses {name}, whose bytes are not counted; add it to HOOKS in {__file__}")

    return method


def _add(
    counted: Counted,
    ranges: Mapping[str, tuple[int, int]],
    pointers: np.ndarray[Any, Any],
    mask: np.ndarray[Any, Any],
    width: int,
    is_store: bool,
) -> None:
    """One instruction of one program: `width` bytes at each of `pointers` that `mask` allows."""
    wanted = np.unique(np.broadcast_to(pointers, np.broadcast_shapes(pointers.shape, mask.shape))[mask.astype(bool)])
    if not len(wanted):
        return
    first = int(wanted[0])
    name = next((name for name, (start, stop) in ranges.items() if start <= first < stop), OTHER)
    sectors = len(np.unique(np.concatenate((wanted // SECTOR_BYTES, (wanted + width - 1) // SECTOR_BYTES))))
    traffic = counted.by_tensor[name]
    traffic.asked_bytes += len(wanted) * width
    if is_store:
        traffic.stored_bytes += sectors * SECTOR_BYTES
    else:
        traffic.loaded_bytes += sectors * SECTOR_BYTES
