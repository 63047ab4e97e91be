"""Reads the header of a `.safetensors` file: which tensors it has and where they lie. Standard library only.

The format: u64 length of the header, little endian | header, a JSON object of tensor name -> {"dtype", "shape",
"data_offsets": [first byte, byte after the last]} | data, from where the offsets count. `__metadata__` is no tensor.
"""

from __future__ import annotations

import json
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_runtime import errors

INDEX = "model.safetensors.index.json"
"""Says which file of several each tensor lies in."""
SINGLE = "model.safetensors"
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Header:
    """All but the weights."""

    tensors: dict[str, Any]
    """Name -> what the file says of it, as it says it."""
    data_start: int
    """First byte of the data, from the beginning of the file."""


def parse(path: Path, data: mmap.mmap) -> Header:
    """The header of the mapped file `path`. Raises CorruptModel where it ends early or is no JSON object."""
    header_end = _LENGTH.size + (_LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else len(data))
    if header_end > len(data):
        raise errors.CorruptModel(
            f"{path}: the file has {len(data)} bytes, but its header ends at {header_end}: cut off, or not safetensors"
        )
    try:
        header = json.loads(data[_LENGTH.size : header_end])
    except ValueError as error:
        raise errors.CorruptModel(f"{path}: the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise errors.CorruptModel(f"{path}: the header is not a JSON object")
    header.pop("__metadata__", None)
    return Header(header, header_end)


def place(path: Path, name: str, seen: Any, data_start: int) -> tuple[int, int]:
    """First byte of a tensor and the one after its last, from the beginning of the file. `seen`: what the header says
    of it. Raises CorruptModel where that is no place."""
    try:
        start, end = (data_start + int(offset) for offset in seen["data_offsets"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise errors.CorruptModel(f"{path}: the header of tensor {name} is wrong: {seen!r}") from error
    return start, end


def check_whole(folder: Path) -> None:
    """That the files which the engine would read in `folder` are there and as long as their headers say; a folder
    without any, such as one with `config.json` alone, is not looked at further.

    Raises CorruptModel with the bytes that are there and those that should be.
    """
    for name in _names(folder):
        path = folder / name
        if not path.is_file():
            raise errors.CorruptModel(f"{folder}: {INDEX} names {name}, which is missing. Fetch it")
        if path.stat().st_size == 0:
            raise errors.CorruptModel(f"{path}: the file is empty. Fetch it again")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check_length(path, parse(path, data), len(data))


def _check_length(path: Path, header: Header, size_bytes: int) -> None:
    ends = {name: place(path, name, seen, header.data_start)[1] for name, seen in header.tensors.items()}
    last = max(ends, key=lambda name: ends[name], default=None)
    if last is not None and ends[last] > size_bytes:
        raise errors.CorruptModel(
            f"{path}: the file has {size_bytes} bytes, but by its header {ends[last]}, where the tensor {last} ends: "
            "it is cut off. Fetch it again"
        )


def _names(folder: Path) -> list[str]:
    """Of the files to read; of those that an index names all, if one of them is there."""
    if not (folder / INDEX).is_file():
        return [SINGLE] if (folder / SINGLE).is_file() else []
    try:
        files = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        names = sorted({str(name) for name in files.values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.CorruptModel(f"{folder / INDEX}: expected a weight_map of tensor names to file names") from error
    return names if any((folder / name).is_file() for name in names) else []
