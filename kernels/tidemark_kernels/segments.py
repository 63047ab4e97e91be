"""Where in a page one layer's K and V lie, in the form kernels read."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from tidemark_kernels import dispatch
from tidemark_kernels.cpu import library

DTYPE_CODES: dict[torch.dtype, int] = {
    torch.float32: 0,
    torch.float16: 1,
    torch.bfloat16: 2,
    torch.int8: 3,
    torch.float8_e4m3fn: 4,
    torch.float8_e5m2: 5,
    torch.bits4x2: 6,
}
"""The codes of `DTYPE_*` in simd.h. Torch has no arithmetic for 4 bits: `bits4x2` is only their name here, and
their elements are bytes of two."""
CODE_DTYPES: dict[int, torch.dtype] = {code: dtype for dtype, code in DTYPE_CODES.items()}

LARGEST: dict[int, float] = {3: 127.0, 4: 448.0, 5: 57344.0}
"""Code of a dtype of 8 bits -> the number that a row's largest element becomes."""

INT4 = torch.bits4x2
INT4_CODE = DTYPE_CODES[INT4]
INT4_LARGEST = 15
INT4_GROUP = 32
"""Elements of a row of 4 bits that share a scale and a smallest number, both bfloat16; GROUP in quantized.h."""

SCALE_BYTES = 4
"""Of a row of 8 bits; of a group of 4 bits."""
SMALLEST_FIXED = 2.0**-100
"""A scale for all rows must not be less: what is divided by it would overflow."""
NO_SCALES = -1
"""The scale offset of a segment whose dtype needs none."""

ALIGNMENT_BYTES = 4


