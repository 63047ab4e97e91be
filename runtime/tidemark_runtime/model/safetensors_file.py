"""Maps one `.safetensors` file: an 8-byte length, a JSON header, the tensors.

Our own few lines instead of the library's, because we give pages of the mapping back while loading (the peak stays
near one copy of the weights), and because every defect must name the file and the tensor.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from tidemark_runtime import errors
from tidemark_runtime.model import mapping
from tidemark_runtime.planning import safetensors_header

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "I32": torch.int32,  # of packed weights
        "I64": torch.int64,
    },
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: where it lies in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """The tensors of one file, mapped."""

    def __init__(self, path: Path) -> None:
        """Raises CorruptModel when the header and the file contradict each other, UnsupportedModel for other dtypes."""
        self.path = path
        self._data = mapping.open_mapped(path)
        self.entries = _entries(path, self._data)

    def tensor(self, name: str) -> torch.Tensor:
        """A view of the mapped file; not to be written."""
        entry = self.entries[name]
        flat = torch.frombuffer(self._data, dtype=torch.uint8, offset=entry.start, count=entry.end - entry.start)
        if entry.start % entry.dtype.itemsize:
            flat = flat.clone()
        return flat.view(entry.dtype).view(entry.shape)

    def release(self, name: str) -> None:
        """Give the tensor's resident pages back; reading it again brings them back."""
        entry = self.entries[name]
        mapping.release(self._data, entry.start, entry.end)


def _entries(path: Path, data: mmap.mmap) -> dict[str, Entry]:
    header = safetensors_header.parse(path, data)
    return {name: _entry(path, name, seen, header.data_start, len(data)) for name, seen in header.tensors.items()}


def _entry(path: Path, name: str, seen: Any, data_start: int, size_bytes: int) -> Entry:
    start, end = safetensors_header.place(path, name, seen, data_start)
    try:
        dtype_name, shape = str(seen["dtype"]), tuple(int(size) for size in seen["shape"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise errors.CorruptModel(f"{path}: the header of tensor {name} is wrong: {seen!r}") from error
    dtype = DTYPES.get(dtype_name)
    if dtype is None:
        raise errors.UnsupportedModel(
            f"{path}: the tensor {name} has the type {dtype_name}, expected one of {', '.join(DTYPES)}"
        )
    num_bytes = dtype.itemsize
    for size in shape:
        num_bytes *= size
    if min(shape, default=1) < 1 or start < data_start or end - start != num_bytes:
        raise errors.CorruptModel(f"{path}: the tensor {name} of shape {list(shape)} cannot lie in {end - start} bytes")
    if end > size_bytes:
        raise errors.CorruptModel(
            f"{path}: the file has {size_bytes} bytes, but the tensor {name} ends at byte {end}: it is cut off. "
            "Fetch it again"
        )
    return Entry(dtype, shape, start, end)
