"""Checks of what callers hand to ops of a device: as `checks`, with the device instead of the processor.

Shapes, dtypes and places are known to the host; contents are not looked at, that would wait for the device.
"""

from __future__ import annotations

import torch

from tidemark_kernels import segments as segments_module

FLOATS = (torch.bfloat16, torch.float16, torch.float32)
"""Dtypes of activations and weights."""
INTEGERS = (torch.int32, torch.int64)

ACCESS_BYTES = 16
"""The widest access of a lane: where rows begin at multiples of it, kernels read and write as much at a time."""


def tensor(
    name: str,
    seen: torch.Tensor,
    dtypes: tuple[torch.dtype, ...],
    shape: tuple[int, ...],
    device: torch.device | None = None,
) -> None:
    """`seen` must be a contiguous tensor of one of `dtypes` and of `shape` (-1: any size), on `device` if given."""
    fits = seen.dim() == len(shape) and all(
        wanted in (-1, have) for wanted, have in zip(shape, seen.shape, strict=True)
    )
    if fits and seen.dtype in dtypes and seen.is_contiguous() and device in (None, seen.device):
        return
    layout = "" if seen.is_contiguous() else "non-contiguous "
    wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    sizes = ", ".join("any" if size == -1 else str(size) for size in shape)
    place = "" if device is None else f" on {device}"
    raise ValueError(
        f"{name} is {layout}{str(seen.dtype).removeprefix('torch.')} {list(seen.shape)} on {seen.device}, "
        f"expected contiguous {wanted} [{sizes}]{place}"
    )


def pages(slab: torch.Tensor, device: torch.device | None = None) -> None:
    """`slab` must be uint8 `[num_pages, page_bytes]`, every page at a multiple of 16 bytes."""
    tensor("slab", slab, (torch.uint8,), (-1, -1), device)
    if slab.shape[1] % ACCESS_BYTES or slab.data_ptr() % ACCESS_BYTES:
        raise ValueError(
            f"slab begins at address {slab.data_ptr():#x} and has pages of {slab.shape[1]} bytes, "
            f"expected multiples of {ACCESS_BYTES}"
        )


def segments_in_pages(segments: segments_module.LayerSegments) -> None:
    """Every segment must begin at a multiple of 16 bytes in a page."""
    if segments.alignment_bytes % ACCESS_BYTES:
        raise ValueError(
            f"segments begin at multiples of {segments.alignment_bytes} bytes in a page, expected of {ACCESS_BYTES}"
        )
