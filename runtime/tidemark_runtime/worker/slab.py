"""Slab and swap space: anonymous mappings whose memory the kernel provides, zeroed, when it is first written."""

from __future__ import annotations

import mmap

import torch

from tidemark_runtime import errors


def allocate(num_pages: int, page_bytes: int, setting: str = "kvCache.memory") -> torch.Tensor:
    """uint8 [num_pages, page_bytes], beginning at a memory page; given back with its last reference.

    `setting` is what a person lowers to need less.

    Zeroed memory matters: attention multiplies what it must not see by 0, and 0 * NaN would be NaN.
    Raises CapacityError where the address space or the overcommit limit does not allow so much.
    """
    num_bytes = num_pages * page_bytes
    if num_bytes == 0:
        return torch.empty((num_pages, page_bytes), dtype=torch.uint8)
    try:
        mapping = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise errors.CapacityError(
            f"the system refuses {num_bytes} bytes for {num_pages} KV pages of {page_bytes} bytes: {error}. "
            f"Lower {setting}, or raise the memory limit of this process"
        ) from error
    return torch.frombuffer(mapping, dtype=torch.uint8).view(num_pages, page_bytes)
