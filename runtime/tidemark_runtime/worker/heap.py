"""glibc's heap: from which size on it maps memory instead of keeping it, and giving back what it keeps.

By itself glibc raises that size with every large block that is freed, to 32 MiB at most, so that an engine ends up
there after some steps. Fixed at once, start and later behave alike. Mapping every large tensor afresh would keep the
process no larger than its live tensors, but the system zeroes the pages: it made a step of 512 tokens a tenth slower.
"""

from __future__ import annotations

import ctypes
from functools import cache

KEEP_UNDER_BYTES = 32 << 20
"""While serving: smaller blocks are kept for the next step."""
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Parameters of mallopt (glibc, malloc.h)."""


@cache
def _libc() -> ctypes.CDLL | None:
    """None where there is another C library: its heap is left alone."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def keep_under(num_bytes: int) -> bool:
    """Blocks under `num_bytes` stay in the heap when they are freed, larger ones go back to the system. Of the whole
    process, from now on. False where this C library cannot."""
    library = _libc()
    if library is None:
        return False
    library.mallopt(_TRIM_THRESHOLD, 2 * num_bytes)
    return bool(library.mallopt(_MMAP_THRESHOLD, num_bytes))


def give_back() -> None:
    """What the heap keeps and nobody uses."""
    library = _libc()
    if library is not None:
        library.malloc_trim(0)
