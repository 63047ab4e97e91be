"""A step's q, k and v to be turned and written into shuffled pages, and everything that must stay as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import kernel_case
import torch

from tidemark_kernels import reference
from tidemark_kernels import segments as segments_module
from tidemark_kernels.device import kv_write, layout

CPU = torch.device("cpu")
POISON = 0xFF
"""NaN in every dtype of floats."""
FIXED = 0.02
TOLERANCES = {torch.float32: 1e-5, torch.float16: 0.003, torch.bfloat16: 0.03}
"""One rounding of the largest number."""
ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class Problem:
    num_tokens: int = 3
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    rotary_dim: int = 16
    block_size: int = 8
    k: torch.dtype | Sequence[torch.dtype] = torch.int8
    v: torch.dtype | Sequence[torch.dtype] = torch.int8
    """One for all heads, or one a head."""
    x: torch.dtype = torch.float32
    is_fixed: bool = False
    has_norms: bool = False
    has_tables: bool = False
    """Angles are picked by `positions`."""
    padding: tuple[int, ...] = ()
    """Tokens whose page is -1."""
    broken: tuple[tuple[int, int, float], ...] = ()
    """(token, head among q, k and v, what its element 3 is)."""
    places: tuple[tuple[int, int], ...] = ()
    """(page, row) of tokens; else any, all different."""
    spread: float = 1.0

    def compared(self) -> list[kernel_case.Compared]:
        """q, then the numbers and scales of every head's K and V, then every byte that was not to be written."""
        made = Made(self)
        before = made.slab.clone()
        q = made.run()
        wanted_slab = before.clone()
        wanted = made.reference(wanted_slab)
        kept = made.page >= 0
        found = [kernel_case.Compared(q[kept], wanted, TOLERANCES[self.x])]
        for head in range(self.num_kv_heads):
            for kind in ("k", "v"):
                found += made.written(head, kind, wanted_slab)
        untouched = ~made.touched()
        return [*found, kernel_case.Compared(made.slab[untouched], before[untouched], 0.0)]


