"""Maps weight files, and gives their resident pages back. Needs no torch."""

from __future__ import annotations

import mmap
from pathlib import Path

from tidemark_runtime import errors


def open_mapped(path: Path) -> mmap.mmap:
    """The whole file, mapped.

    Copy on write but never written: torch and numpy warn about views of memory that is mapped read-only.
    Raises ModelNotFound when the file cannot be read, CorruptModel when it is empty.
    """
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise errors.CorruptModel(f"{path}: the file is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except FileNotFoundError as error:
        raise errors.ModelNotFound(f"{path}: no such file") from error
    except OSError as error:
        raise errors.ModelNotFound(f"{path}: cannot be read: {error.strerror}") from error


def release(data: mmap.mmap, start: int, end: int) -> None:
    """Drop the resident pages of bytes `start` to `end`; they come back from the file when they are read again.

    Without this a load would hold the file's pages beside the copies made of them: twice the weights.
    """
    begin = start // mmap.PAGESIZE * mmap.PAGESIZE
    data.madvise(mmap.MADV_DONTNEED, begin, end - begin)
