"""What a token costs in KV memory, and where in a page each part of it lies.

The only place that knows. Planner, block pool, kernels, metrics and the operator all ask here.

A page holds `block_size` tokens of *all* layers, contiguously:

    page ── layer 0 ── head 0 ── K segment [block_size, head_dim] ── V segment [block_size, head_dim]
         │          └─ head 1 ── K ── V
         └─ layer 1 ...

Each segment has a dtype of its own, so that mixed precision changes offsets, not the architecture. The scales of a
quantized one, a float32 for each token, follow its elements: whatever moves a page moves both.
Segments begin at multiples of 64 bytes (a cache line, and the widest vector load), pages too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tidemark_runtime import errors

ALIGNMENT_BYTES = 64

Kind = Literal["k", "v"]
KINDS: tuple[Kind, Kind] = ("k", "v")


@dataclass(frozen=True, slots=True)
class KVDtype:
    """How one element of KV memory is kept."""

    name: str
    item_bytes: int
    scaled: bool = False
    """Each token of a head has a scale beside its elements."""


KV_DTYPES: dict[str, KVDtype] = {
    dtype.name: dtype
    for dtype in (
        KVDtype("float32", 4),
        KVDtype("float16", 2),
        KVDtype("bfloat16", 2),
        KVDtype("fp8_e4m3", 1, scaled=True),
        KVDtype("fp8_e5m2", 1, scaled=True),
        KVDtype("int8", 1, scaled=True),
    )
}

SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class KVShape:
    """The part of a model's shape that decides the size of its KV memory."""

    num_layers: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One layer and head's K or V inside a page: `[block_size, head_dim]` elements of `dtype` from `offset_bytes`."""

    layer: int
    head: int
    kind: Kind
    dtype: KVDtype
    offset_bytes: int
    size_bytes: int
    """With the scales."""
    scales_offset_bytes: int | None
    """Where float32 `[block_size]` scales begin; None for a dtype that needs none."""


@dataclass(frozen=True)
class PageLayout:
    """Offsets and bytes of every segment of a page.

    `precision` names the segments that differ from `dtype`: (layer, head, kind) -> dtype name.
    """

    shape: KVShape
    block_size: int
    dtype: str
    precision: Mapping[tuple[int, int, Kind], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [
            errors.Problem(key, seen, "a whole number of at least 1")
            for key, seen in (
                ("shape.num_layers", self.shape.num_layers),
                ("shape.num_kv_heads", self.shape.num_kv_heads),
                ("shape.head_dim", self.shape.head_dim),
                ("blockSize", self.block_size),
            )
            if seen < 1
        ]
        problems += [
            errors.Problem("kvCache.dtype", name, f"one of {', '.join(sorted(KV_DTYPES))}")
            for name in sorted({self.dtype, *self.precision.values()} - set(KV_DTYPES))
        ]
        problems += [
            errors.Problem(
                "kvCache.precision",
                key,
                f"a layer under {self.shape.num_layers}, a head under {self.shape.num_kv_heads} and k or v",
            )
            for key in self.precision
            if not (0 <= key[0] < self.shape.num_layers and 0 <= key[1] < self.shape.num_kv_heads and key[2] in KINDS)
        ]
        if problems:
            raise errors.ConfigError(problems)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in the order in which they lie: layer, then head, then K before V."""
        found: list[Segment] = []
        offset = 0
        for layer in range(self.shape.num_layers):
            for head in range(self.shape.num_kv_heads):
                for kind in KINDS:
                    dtype = KV_DTYPES[self.precision.get((layer, head, kind), self.dtype)]
                    size, scales = self.block_size * self.shape.head_dim * dtype.item_bytes, None
                    if dtype.scaled:
                        scales = offset + _aligned(size, SCALE_BYTES)
                        size = scales - offset + self.block_size * SCALE_BYTES
                    found.append(Segment(layer, head, kind, dtype, offset, size, scales))
                    offset += _aligned(size)
        return tuple(found)

    def segment(self, layer: int, head: int, kind: Kind) -> Segment:
        return self.segments[(layer * self.shape.num_kv_heads + head) * 2 + KINDS.index(kind)]

    @cached_property
    def page_bytes(self) -> int:
        last = self.segments[-1]
        return last.offset_bytes + _aligned(last.size_bytes)

    @property
    def token_bytes(self) -> float:
        """What one token costs when its page is full; includes alignment."""
        return self.page_bytes / self.block_size

    def pages_for(self, num_tokens: int) -> int:
        """Pages that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)


def _aligned(size_bytes: int, to: int = ALIGNMENT_BYTES) -> int:
    return -(-size_bytes // to) * to
