"""Checks of what callers hand to `ops`: cheap; each message names the argument, what it is and what was expected."""

from __future__ import annotations

import torch

from tidemark_kernels import segments as segments_module

FLOATS = (torch.float32, torch.bfloat16)
MAX_HEAD_DIM = 256
HEAD_DIM_MULTIPLE = 8


def tensor(name: str, seen: torch.Tensor, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...]) -> None:
    """`seen` must be a contiguous CPU tensor of one of `dtypes` and of `shape` (-1: any size)."""
    have = seen.shape
    fits = have == shape or (len(have) == len(shape) and _sizes_fit(have, shape))
    if not (fits and seen.dtype in dtypes and seen.is_contiguous() and seen.is_cpu):
        raise ValueError(_tensor_message(name, seen, dtypes, shape))


def _sizes_fit(have: torch.Size, wanted: tuple[int, ...]) -> bool:
    # A generator here would cost every call a microsecond more.
    for index, size in enumerate(wanted):  # noqa: SIM110
        if size not in (-1, have[index]):
            return False
    return True


def _tensor_message(name: str, seen: torch.Tensor, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...]) -> str:
    wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    sizes = ", ".join("any" if size == -1 else str(size) for size in shape)
    layout = "" if seen.is_contiguous() else "non-contiguous "
    dtype = str(seen.dtype).removeprefix("torch.")
    return (
        f"{name} is {layout}{dtype} {list(seen.shape)} on {seen.device}, expected contiguous {wanted} [{sizes}] on cpu"
    )


def heads(num_heads: int, num_kv_heads: int, head_dim: int) -> None:
    if num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"num_heads is {num_heads}, expected a multiple of num_kv_heads {num_kv_heads}")
    if head_dim % HEAD_DIM_MULTIPLE or not HEAD_DIM_MULTIPLE <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"head_dim is {head_dim}, expected a multiple of {HEAD_DIM_MULTIPLE} up to {MAX_HEAD_DIM}")


def slab(pages: torch.Tensor, segments: segments_module.LayerSegments, block_size: int, head_dim: int) -> None:
    """`pages` must be uint8 `[num_pages, page_bytes]` and hold every segment of the layer."""
    tensor("slab", pages, (torch.uint8,), (-1, -1))
    end = segments.end_bytes(block_size, head_dim)
    if block_size < 1 or end > pages.shape[1]:
        raise ValueError(
            f"segments of block_size {block_size} and head_dim {head_dim} end at byte {end}, "
            f"expected at most page_bytes {pages.shape[1]} and a block_size of at least 1"
        )