class Made:
    def __init__(self, asked: Problem) -> None:
        self.asked = asked
        generator = torch.Generator().manual_seed(asked.num_tokens + asked.head_dim)
        self.segments, page_bytes = _segments(asked)
        num_pages = asked.num_tokens // asked.block_size + 3
        self.slab = torch.full((num_pages, page_bytes), POISON, dtype=torch.uint8)
        places = torch.randperm(num_pages * asked.block_size, generator=generator)[: asked.num_tokens]
        self.page, self.row = (places // asked.block_size).int(), (places % asked.block_size).int()
        for token, place in enumerate(asked.places):
            self.page[token], self.row[token] = place
        self.page[list(asked.padding)] = -1
        shape = (asked.num_tokens, asked.num_heads + 2 * asked.num_kv_heads, asked.head_dim)
        qkv = torch.randn(shape, generator=generator) * asked.spread ** torch.randn(shape, generator=generator)
        for token, head, number in asked.broken:
            qkv[token, head, 3] = number
        self.qkv = qkv.flatten(1).to(asked.x)
        self.positions = torch.randperm(4 * asked.num_tokens + 1, generator=generator)[: asked.num_tokens]
        frequencies = 100.0 ** -(torch.arange(asked.rotary_dim // 2) / max(1, asked.rotary_dim // 2))
        self.angles = torch.arange(4 * asked.num_tokens + 1)[:, None] * frequencies
        norms = torch.rand(2, asked.head_dim, generator=generator) + 0.5
        self.norms = (norms[0], norms[1]) if asked.has_norms else (None, None)

    def run(self, **changes: object) -> torch.Tensor:
        asked = self.asked
        angles = self.angles if asked.has_tables else self.angles[self.positions]
        arguments = {
            "qkv": self.qkv,
            "cos": angles.cos(),
            "sin": angles.sin(),
            "num_heads": asked.num_heads,
            "num_kv_heads": asked.num_kv_heads,
            "head_dim": asked.head_dim,
            "rotary_dim": asked.rotary_dim,
            "q_norm": self.norms[0],
            "k_norm": self.norms[1],
            "eps": 1e-6,
            "slab": self.slab,
            "segments": layout.DeviceSegments.of(self.segments, CPU),
            "token_page": self.page,
            "token_row": self.row,
            "block_size": asked.block_size,
            "positions": self.positions if asked.has_tables else None,
            "out": torch.full((asked.num_tokens, asked.num_heads, asked.head_dim), torch.nan, dtype=asked.x),
        }
        return kv_write.rope_and_write(**arguments | changes)  # type: ignore[arg-type]

    def reference(self, slab: torch.Tensor) -> torch.Tensor:
        asked, kept = self.asked, self.page >= 0
        angles = self.angles[self.positions][kept]
        shape = (asked.num_heads, asked.num_kv_heads, asked.head_dim, asked.rotary_dim)
        return reference.rope_and_write(
            *(self.qkv[kept], angles.cos(), angles.sin(), *shape, *self.norms, 1e-6, slab, self.segments),
            *(self.page[kept], self.row[kept], torch.float64),
        )

    def written(self, head: int, kind: str, wanted_slab: torch.Tensor) -> list[kernel_case.Compared]:
        """V is rounded from what was given: equal bits. K may be one code, or one rounding, beside."""
        where = tuple(part[self.page >= 0].long() for part in (self.page, self.row))
        shape = (head, kind, self.asked.block_size, self.asked.head_dim)
        (rows, scales), (wanted, wanted_scales) = (
            reference.head_views(slab, self.segments, *shape) for slab in (self.slab, wanted_slab)
        )
        got, expected = (
            _in_order(part[where]) if scales is not None else part[where].double() for part in (rows, wanted)
        )
        codes_apart = 1.01 / max(float(expected.square().mean().sqrt()), 1.0) if expected.numel() else 0.0
        tolerance = 0.0 if kind == "v" else codes_apart if scales is not None else TOLERANCES[rows.dtype]
        found = [kernel_case.Compared(got, expected, tolerance)]
        if scales is not None and wanted_scales is not None:
            found.append(kernel_case.Compared(scales[where], wanted_scales[where], 0.0 if kind == "v" else 1e-6))
        return found

    def touched(self) -> torch.Tensor:
        """Of every byte of the slab, whether a token of the step is there."""
        asked, mask = self.asked, torch.zeros_like(self.slab)
        where = tuple(part[self.page >= 0].long() for part in (self.page, self.row))
        for head in range(asked.num_kv_heads):
            for kind in ("k", "v"):
                rows, scales = reference.head_views(mask, self.segments, head, kind, asked.block_size, asked.head_dim)
                rows.view(torch.uint8)[where] = 1
                at = int((self.segments.k_scales if kind == "k" else self.segments.v_scales)[head])
                if scales is not None and at >= 0:
                    scales.view(torch.uint8).view(len(mask), asked.block_size, 4)[where] = 1
        return mask.bool()


def _in_order(codes: torch.Tensor) -> torch.Tensor:
    """Codes of 8 bits as whole numbers in the order of what they stand for; both zeros are one."""
    if codes.dtype == torch.int8:
        return codes.double()
    bits = codes.contiguous().view(torch.uint8).double()
    return torch.where(bits >= 128, 128 - bits, bits)


def _segments(asked: Problem) -> tuple[segments_module.LayerSegments, int]:
    """Segments and their scales one after the other, each at a multiple of 64 bytes; and the bytes of a page."""
    names = [[asked.k] * asked.num_kv_heads if isinstance(asked.k, torch.dtype) else list(asked.k)]
    names += [[asked.v] * asked.num_kv_heads if isinstance(asked.v, torch.dtype) else list(asked.v)]
    offsets, scales, fixed = ([[], []] for _ in range(3))  # type: list[list[int]], list[list[int]], list[list[float]]
    end = ALIGNMENT  # another layer's
    for head in range(asked.num_kv_heads):
        for kind in (0, 1):
            dtype = names[kind][head]
            offsets[kind].append(end)
            end += asked.block_size * asked.head_dim * dtype.itemsize
            is_quantized = dtype.itemsize == 1
            scales[kind].append(end if is_quantized and not asked.is_fixed else segments_module.NO_SCALES)
            fixed[kind].append(FIXED * (1 + head) if is_quantized and asked.is_fixed else 0.0)
            end = -(-(end + 4 * asked.block_size) // ALIGNMENT) * ALIGNMENT
    layer = segments_module.LayerSegments.from_offsets(*offsets, *names, *scales, *fixed)
    return layer, end + ALIGNMENT
