"""Forms of `jit.pages`: words a program takes, and warps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark_kernels.jit import pages as jit
from tidemark_kernels.tuning import variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """For pages up to `page_words` words of 4 bytes (0: any)."""

    page_words: int
    block: int
    num_warps: int
    basis: str


ROWS = (
    Row(page_words=4096, block=512, num_warps=4, basis="predicted: one access of 16 bytes a lane; small models' pages"),
    Row(
        page_words=0, block=2048, num_warps=4, basis="predicted: four accesses in flight a lane; 256 programs for 2 MiB"
    ),
)


def row(page_words: int) -> Row:
    return next(row for row in ROWS if page_words <= row.page_words or not row.page_words)


def variants() -> tuple[variant.Variant, ...]:
    """Copies within the slab, out of it and into it, for both sizes of pages."""
    return tuple(_variant(row, lists) for row in ROWS for lists in _LISTS)


_LISTS = {"copy": ("source_pages", "target_pages"), "gather": ("source_pages",), "scatter": ("target_pages",)}
"""Op -> the lists of pages it has."""


def _variant(row: Row, op: str) -> variant.Variant:
    lists = _LISTS[op]
    pointers = {"source": "*i32", "target": "*i32"} | dict.fromkeys(lists, "*i32")
    sizes = {"num_sources": "i32", "num_targets": "i32", "page_words": "i32"}
    missing: dict[str, Any] = {name: None for name in _LISTS["copy"] if name not in lists}
    return variant.Variant(
        name=f"{op}_pages[{row.block} words]",
        function=jit.move_pages,
        signature=pointers | sizes,
        constants=missing | {"BLOCK": row.block},
        aligned=(*pointers, "page_words"),
        num_warps=row.num_warps,
        is_hot=False,
    )
