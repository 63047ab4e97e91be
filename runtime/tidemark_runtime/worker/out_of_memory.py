"""Tells a lack of memory from every other error, whoever noticed it: Python, numpy, our kernels, torch, the system."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

import torch

from tidemark_runtime import errors

_WORDS = ("can't allocate memory", "out of memory", "not enough memory", "bad_alloc")
"""torch says a failed allocation on a processor in a plain RuntimeError ("DefaultCPUAllocator: can't allocate memory"),
and passes on what C++ threw ("std::bad_alloc")."""
_MOST_CHARACTERS = 300


def is_meant(error: BaseException) -> bool:
    """Whether `error` says that memory has run out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """Raises `OutOfMemory`, which says what was being done, for a lack of memory inside; other errors as they are."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_meant(error):
            raise
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise errors.OutOfMemory(f"memory ran out {doing}: {first_line[:_MOST_CHARACTERS]}") from error
