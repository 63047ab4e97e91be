"""Where in a page one layer's K and V lie, in the form kernels read."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from tidemark_kernels.cpu import library

DTYPE_CODES: dict[torch.dtype, int] = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""The codes of `DTYPE_*` in simd.h."""
CODE_DTYPES: dict[int, torch.dtype] = {code: dtype for dtype, code in DTYPE_CODES.items()}

ALIGNMENT_BYTES = 4


@dataclass(frozen=True)
class LayerSegments:
    """One layer: per KV head the byte offset in a page and the dtype code of its K and its V segment.

    A segment is `[block_size, head_dim]`. Offsets are int64 `[num_kv_heads]`, dtypes int32 `[num_kv_heads]`.
    """

    k_offsets: torch.Tensor
    v_offsets: torch.Tensor
    k_dtypes: torch.Tensor
    v_dtypes: torch.Tensor

    @staticmethod
    def from_offsets(
        k_offsets: Sequence[int],
        v_offsets: Sequence[int],
        k_dtypes: Sequence[torch.dtype] | torch.dtype,
        v_dtypes: Sequence[torch.dtype] | torch.dtype,
    ) -> LayerSegments:
        """From offsets in bytes and dtypes, one a head or one for all.

        Raises `ValueError` for a dtype without a code, lists of unequal length, or an offset not a multiple of 4.
        """
        heads = len(k_offsets)
        k_names = [k_dtypes] * heads if isinstance(k_dtypes, torch.dtype) else list(k_dtypes)
        v_names = [v_dtypes] * heads if isinstance(v_dtypes, torch.dtype) else list(v_dtypes)
        if heads == 0 or {len(v_offsets), len(k_names), len(v_names)} != {heads}:
            seen = (heads, len(v_offsets), len(k_names), len(v_names))
            raise ValueError(f"k_offsets, v_offsets, k_dtypes, v_dtypes have lengths {seen}, expected one entry a head")
        for dtype in (*k_names, *v_names):
            if dtype not in DTYPE_CODES:
                known = ", ".join(str(name) for name in DTYPE_CODES)
                raise ValueError(f"KV dtype {dtype} has no kernel, expected one of {known}")
        for offset in (*k_offsets, *v_offsets):
            if offset < 0 or offset % ALIGNMENT_BYTES:
                raise ValueError(f"segment offset {offset}, expected a multiple of {ALIGNMENT_BYTES} bytes from 0")
        return LayerSegments(
            torch.tensor(k_offsets, dtype=torch.int64),
            torch.tensor(v_offsets, dtype=torch.int64),
            torch.tensor([DTYPE_CODES[name] for name in k_names], dtype=torch.int32),
            torch.tensor([DTYPE_CODES[name] for name in v_names], dtype=torch.int32),
        )

    @property
    def num_kv_heads(self) -> int:
        return len(self.k_offsets)

    def end_bytes(self, block_size: int, head_dim: int) -> int:
        """Where the last of this layer's segments ends in a page."""
        return max(offset + block_size * head_dim * item_bytes for item_bytes, offset in self._last.items())

    def rows_in(self, page_bytes: int, head_dim: int) -> int:
        """Tokens for which a page of `page_bytes` has room after the last segment's start."""
        return min((page_bytes - offset) // (head_dim * item_bytes) for item_bytes, offset in self._last.items())

    @cached_property
    def _last(self) -> dict[int, int]:
        """Bytes of an element -> offset of the last segment with such elements: all that a check of a page needs."""
        offsets = [*self.k_offsets.tolist(), *self.v_offsets.tolist()]
        codes = [*self.k_dtypes.tolist(), *self.v_dtypes.tolist()]
        last: dict[int, int] = {}
        for offset, code in zip(offsets, codes, strict=True):
            item_bytes = CODE_DTYPES[code].itemsize
            last[item_bytes] = max(last.get(item_bytes, 0), offset)
        return last

    @cached_property
    def _structure(self) -> library.Segments:
        tensors = (self.k_offsets, self.v_offsets, self.k_dtypes, self.v_dtypes)
        return library.Segments(*(tensor.data_ptr() for tensor in tensors))

    @cached_property
    def handle(self) -> int:
        """Address of the C structure; valid as long as this object lives."""
        return ctypes.addressof(self._structure)
