"""Maps a GGUF file's tensors, without torch and without copying weights; `planning.gguf_header` reads the header."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemark_runtime.model import mapping
from tidemark_runtime.planning import gguf_header

TENSOR_TYPES = gguf_header.TENSOR_TYPES
"""The tensor types we read, by their number in the file."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the file."""

    name: str
    type_name: str
    """One of the names in TENSOR_TYPES."""
    shape: tuple[int, ...]
    """Row-major: [N, K] for a matrix, where a row of K elements lies contiguously."""
    offset: int
    """Of the first byte, from the beginning of the file."""
    num_bytes: int
    data: npt.NDArray[np.uint8]
    """View of the mapped file, [num_bytes]; not to be written."""


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """What a GGUF file says of itself, and its tensors, mapped."""

    path: Path
    metadata: dict[str, Any]
    """Plain Python values: int, float, bool, str, list."""
    tensors: dict[str, TensorInfo]
    mapped: mmap.mmap

    def release(self, name: str) -> None:
        """Give the tensor's resident pages back; reading it again brings them back."""
        info = self.tensors[name]
        mapping.release(self.mapped, info.offset, info.offset + info.num_bytes)


def read(path: Path) -> GGUFFile:
    """Read the header and map the data.

    Raises ModelNotFound when there is no such file, CorruptModel when it contradicts itself or ends early,
    UnsupportedModel when it has a version or a tensor type we do not read.
    """
    mapped = mapping.open_mapped(path)
    header = gguf_header.parse(path, mapped)
    data = np.frombuffer(mapped, np.uint8)
    tensors = {
        name: TensorInfo(
            name, found.type_name, found.shape, found.offset, found.num_bytes, data[found.offset :][: found.num_bytes]
        )
        for name, found in header.tensors.items()
    }
    return GGUFFile(path, header.metadata, tensors, mapped)
