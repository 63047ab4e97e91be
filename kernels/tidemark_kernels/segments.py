"""Where in a page one layer's K and V lie, in the form kernels read."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from tidemark_kernels.cpu import library

DTYPE_CODES: dict[torch.dtype, int] = {
    torch.float32: 0,
    torch.float16: 1,
    torch.bfloat16: 2,
    torch.int8: 3,
    torch.float8_e4m3fn: 4,
    torch.float8_e5m2: 5,
}
"""The codes of `DTYPE_*` in simd.h."""
CODE_DTYPES: dict[int, torch.dtype] = {code: dtype for dtype, code in DTYPE_CODES.items()}

LARGEST: dict[int, float] = {3: 127.0, 4: 448.0, 5: 57344.0}
"""Code of a quantized dtype -> the number that a row's largest element becomes."""

SCALE_BYTES = 4
NO_SCALES = -1
"""The scale offset of a segment whose dtype needs none."""

ALIGNMENT_BYTES = 4


@dataclass(frozen=True)
class LayerSegments:
    """One layer: per KV head the byte offset in a page and the dtype code of its K and its V segment.

    A segment is `[block_size, head_dim]`; a quantized one has float32 scales `[block_size]` elsewhere in the page: a
    row's numbers are its elements times its scale. Offsets are int64 `[num_kv_heads]`, dtypes int32 `[num_kv_heads]`.
    """

    k_offsets: torch.Tensor
    v_offsets: torch.Tensor
    k_dtypes: torch.Tensor
    v_dtypes: torch.Tensor
    k_scales: torch.Tensor
    """Byte offsets of the scales, -1 where the dtype needs none."""
    v_scales: torch.Tensor

    @staticmethod
    def from_offsets(
        k_offsets: Sequence[int],
        v_offsets: Sequence[int],
        k_dtypes: Sequence[torch.dtype] | torch.dtype,
        v_dtypes: Sequence[torch.dtype] | torch.dtype,
        k_scales: Sequence[int] | None = None,
        v_scales: Sequence[int] | None = None,
    ) -> LayerSegments:
        """From offsets in bytes and dtypes, one a head or one for all. Scales: None where no segment is quantized.

        Raises `ValueError` for a dtype without a code, lists of unequal length, an offset not a multiple of 4, or a
        quantized segment without scales (no scale is ever assumed).
        """
        heads = len(k_offsets)
        k_scales = [NO_SCALES] * heads if k_scales is None else k_scales
        v_scales = [NO_SCALES] * heads if v_scales is None else v_scales
        k_names = [k_dtypes] * heads if isinstance(k_dtypes, torch.dtype) else list(k_dtypes)
        v_names = [v_dtypes] * heads if isinstance(v_dtypes, torch.dtype) else list(v_dtypes)
        lists = (k_offsets, v_offsets, k_names, v_names, k_scales, v_scales)
        if heads == 0 or {len(item) for item in lists} != {heads}:
            seen = tuple(len(item) for item in lists)
            raise ValueError(
                f"k_offsets, v_offsets, k_dtypes, v_dtypes, k_scales, v_scales have lengths {seen}, "
                "expected one entry a head"
            )
        for dtype in (*k_names, *v_names):
            if dtype not in DTYPE_CODES:
                known = ", ".join(str(name) for name in DTYPE_CODES)
                raise ValueError(f"KV dtype {dtype} has no kernel, expected one of {known}")
        for offset in (*k_offsets, *v_offsets):
            if offset < 0 or offset % ALIGNMENT_BYTES:
                raise ValueError(f"segment offset {offset}, expected a multiple of {ALIGNMENT_BYTES} bytes from 0")
        for dtype, offset in zip((*k_names, *v_names), (*k_scales, *v_scales), strict=True):
            _check_scales(dtype, offset)
        return LayerSegments(
            torch.tensor(k_offsets, dtype=torch.int64),
            torch.tensor(v_offsets, dtype=torch.int64),
            torch.tensor([DTYPE_CODES[name] for name in k_names], dtype=torch.int32),
            torch.tensor([DTYPE_CODES[name] for name in v_names], dtype=torch.int32),
            torch.tensor(k_scales, dtype=torch.int64),
            torch.tensor(v_scales, dtype=torch.int64),
        )

    @property
    def num_kv_heads(self) -> int:
        return len(self.k_offsets)

    def end_bytes(self, block_size: int, head_dim: int) -> int:
        """Where the last of this layer's segments and scales ends in a page."""
        ends = [offset + block_size * head_dim * item_bytes for item_bytes, offset in self._last.items()]
        return max(*ends, self._last_scales + block_size * SCALE_BYTES) if self._last_scales >= 0 else max(ends)

    def rows_in(self, page_bytes: int, head_dim: int) -> int:
        """Tokens for which every segment has room in a page of `page_bytes`: up to its scales, or the page's end."""
        rows = min((page_bytes - offset) // (head_dim * item_bytes) for item_bytes, offset in self._last.items())
        if self._last_scales < 0:
            return rows
        return min(rows, self._scales_after // head_dim, (page_bytes - self._last_scales) // SCALE_BYTES)

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
    def _last_scales(self) -> int:
        """The last scales' offset; -1 when there are none."""
        found: list[int] = [*self.k_scales.tolist(), *self.v_scales.tolist()]
        return max(found)

    @cached_property
    def _scales_after(self) -> int:
        """Bytes from a quantized segment's start to its scales, the fewest of all."""
        starts: list[int] = [*self.k_offsets.tolist(), *self.v_offsets.tolist()]
        scales: list[int] = [*self.k_scales.tolist(), *self.v_scales.tolist()]
        return min(at - start for start, at in zip(starts, scales, strict=True) if at > start)

    @cached_property
    def _structure(self) -> library.Segments:
        tensors = (self.k_offsets, self.v_offsets, self.k_dtypes, self.v_dtypes, self.k_scales, self.v_scales)
        return library.Segments(*(tensor.data_ptr() for tensor in tensors))

    @cached_property
    def handle(self) -> int:
        """Address of the C structure; valid as long as this object lives."""
        return ctypes.addressof(self._structure)


def _check_scales(dtype: torch.dtype, offset: int) -> None:
    if DTYPE_CODES[dtype] in LARGEST:
        if offset < 0 or offset % ALIGNMENT_BYTES:
            raise ValueError(
                f"a segment of {dtype} has its scales at byte {offset}, expected a multiple of {ALIGNMENT_BYTES} from 0"
            )
    elif offset != NO_SCALES:
        raise ValueError(f"a segment of {dtype} has scales at byte {offset}, expected none ({NO_SCALES})")
