"""How a step's small tables reach the device: many arrays in one piece of pinned memory, and one copy.

A copy that the device does by itself needs the host's memory untouched until it is over, so there are several pieces,
used in turns, each with the event of its last copy. Nobody waits for one in practice: the engine is one step ahead, not
three. Only a draft model sends more in a step, some for each guess: it is launched one or two guesses ahead of the
device, which has something to do all the while.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tidemark_runtime.worker import accelerators

NUM_PIECES = 4
"""Of pinned memory: two steps are in flight, and a step may send two."""
_ALIGNMENT_BYTES = 64
"""Of each array: kernels are compiled for pointers at multiples of 16 bytes, and copies like whole lines."""
_LEAST_BYTES = 64 << 10
_TORCH = {np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64, np.dtype(np.float32): torch.float32}

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Place:
    """One array: bytes `start` to `end`."""

    start: int
    end: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Packed:
    """Where the arrays of a step lie in one piece of memory; equal shapes give equal places."""

    def __init__(self, shapes: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        self.places: dict[str, Place] = {}
        at = 0
        for name, (dtype, shape) in shapes.items():
            size = dtype.itemsize * int(np.prod(shape))
            self.places[name] = Place(at, at + size, _TORCH[dtype], shape)
            at = -(-(at + size) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self.num_bytes = at

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Packed:
        """Places for just these."""
        return cls({name: (array.dtype, array.shape) for name, array in arrays.items()})

    def write(self, room: Array, arrays: Mapping[str, Array]) -> None:
        """Each of `arrays` into its place in `room`, uint8 [num_bytes or more]. One shorter than its place is followed
        by what was there before. Raises KeyError for an unknown name, ValueError for an array that is too long."""
        for name, array in arrays.items():
            place = self.places[name]
            if array.nbytes > place.end - place.start:
                raise ValueError(f"{name} has {array.nbytes} bytes, its place has {place.end - place.start}")
            room[place.start : place.start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def views(self, buffer: torch.Tensor) -> dict[str, torch.Tensor]:
        """The arrays in `buffer`, uint8 [num_bytes] on the device."""
        return {
            name: buffer[place.start : place.end].view(place.dtype).view(place.shape)
            for name, place in self.places.items()
        }


class Staging:
    """Pinned memory on the way to the device. For the thread that launches."""

    def __init__(self, accelerator: accelerators.Accelerator) -> None:
        self._accelerator = accelerator
        self._pieces = [_Piece(accelerator) for _ in range(NUM_PIECES)]
        self._next = 0

    @property
    def num_bytes(self) -> int:
        return sum(piece.memory.numel() for piece in self._pieces)

    def send(self, arrays: Mapping[str, Array], packed: Packed, target: torch.Tensor | None = None) -> torch.Tensor:
        """Copy `arrays` to the device in the current stream: into `target`, or into memory of their own. Returns uint8
        [packed.num_bytes], to be read in that stream. Returns before the copy is over."""
        with self.lend(packed.num_bytes) as room:
            packed.write(room.numpy(), arrays)
            if target is None:
                target = torch.empty(packed.num_bytes, dtype=torch.uint8, device=self._accelerator.device)
            target.copy_(room, non_blocking=True)
        return target

    @contextlib.contextmanager
    def lend(self, num_bytes: int) -> Iterator[torch.Tensor]:
        """Pinned uint8 [num_bytes] to write to, and to copy from in the current stream before this ends."""
        piece = self._pieces[self._next]
        self._next = (self._next + 1) % NUM_PIECES
        try:
            yield piece.room(num_bytes)
        finally:
            piece.sent.record()


class _Piece:
    def __init__(self, accelerator: accelerators.Accelerator) -> None:
        self._accelerator = accelerator
        self.memory = accelerator.pinned(_LEAST_BYTES)
        self.sent = accelerator.event()
        self.sent.record()

    def room(self, num_bytes: int) -> torch.Tensor:
        """Free for writing; grown to the next power of two where that is needed."""
        self.sent.synchronize()
        if num_bytes > self.memory.numel():
            self.memory = self._accelerator.pinned(1 << (num_bytes - 1).bit_length())
        return self.memory[:num_bytes]


class Returned:
    """Tensors on their way back to the host. Made by the thread that launches, read by the one that waits."""

    def __init__(self, accelerator: accelerators.Accelerator, tensors: Sequence[torch.Tensor]) -> None:
        """Begins the copies in the current stream, and returns before they are over."""
        self._host = []
        for tensor in tensors:
            room = accelerator.pinned(tensor.numel() * tensor.element_size()).view(tensor.dtype).view(tensor.shape)
            room.copy_(tensor, non_blocking=True)
            self._host.append(room)

    def arrays(self) -> list[Array]:
        """After an event behind the copies has been waited for."""
        return [room.numpy() for room in self._host]
