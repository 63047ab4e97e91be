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
    layer(segments, segments.num_kv_heads, pages.shape[1], block_size, head_dim)


def rotary(rotary_dim: int, head_dim: int) -> None:
    if rotary_dim % 2 or not 0 <= rotary_dim <= head_dim:
        raise ValueError(f"rotary_dim is {rotary_dim}, expected an even number up to head_dim {head_dim}")


def kv_heads(num_kv_heads: int, segments: segments_module.LayerSegments) -> None:
    if num_kv_heads != segments.num_kv_heads:
        raise ValueError(f"num_kv_heads is {num_kv_heads}, expected {segments.num_kv_heads} as in segments")


def limits(window: int | None, softcap: float | None) -> None:
    if (window is not None and window < 0) or (softcap is not None and not softcap >= 0):
        raise ValueError(f"window is {window} and softcap {softcap}, expected more than 0, or None")


def layer(
    segments: segments_module.LayerSegments, num_kv_heads: int, page_bytes: int, block_size: int, head_dim: int
) -> None:
    """The segments must be of `num_kv_heads` heads and lie in a page of `page_bytes`."""
    kv_heads(num_kv_heads, segments)
    end = segments.end_bytes(block_size, head_dim)
    if block_size < 1 or end > page_bytes:
        raise ValueError(
            f"segments of block_size {block_size} and head_dim {head_dim} end at byte {end}, "
            f"expected at most page_bytes {page_bytes} and a block_size of at least 1"
        )


# ------------------------------------------------- contents; read only after a kernel has refused them


def places(token_page: torch.Tensor, token_row: torch.Tensor, num_pages: int, num_rows: int) -> None:
    for name, places, limit in (("token_page", token_page, num_pages), ("token_row", token_row, num_rows)):
        bad = ((places < 0) | (places >= limit)).nonzero()
        if len(bad):
            token = int(bad[0])
            raise ValueError(f"{name}[{token}] is {int(places[token])}, expected 0 to {limit - 1}")


def chunks(
    num_tokens: int,
    num_pages: int,
    page_table: torch.Tensor,
    query_start: torch.Tensor,
    context_lens: torch.Tensor,
    block_size: int,
    window: int | None,
) -> None:
    starts = query_start.tolist()
    if starts[0] != 0 or starts[-1] != num_tokens:
        raise ValueError(f"query_start goes from {starts[0]} to {starts[-1]}, expected 0 to {num_tokens} tokens of q")
    for chunk, context in enumerate(context_lens.tolist()):
        count = starts[chunk + 1] - starts[chunk]
        if count < 0 or context < count:
            raise ValueError(
                f"chunk {chunk} has {count} queries and context_lens {context}, expected 0 <= queries <= context"
            )
        pages = -(-context // block_size)
        if pages > page_table.shape[1]:
            raise ValueError(
                f"chunk {chunk} needs {pages} pages, expected at most {page_table.shape[1]} as in page_table"
            )
        first = 0 if window is None else max(0, context - count - window + 1) // block_size
        used = page_table[chunk, first:pages]
        bad = used[(used < 0) | (used >= num_pages)]
        if len(bad):
            raise ValueError(f"page_table[{chunk}] names page {int(bad[0])}, expected 0 to {num_pages - 1}")
