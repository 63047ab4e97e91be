"""Weights of 16 bits in panels (`PackedHalf`): held as the checkpoint has them, multiplied and summed in float32.

For processors whose own 16-bit products are slow or missing: half the bytes of float32 panels, the same numbers.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

import torch

from tidemark_kernels import dispatch, grouped
from tidemark_kernels.cpu import library

KINDS = {torch.bfloat16: 16, torch.float16: 17}
"""dtype -> kind, as in `cpu/panels.h`."""


@dataclass(frozen=True, eq=False)
class PackedHalf:
    """A `[num_outputs, num_inputs]` matrix: `data` is `[panels, num_inputs / 2, panel_width, 2]`, of 16 bits."""

    data: torch.Tensor
    num_outputs: int
    num_inputs: int
    panel_width: int

    @staticmethod
    def supports(weight: torch.Tensor) -> bool:
        """Whether `pack` takes it. The kernel has no infinities of float16."""
        if weight.dtype not in KINDS or weight.dim() != 2 or 0 in weight.shape or weight.shape[1] % 2:
            return False
        return weight.dtype is torch.bfloat16 or bool(weight.isfinite().all())

    @staticmethod
    def pack(weight: torch.Tensor, panel_width: int | None = None) -> PackedHalf:
        """Packs a `[N, K]` matrix that `supports` says yes to; otherwise raises `ValueError`."""
        if not PackedHalf.supports(weight):
            raise ValueError(
                f"weight is {weight.dtype} {list(weight.shape)}, expected finite bfloat16 or float16 "
                "[num_outputs, num_inputs], num_inputs even"
            )
        num_outputs, num_inputs = weight.shape
        width = panel_width or dispatch.current().panel_width
        panels = -(-num_outputs // width)
        padded = grouped.pad_rows(weight, panels * width)
        data = padded.view(panels, width, num_inputs // 2, 2).transpose(1, 2).contiguous()
        return PackedHalf(data, num_outputs, num_inputs, width)

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_outputs, self.num_inputs

    @property
    def num_bytes(self) -> int:
        return self.data.numel() * 2

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    @cached_property
    def _structure(self) -> library.Weight:
        block_bytes = self.num_inputs * self.panel_width * 2
        kind = KINDS[self.data.dtype]
        return library.Weight(
            self.data.data_ptr(), self.num_outputs, self.num_inputs, self.num_inputs, block_bytes, kind, 0, 0
        )

    @cached_property
    def handle(self) -> int:
        """Address of the C structure; valid as long as this object lives."""
        return ctypes.addressof(self._structure)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows `ids` (int64 `[T]`): float32 `[T, num_inputs]`. `ValueError` for an id out of range."""
        return grouped.rows_of("half_rows", self, ids, lambda some: self.dense(some).float())

    def dense(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """The matrix again, or its rows `ids`, in its own dtype, in plain torch."""
        ids = torch.arange(self.num_outputs) if ids is None else ids
        return self.data[ids // self.panel_width, :, ids % self.panel_width].flatten(1)