@dataclass(frozen=True)
class LayerSegments:
    """One layer: per KV head the byte offset in a page and the dtype code of its K and its V segment.

    A segment is `[block_size, head_dim]`; one of 8 bits has float32 scales `[block_size]` elsewhere in the page, or one
    fixed scale for all its rows: a row's numbers are its elements times its scale. One of 4 bits has
    `[block_size, groups, 2]` bfloat16, scale and smallest number of each group, elsewhere in the page. Offsets are
    int64 `[num_kv_heads]`, dtypes int32 `[num_kv_heads]`.
    """

    k_offsets: torch.Tensor
    v_offsets: torch.Tensor
    k_dtypes: torch.Tensor
    v_dtypes: torch.Tensor
    k_scales: torch.Tensor
    """Byte offsets of the scales, -1 where the dtype needs none."""
    v_scales: torch.Tensor
    k_fixed: torch.Tensor
    """Float32 `[num_kv_heads]`: the scale of all rows, 0 where there is none."""
    v_fixed: torch.Tensor

    @staticmethod
    def from_offsets(
        k_offsets: Sequence[int],
        v_offsets: Sequence[int],
        k_dtypes: Sequence[torch.dtype] | torch.dtype,
        v_dtypes: Sequence[torch.dtype] | torch.dtype,
        k_scales: Sequence[int] | None = None,
        v_scales: Sequence[int] | None = None,
        k_fixed: Sequence[float] | None = None,
        v_fixed: Sequence[float] | None = None,
    ) -> LayerSegments:
        """From offsets in bytes and dtypes, one a head or one for all. Scales: None where no segment has any in the
        page; fixed ones: None where no segment has one, else 0 where a segment has none.

        Raises `ValueError` for a dtype without a code, lists of unequal length, an offset not a multiple of 4, or a
        quantized segment without scales (no scale is ever assumed).
        """
        heads = len(k_offsets)
        k_fixed = [0.0] * heads if k_fixed is None else k_fixed
        v_fixed = [0.0] * heads if v_fixed is None else v_fixed
        k_scales = [NO_SCALES] * heads if k_scales is None else k_scales
        v_scales = [NO_SCALES] * heads if v_scales is None else v_scales
        k_names = [k_dtypes] * heads if isinstance(k_dtypes, torch.dtype) else list(k_dtypes)
        v_names = [v_dtypes] * heads if isinstance(v_dtypes, torch.dtype) else list(v_dtypes)
        lists = (k_offsets, v_offsets, k_names, v_names, k_scales, v_scales, k_fixed, v_fixed)
        if heads == 0 or {len(item) for item in lists} != {heads}:
            seen = tuple(len(item) for item in lists)
            raise ValueError(
                f"k_offsets, v_offsets, k_dtypes, v_dtypes, k_scales, v_scales, k_fixed, v_fixed have lengths {seen}, "
                "expected one entry a head"
            )
        for dtype in (*k_names, *v_names):
            if dtype not in DTYPE_CODES:
                known = ", ".join(str(name) for name in DTYPE_CODES)
                raise ValueError(f"KV dtype {dtype} has no kernel, expected one of {known}")
        for offset in (*k_offsets, *v_offsets):
            if offset < 0 or offset % ALIGNMENT_BYTES:
                raise ValueError(f"segment offset {offset}, expected a multiple of {ALIGNMENT_BYTES} bytes from 0")
        scales, fixed = (*k_scales, *v_scales), (*k_fixed, *v_fixed)
        for dtype, offset, scale in zip((*k_names, *v_names), scales, fixed, strict=True):
            _check_scales(dtype, offset, scale)
        return LayerSegments(
            torch.tensor(k_offsets, dtype=torch.int64),
            torch.tensor(v_offsets, dtype=torch.int64),
            torch.tensor([DTYPE_CODES[name] for name in k_names], dtype=torch.int32),
            torch.tensor([DTYPE_CODES[name] for name in v_names], dtype=torch.int32),
            torch.tensor(k_scales, dtype=torch.int64),
            torch.tensor(v_scales, dtype=torch.int64),
            torch.tensor(k_fixed, dtype=torch.float32),
            torch.tensor(v_fixed, dtype=torch.float32),
        )

    @property
    def num_kv_heads(self) -> int:
        return len(self.k_offsets)

    @cached_property
    def dtype_names(self) -> tuple[str, ...]:
        """The dtypes of K and V here, each once, sorted."""
        codes = {*self.k_dtypes.tolist(), *self.v_dtypes.tolist()}
        return tuple(sorted(code_name(code) for code in codes))

    def end_bytes(self, block_size: int, head_dim: int) -> int:
        """Where the last of this layer's segments and scales ends in a page."""
        ends = [at + block_size * row_bytes(code, head_dim) for code, at in self._last.items()]
        ends += [at + block_size * scale_bytes(code, head_dim) for code, at in self._last_scales.items()]
        return max(ends)

    def rows_in(self, page_bytes: int, head_dim: int) -> int:
        """Tokens for which every segment has room in a page of `page_bytes`: up to its scales, or the page's end."""
        rows = [(page_bytes - at) // row_bytes(code, head_dim) for code, at in self._last.items()]
        rows += [(page_bytes - at) // scale_bytes(code, head_dim) for code, at in self._last_scales.items()]
        rows += [gap // row_bytes(code, head_dim) for code, gap in self._scales_after.items()]
        return min(rows)

    @cached_property
    def alignment_bytes(self) -> int:
        """The largest number that divides the offsets of all segments in a page; 0 where every offset is 0."""
        return math.gcd(*(offset for _, offset, _ in self._segments))

    @cached_property
    def _last(self) -> dict[int, int]:
        """Dtype code -> offset of the last segment of it: all that a check of a page needs."""
        last: dict[int, int] = {}
        for code, offset, _ in self._segments:
            last[code] = max(last.get(code, 0), offset)
        return last

    @cached_property
    def _last_scales(self) -> dict[int, int]:
        """Dtype code -> offset of the last scales of such segments, of those that have any in the page."""
        last: dict[int, int] = {}
        for code, _, scales in self._segments:
            if scales != NO_SCALES:
                last[code] = max(last.get(code, 0), scales)
        return last

    @cached_property
    def _scales_after(self) -> dict[int, int]:
        """Dtype code -> bytes from a segment's start to its scales, the fewest of all where they come after it."""
        least: dict[int, int] = {}
        for code, offset, scales in self._segments:
            if scales > offset:
                least[code] = min(least.get(code, scales - offset), scales - offset)
        return least

    @cached_property
    def _segments(self) -> tuple[tuple[int, int, int], ...]:
        """Code, offset and offset of the scales of every segment."""
        codes: list[int] = [*self.k_dtypes.tolist(), *self.v_dtypes.tolist()]
        offsets: list[int] = [*self.k_offsets.tolist(), *self.v_offsets.tolist()]
        scales: list[int] = [*self.k_scales.tolist(), *self.v_scales.tolist()]
        return tuple(zip(codes, offsets, scales, strict=True))

    @cached_property
    def _structure(self) -> library.Segments:
        keys_and_values = (
            *(self.k_offsets, self.v_offsets, self.k_dtypes, self.v_dtypes),
            *(self.k_scales, self.v_scales, self.k_fixed, self.v_fixed),
        )
        return library.Segments(*(tensor.data_ptr() for tensor in keys_and_values))

    @cached_property
    def handle(self) -> int:
        """Address of the C structure; valid as long as this object lives."""
        return ctypes.addressof(self._structure)


def row_bytes(code: int, head_dim: int) -> int:
    """Of the elements of one row, without its scales."""
    return head_dim // 2 if code == INT4_CODE else head_dim * CODE_DTYPES[code].itemsize


def scale_bytes(code: int, head_dim: int) -> int:
    """Of what a row has in the page beside its elements, where a segment has scales there."""
    return SCALE_BYTES * -(-head_dim // INT4_GROUP) if code == INT4_CODE else SCALE_BYTES


def code_name(code: int) -> str:
    """`int8`, `fp8_e4m3`: a dtype as settings spell it."""
    return dispatch.dtype_name(CODE_DTYPES[code])


def _check_scales(dtype: torch.dtype, offset: int, fixed: float) -> None:
    code = DTYPE_CODES[dtype]
    if code in LARGEST and offset == NO_SCALES and fixed != 0.0:
        if not SMALLEST_FIXED <= fixed < math.inf:
            raise ValueError(f"a segment of {dtype} has the fixed scale {fixed}, expected a number from 2^-100 on")
        return
    if fixed != 0.0:
        raise ValueError(f"a segment of {dtype} has the fixed scale {fixed}, expected none beside its own or its dtype")
    if code in LARGEST or code == INT4_CODE:
        if offset < 0 or offset % ALIGNMENT_BYTES:
            raise ValueError(
                f"a segment of {dtype} has its scales at byte {offset}, expected a multiple of {ALIGNMENT_BYTES} from 0"
            )
    elif offset != NO_SCALES:
        raise ValueError(f"a segment of {dtype} has scales at byte {offset}, expected none ({NO_SCALES})")
