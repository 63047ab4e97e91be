"""Forms of `jit.elementwise`: columns a program takes, and warps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark_kernels.jit import elementwise as jit
from tidemark_kernels.tuning import variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`block` columns at a time, for rows up to `width`."""

    width: int
    block: int
    num_warps: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """`is_whole`: `block` columns hold a row."""

    block: int
    num_warps: int
    is_whole: bool


NORMS = (
    Row(width=256, block=256, num_warps=1, basis="predicted: 16 bytes a lane at 16 bits; one warp needs no barrier"),
    Row(width=512, block=512, num_warps=2, basis="predicted: 16 bytes a lane"),
    Row(width=1024, block=1024, num_warps=4, basis="predicted: 16 bytes a lane"),
    Row(width=2048, block=2048, num_warps=8, basis="predicted: 16 bytes a lane"),
    Row(
        width=4096, block=4096, num_warps=8, basis="predicted: two loads of 16 bytes in flight a lane, and two programs"
    ),
    Row(width=8192, block=8192, num_warps=16, basis="predicted: as above"),
    Row(width=16384, block=16384, num_warps=16, basis="predicted: 32 numbers a lane stay in registers"),
)
WIDE = Row(width=0, block=4096, num_warps=16, basis="predicted: a row beyond 16384 columns does not fit in registers")
COLUMNS = (
    Row(width=512, block=512, num_warps=2, basis="predicted: 16 bytes of each operand a lane"),
    Row(width=0, block=1024, num_warps=4, basis="predicted: 16 bytes a lane; a token of 14336 is 14 programs"),
)


def norm(width: int) -> Form:
    for row in NORMS:
        if width <= row.width:
            return Form(block=row.block, num_warps=row.num_warps, is_whole=True)
    return Form(block=WIDE.block, num_warps=WIDE.num_warps, is_whole=False)


def columns(width: int) -> Form:
    row = COLUMNS[0] if width <= COLUMNS[0].width else COLUMNS[1]
    return Form(block=row.block, num_warps=row.num_warps, is_whole=width <= row.block)


# ---------------------------------------------------------------------------------------------------------- variants

_SIZES = {"num_rows": "i32", "width": "i32"}
_OPTIONAL = ("residual", "picked")


def variants() -> tuple[variant.Variant, ...]:
    norms = [_norm(row, "bf16", ("residual",)) for row in (*NORMS, WIDE)]
    norms += [_norm(NORMS[4], dtype, ("residual",)) for dtype in ("fp16", "fp32")]
    norms += [_norm(NORMS[4], "bf16", given) for given in ((), ("picked",), ("residual", "picked"))]
    norms.append(_norm(NORMS[4], "bf16", ("residual",), is_odd=True))
    others = [_others(dtype, row) for dtype in ("bf16", "fp16", "fp32") for row in COLUMNS]
    return (*norms, *(one for pair in others for one in pair))


def _norm(row: Row, dtype: str, given: tuple[str, ...], *, is_odd: bool = False) -> variant.Variant:
    pointers = {"x": f"*{dtype}", "weight": "*fp32"}
    pointers |= {"residual": f"*{dtype}"} if "residual" in given else {}
    pointers |= {"picked": "*i64"} if "picked" in given else {}
    pointers["out"] = f"*{dtype}"
    missing: dict[str, Any] = {name: None for name in _OPTIONAL if name not in given}
    extras = "".join(f", {name}" for name in given) + (", odd width" if is_odd else "")
    kind = "norm_wide_rows" if row is WIDE else "norm_rows"
    return variant.Variant(
        name=f"{kind}[{dtype}, {row.block} columns{extras}]",
        function=jit.norm_wide_rows if row is WIDE else jit.norm_rows,
        signature=pointers | _SIZES | {"eps": "fp32"},
        constants=missing | {"BLOCK": row.block},
        aligned=tuple(pointers) if is_odd else (*pointers, "width"),
        num_warps=row.num_warps,
        is_hot=row is not WIDE,
        wide_loads=not is_odd,
    )


def _others(dtype: str, row: Row) -> tuple[variant.Variant, variant.Variant]:
    """The gated activation and the embedding."""
    gated = variant.Variant(
        name=f"silu_mul[{dtype}, {row.block} columns]",
        function=jit.silu_mul,
        signature={"gate_up": f"*{dtype}", "out": f"*{dtype}", "width": "i32"},
        constants={"BLOCK": row.block},
        aligned=("gate_up", "out", "width"),
        num_warps=row.num_warps,
    )
    rows = variant.Variant(
        name=f"embedding_rows[{dtype}, {row.block} columns]",
        function=jit.embedding_rows,
        signature={"table": f"*{dtype}", "ids": "*i64", "out": f"*{dtype}"} | _SIZES,
        constants={"BLOCK": row.block},
        aligned=("table", "ids", "out", "width"),
        num_warps=row.num_warps,
        is_hot=False,
    )
    return gated, rows
