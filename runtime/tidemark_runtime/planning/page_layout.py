"""What a token costs in KV memory, and where in a page each part of it lies.

The only place that knows. Planner, block pool, kernels, metrics and the operator all ask here.

A page holds `block_size` tokens of *all* layers, contiguously:

    page ── layer 0 ── head 0 ── K segment [block_size, head_dim] ── V segment [block_size, head_dim]
         │          └─ head 1 ── K ── V
         └─ layer 1 ...

Each segment has a dtype of its own, so that mixed precision changes offsets, not the architecture. The scales of a
quantized one follow its elements: whatever moves a page moves both. A token of 8 bits has a float32, unless the scales
of all heads are fixed: those lie beside the slab and cost no bytes a token. A token of 4 bits has a scale and a
smallest number for every 32 elements, both bfloat16: they are always in the page.

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
    item_bits: int
    scaled: bool = False
    """Each token of a head has a scale beside its elements, unless scales are fixed."""
    group: int | None = None
    """Elements of a token that share a scale; None: all of a head."""
    largest: float | None = None
    """Of those with one scale a token: the number that the largest element becomes; scale = largest magnitude / it."""
    lossy: bool = False
    """Loses so much that nobody gets it who has not asked for it by name (`kvCache.allowLossy`)."""

    def row_bytes(self, head_dim: int) -> int:
        """The elements of one token of a head."""
        return head_dim * self.item_bits // 8

    def scale_bytes(self, head_dim: int) -> int:
        """What one token of a head has beside its elements where its scales are in the page."""
        if not self.scaled:
            return 0
        return SCALE_BYTES if self.group is None else SCALE_BYTES * -(-head_dim // self.group)


KV_DTYPES: dict[str, KVDtype] = {
    dtype.name: dtype
    for dtype in (
        KVDtype("float32", 32),
        KVDtype("float16", 16),
        KVDtype("bfloat16", 16),
        KVDtype("fp8_e4m3", 8, scaled=True, largest=448.0),
        KVDtype("fp8_e5m2", 8, scaled=True, largest=57344.0),
        KVDtype("int8", 8, scaled=True, largest=127.0),
        KVDtype("int4", 4, scaled=True, group=32, lossy=True),
    )
}

SCALE_BYTES = 4
"""Of a token of 8 bits, a float32; of a group of 4 bits, two bfloat16."""


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
    """Where the scales of `block_size` tokens begin; None where there are none in the page."""

    @property
    def needs_fixed_scale(self) -> bool:
        return self.dtype.scaled and self.scales_offset_bytes is None


@dataclass(frozen=True)
class PageLayout:
    """Offsets and bytes of every segment of a page.

    `precision` names the segments that differ from `dtype`: (layer, head, kind) -> dtype name. `fixed_scales`: segments
    of 8 bits have their scale somewhere else, the same for all tokens.
    """

    shape: KVShape
    block_size: int
    dtype: str
    precision: Mapping[tuple[int, int, Kind], str] = field(default_factory=dict)
    fixed_scales: bool = False

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
            for name in self._dtype_names
            if name not in KV_DTYPES
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
        packed = [name for name in self._dtype_names if name in KV_DTYPES and KV_DTYPES[name].item_bits < 8]
        if packed and self.shape.head_dim % 2:
            remedy = f"{packed[0]} keeps two elements in a byte. Choose a dtype of 8 bits or more"
            problems.append(errors.Problem("shape.head_dim", self.shape.head_dim, "an even number", remedy))
        if problems:
            raise errors.ConfigError(problems)

    @property
    def _dtype_names(self) -> list[str]:
        return sorted({self.dtype, *self.precision.values()})

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in the order in which they lie: layer, then head, then K before V."""
        found: list[Segment] = []
        offset = 0
        for layer in range(self.shape.num_layers):
            for head in range(self.shape.num_kv_heads):
                for kind in KINDS:
                    dtype = KV_DTYPES[self.precision.get((layer, head, kind), self.dtype)]
                    size, scales = self.block_size * dtype.row_bytes(self.shape.head_dim), None
                    if dtype.scaled and not (self.fixed_scales and dtype.group is None):
                        scales = offset + _aligned(size, SCALE_BYTES)
                        size = scales - offset + self.block_size * dtype.scale_bytes(self.shape.head_dim)
                    found.append(Segment(layer, head, kind, dtype, offset, size, scales))
                    offset += _aligned(size)
        return tuple(found)

    def segment(self, layer: int, head: int, kind: Kind) -> Segment:
        return self.segments[(layer * self.shape.num_kv_heads + head) * 2 + KINDS.index(kind)]

    @cached_property
    def page_bytes(self) -> int:
        last = self.segments[-1]
        return last.offset_bytes + _aligned(last.size_bytes)

    @cached_property
    def page_bytes_by_dtype(self) -> dict[str, int]:
        """How the bytes of a page are shared by its segments' dtypes, alignment included; they sum to `page_bytes`."""
        found: dict[str, int] = {}
        for segment in self.segments:
            found[segment.dtype.name] = found.get(segment.dtype.name, 0) + _aligned(segment.size_bytes)
        return found

    @property
    def token_bytes(self) -> float:
        """What one token costs when its page is full; includes alignment."""
        return self.page_bytes / self.block_size

    def pages_for(self, num_tokens: int) -> int:
        """Pages that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)


def _aligned(size_bytes: int, to: int = ALIGNMENT_BYTES) -> int:
    return -(-size_bytes // to) * to
