"""Weights in panels: 4 or 8 bits in groups (`GroupedWeight`), or float32 (`PackedDense`); `halves` has 16 bits.

A panel holds `panel_width` outputs side by side; `cpu/panels.h` tells the layout. Both are packed once, while loading,
and read by `ops.grouped_linear` and `ops.dense_linear_f32`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from tidemark_kernels import dispatch
from tidemark_kernels.cpu import library

GROUP_MULTIPLE = 16
E4M3_KIND = 9
"""`E4M3` of `cpu/panels.h`; whole numbers have their bits as kind."""
OFFSET_NONE, OFFSET_MIN, OFFSET_ZERO = 0, 1, 2
"""As in `cpu/panels.h`."""
LARGEST_E4M3_SCALE = 2.0**7
"""The kernel multiplies such a scale with 2^120: a larger one would be infinite."""
_ROWS_DTYPE = ("float32",)
"""Of dequantized rows."""


@dataclass(frozen=True, eq=False)
class GroupedWeight:
    """A `[num_outputs, num_inputs]` matrix: `w = q * scale + min`, one scale and min per output and group of inputs.

    q is a whole number of 4 or 8 bits, or an 8-bit float (E4M3). In place of the min there may be a zero, a whole
    number: `w = (q - zero) * scale`, which is exact where scales are float16.
    Memory: `bits / 8` bytes a weight, plus 2 (or 4) bytes for each scale and each min or zero.
    """

    data: torch.Tensor
    """uint8 `[panels, groups, block_bytes]`."""
    num_outputs: int
    num_inputs: int
    bits: int
    group_size: int
    offset: int
    """OFFSET_NONE, OFFSET_MIN or OFFSET_ZERO: what is beside a scale."""
    half_scales: bool
    """Scales and mins are kept as float16, which holds them exactly."""
    panel_width: int
    is_float: bool = False
    """q is E4M3, not a whole number."""

    @staticmethod
    def pack(
        quants: torch.Tensor,
        scales: torch.Tensor,
        mins: torch.Tensor | None,
        bits: int,
        group_size: int,
        panel_width: int | None = None,
        zeros: torch.Tensor | None = None,
    ) -> GroupedWeight:
        """Packs `quants` `[N, K]` (uint8 0..15 for 4 bits; int8, or float8_e4m3fn, for 8).

        `scales`, `mins` or `zeros` are float32 `[N, K / group_size]`.
        Raises `ValueError` naming what does not fit.
        """
        _check_parts(quants, {"scales": scales, "mins": mins, "zeros": zeros}, bits, group_size)
        num_outputs, num_inputs = quants.shape
        width = panel_width or dispatch.current().panel_width
        beside = [part for part in (scales, mins, zeros) if part is not None]
        half = all(_is_half(part) for part in beside)
        groups, panels = num_inputs // group_size, -(-num_outputs // width)
        blocks = [_lanes(part, panels, width, half) for part in beside]
        codes = pad_rows(quants.view(torch.uint8), panels * width)
        if bits == 4:
            pairs = codes.view(panels, width, groups, group_size // 8, 4, 2)
            words = pairs[..., 0] | (pairs[..., 1] << 4)
        else:
            words = codes.view(panels, width, groups, group_size // 4, 4)
        blocks.append(words.permute(0, 2, 3, 1, 4).reshape(panels, groups, -1))
        data = torch.cat(blocks, dim=2)
        offset = OFFSET_MIN if mins is not None else OFFSET_NONE if zeros is None else OFFSET_ZERO
        is_float = quants.dtype == torch.float8_e4m3fn
        return GroupedWeight(data, num_outputs, num_inputs, bits, group_size, offset, half, width, is_float)

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_outputs, self.num_inputs

    @property
    def num_bytes(self) -> int:
        return self.data.numel()

    @cached_property
    def part_size(self) -> int:
        """Inputs that share a scale where activations are rounded to 8 bits; as `step_of` in `cpu/linear_int8.c`."""
        return 32 if self.group_size % 32 == 0 else 16

    @cached_property
    def int8_room_floats(self) -> int:
        """Float32's a token that `tm_linear_int8` needs beside its result: codes of one byte, and two floats a part."""
        return self.num_inputs // 4 + 2 * (self.num_inputs // self.part_size)

    @cached_property
    def _structure(self) -> library.Weight:
        return library.Weight(
            self.data.data_ptr(),
            self.num_outputs,
            self.num_inputs,
            self.group_size,
            self.data.shape[2],
            E4M3_KIND if self.is_float else self.bits,
            self.offset,
            self.half_scales,
        )

    @cached_property
    def handle(self) -> int:
        """Address of the C structure; valid as long as this object lives."""
        return ctypes.addressof(self._structure)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows `ids` (int64 `[T]`), dequantized: float32 `[T, num_inputs]`. `ValueError` for an id out of range."""
        return rows_of("grouped_rows", self, ids, self.dequantize)

    def dequantize(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """All rows, or rows `ids`, as float32, in plain torch: the reference of what the packed bytes mean."""
        ids = torch.arange(self.num_outputs) if ids is None else ids
        panel, lane = ids // self.panel_width, ids % self.panel_width
        item = 2 if self.half_scales else 4
        dtype = torch.float16 if self.half_scales else torch.float32
        num_parts = 1 if self.offset == OFFSET_NONE else 2
        split = self.panel_width * item * num_parts
        groups = self.data.shape[1]
        # Rows first, then only their panels' bytes: advanced indices on both sides of a slice come out in front.
        parts = self.data[:, :, :split].reshape(-1, groups, num_parts, self.panel_width, item)
        affine = parts[panel, :, :, lane].contiguous().view(dtype).squeeze(-1).double()
        words = self.data[:, :, split:].view(-1, groups, self.group_size * self.bits // 32, self.panel_width, 4)
        codes = words[panel, :, :, lane].reshape(len(ids), groups, -1)
        if self.bits == 4:
            values = torch.stack((codes & 15, codes >> 4), dim=-1).reshape(len(ids), groups, self.group_size).double()
        else:
            values = codes.contiguous().view(torch.float8_e4m3fn if self.is_float else torch.int8).double()
        if self.offset == OFFSET_ZERO:
            values = values - affine[:, :, 1:]
        values = values * affine[:, :, :1]
        if self.offset == OFFSET_MIN:
            values = values + affine[:, :, 1:]
        return values.float().reshape(len(ids), self.num_inputs)


@dataclass(frozen=True, eq=False)
class PackedDense:
    """A float32 `[num_outputs, num_inputs]` matrix in panels: `data` is `[panels, num_inputs, panel_width]`."""

    data: torch.Tensor
    num_outputs: int
    num_inputs: int
    panel_width: int

    @staticmethod
    def pack(weight: torch.Tensor, panel_width: int | None = None) -> PackedDense:
        """Packs a `[N, K]` matrix; it is converted to float32."""
        if weight.dim() != 2 or 0 in weight.shape:
            raise ValueError(f"weight has shape {list(weight.shape)}, expected [num_outputs, num_inputs], neither 0")
        num_outputs, num_inputs = weight.shape
        width = panel_width or dispatch.current().panel_width
        panels = -(-num_outputs // width)
        padded = pad_rows(weight.float(), panels * width)
        data = padded.view(panels, width, num_inputs).transpose(1, 2).contiguous()
        return PackedDense(data, num_outputs, num_inputs, width)

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_outputs, self.num_inputs

    @property
    def num_bytes(self) -> int:
        return self.data.numel() * 4

    @cached_property
    def _structure(self) -> library.Weight:
        block_bytes = self.num_inputs * self.panel_width * 4
        pointer = self.data.data_ptr()
        return library.Weight(pointer, self.num_outputs, self.num_inputs, self.num_inputs, block_bytes, 32, 0, 0)

    @cached_property
    def handle(self) -> int:
        """Address of the C structure; valid as long as this object lives."""
        return ctypes.addressof(self._structure)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows `ids` (int64 `[T]`): float32 `[T, num_inputs]`. `ValueError` for an id out of range."""
        _check_ids(ids, self.num_outputs)
        return self.data[ids // self.panel_width, :, ids % self.panel_width]

    def dense(self) -> torch.Tensor:
        """The matrix again: float32 `[num_outputs, num_inputs]`."""
        return self.data.transpose(1, 2).reshape(-1, self.num_inputs)[: self.num_outputs]


class _Panels(Protocol):
    """What `rows_of` reads."""

    @property
    def num_outputs(self) -> int: ...
    @property
    def num_inputs(self) -> int: ...
    @property
    def panel_width(self) -> int: ...
    @property
    def handle(self) -> int: ...


def rows_of(
    op: str, weight: _Panels, ids: torch.Tensor, reference: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Rows `ids` in float32, by the kernel or by `reference`; `op` is what says that it ran.

    `ValueError` for an id out of range.
    """
    if ids.dtype != torch.int64 or ids.dim() != 1 or not ids.is_contiguous():
        raise ValueError(f"ids are {ids.dtype} {list(ids.shape)}, expected contiguous int64 [num_tokens]")
    current = dispatch.current()
    chosen, began = current.library, current.watch.now()
    if chosen is None or chosen.panel_width != weight.panel_width:
        _check_ids(ids, weight.num_outputs)
        rows = reference(ids)
        current.count(op, dispatch.TORCH, _ROWS_DTYPE, began)
        return rows
    out = torch.empty(len(ids), weight.num_inputs)
    if chosen.rows(weight.handle, ids.data_ptr(), out.data_ptr(), len(ids), torch.get_num_threads()):
        _check_ids(ids, weight.num_outputs)
    current.count(op, dispatch.COMPILED, _ROWS_DTYPE, began)
    return out


def _check_ids(ids: torch.Tensor, num_outputs: int) -> None:
    bad = ids[(ids < 0) | (ids >= num_outputs)]
    if len(bad):
        raise ValueError(f"id {int(bad[0])} is out of range, expected 0 to {num_outputs - 1}")


def _check_parts(quants: torch.Tensor, parts: Mapping[str, torch.Tensor | None], bits: int, group_size: int) -> None:
    kinds = {4: (torch.uint8,), 8: (torch.int8, torch.float8_e4m3fn)}.get(bits)
    if kinds is None:
        raise ValueError(f"bits is {bits}, expected 4 or 8")
    if group_size < GROUP_MULTIPLE or group_size % GROUP_MULTIPLE:
        raise ValueError(f"group_size is {group_size}, expected a multiple of {GROUP_MULTIPLE}")
    if quants.dtype not in kinds or quants.dim() != 2 or 0 in quants.shape:
        wanted = " or ".join(map(str, kinds))
        raise ValueError(f"quants are {quants.dtype} {list(quants.shape)}, expected {wanted} [num_outputs, num_inputs]")
    if quants.shape[1] % group_size:
        raise ValueError(f"num_inputs is {quants.shape[1]}, expected a multiple of group_size {group_size}")
    if bits == 4 and int(quants.max()) > 15:
        raise ValueError(f"a 4-bit code is {int(quants.max())}, expected 0 to 15")
    shape = (quants.shape[0], quants.shape[1] // group_size)
    for name, part in parts.items():
        if part is not None and (part.dtype != torch.float32 or tuple(part.shape) != shape):
            raise ValueError(f"{name} are {part.dtype} {list(part.shape)}, expected torch.float32 {list(shape)}")
    if parts["mins"] is not None and parts["zeros"] is not None:
        raise ValueError("mins and zeros are given, expected one of them at most")
    scales = parts["scales"]
    if quants.dtype == torch.float8_e4m3fn and scales is not None and float(scales.max()) >= LARGEST_E4M3_SCALE:
        raise ValueError(f"a scale of E4M3 is {float(scales.max()):g}, expected less than {LARGEST_E4M3_SCALE:g}")


def _is_half(part: torch.Tensor) -> bool:
    return bool((part.half().float() == part).all())


def pad_rows(matrix: torch.Tensor, num_rows: int) -> torch.Tensor:
    """`matrix` `[N, ...]` with zeros below, to `num_rows`."""
    if len(matrix) == num_rows:
        return matrix.contiguous()
    padded = torch.zeros(num_rows, *matrix.shape[1:], dtype=matrix.dtype)
    padded[: len(matrix)] = matrix
    return padded


def _lanes(part: torch.Tensor, panels: int, width: int, half: bool) -> torch.Tensor:
    """`[N, groups]` -> bytes `[panels, groups, width * item]`."""
    padded = pad_rows(part.half() if half else part, panels * width)
    return padded.view(panels, width, -1).transpose(1, 2).contiguous().view(torch.uint8)
