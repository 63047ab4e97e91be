"""Forms of `jit.attention`: keys of a tile, warps and stages, by rows of a tile, bytes of a key's row and capability.

What decides (predicted; the first measurement on a card replaces these rows):

- Addresses of K and V need a page, which is loaded first: of `num_stages` 5, two tiles are on their way, not four.
- Decode moves bytes. A processor of an H200 has 1/132 of 4.8 TB/s, and a load takes about 0.8 microseconds: 29 KB must
  be on their way all the time. Two programs a processor, with tiles of 16 KiB of K and of V each and one or two of them
  ahead, have 64 to 128 KiB.
- Decode of 8 bits is short of instructions before it is short of bytes: a tile of 128 keys of 128 elements of int8 is
  33 KB, 1,580 cycles of a processor's share, and 4 warps issue about 940 instructions each for it in 4 queues (E4M3:
  1,070; 64 keys: 620 for half the bytes, so fewer keys a tile are worse). Two warps would need more registers than
  there are.
- Prompts compute. Tiles of 64 and 128 rows are those of Dao 2023; four warps for each 64 rows.
- Compute capability 8.9 has 99 KB of shared memory a block, 8.0 163 KB, 9.0 227 KB.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from triton import knobs

from tidemark_kernels import segments as segments_module
from tidemark_kernels.jit import attention as jit
from tidemark_kernels.jit import attention_merge as merge_jit
from tidemark_kernels.jit import numbers
from tidemark_kernels.tuning import attention_rows, variant

Forms = tuple[tuple[int, int, bool, bool], ...]
"""`layout.DeviceSegments.forms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """For tiles of `rows`, on devices of this compute capability (times ten) and above."""

    rows: int
    capability: int
    tile_bytes: int
    """Of a tile of K: decides its keys."""
    most_keys: int
    num_warps: int
    num_stages: int
    basis: str


_COUNTED = "predicted: bytes on their way, shared memory and instructions, counted above"
_FLASH = "predicted: tiles of FlashAttention 2 and 3"
ROWS = (
    Row(rows=16, capability=90, tile_bytes=16384, most_keys=128, num_warps=4, num_stages=5, basis=_COUNTED),
    Row(rows=16, capability=89, tile_bytes=8192, most_keys=128, num_warps=4, num_stages=5, basis=_COUNTED),
    Row(rows=16, capability=80, tile_bytes=16384, most_keys=128, num_warps=4, num_stages=5, basis=_COUNTED),
    Row(rows=64, capability=90, tile_bytes=16384, most_keys=64, num_warps=4, num_stages=5, basis=_COUNTED),
    Row(rows=64, capability=89, tile_bytes=8192, most_keys=64, num_warps=4, num_stages=5, basis=_FLASH),
    Row(rows=64, capability=80, tile_bytes=16384, most_keys=64, num_warps=4, num_stages=5, basis=_FLASH),
    Row(rows=128, capability=90, tile_bytes=16384, most_keys=64, num_warps=8, num_stages=5, basis=_FLASH),
    Row(rows=128, capability=89, tile_bytes=8192, most_keys=64, num_warps=8, num_stages=5, basis=_FLASH),
    Row(rows=128, capability=80, tile_bytes=16384, most_keys=64, num_warps=8, num_stages=5, basis=_FLASH),
)
MERGE_SPLITS = 32
"""Parts that `jit.attention_merge.merge` loads at once."""
MERGE_WARPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    keys: int
    num_warps: int
    num_stages: int


@functools.lru_cache(maxsize=1024)
def form(rows: int, head_dim: int, forms: Forms, q: torch.dtype, capability: int) -> Form:
    """`forms`: of all heads of a layer; the widest dtype decides."""
    row = next(each for each in ROWS if each.rows == rows and each.capability <= capability)
    row_bytes = max(segments_module.row_bytes(code, head_dim) for pair in forms for code in pair[:2])
    # Two parts of a row have addresses and operands of their own, for which 128 keys leave no registers; nor do 64
    # where heads differ in dtype.
    has_rest = head_dim & (head_dim - 1) != 0
    most_keys = min(row.most_keys, 64 if len(forms) == 1 else 32) if has_rest else row.most_keys
    # Products of float32 have no matrix instructions.
    most_keys = most_keys if q != torch.float32 else 32
    # Sums of 64 rows of 192 or 256 elements spill with four warps.
    num_warps = 8 if rows == 64 and head_dim > 128 else row.num_warps
    keys = 16
    while keys < most_keys and 2 * keys * row_bytes <= row.tile_bytes:
        keys *= 2
    return Form(keys=keys, num_warps=num_warps, num_stages=row.num_stages)


@functools.lru_cache(maxsize=64)
def capability(device: torch.device) -> int:
    """Times ten; of a processor, under the interpreter, that of an H100."""
    if device.type != "cuda":
        return 90
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor


def dialect(device: torch.device) -> int:
    """For what kernels are compiled where `device` is: `jit.numbers.INTERPRETED` and those after it."""
    if knobs.runtime.interpret:
        return int(numbers.INTERPRETED)
    return int(numbers.PTX_DIALECT if device.type == "cuda" and torch.version.hip is None else numbers.PLAIN)


# ---------------------------------------------------------------------------------------------------------- variants

_F32, _F16, _BF16, _INT8, _E4M3, _E5M2 = range(6)
_ACTIVATIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_HEAD_DIMS = (64, 80, 96, 128, 192, 256)


def _same(code: int, *, fixed: bool = False) -> Forms:
    return ((code, code, fixed, fixed),)


MAPS: dict[str, Forms] = {
    "keys kept": ((_BF16, _INT8, False, False), (_INT8, _INT8, False, False)),
    "K bf16, V int8": ((_BF16, _INT8, False, False),),
    "heads kept": ((_BF16, _BF16, False, False), (_E4M3, _E4M3, False, False)),
}
"""Of the precision maps that a model may have, which are too many to list: some of each kind."""


def variants() -> tuple[variant.Variant, ...]:
    """For heads of 128 elements every dtype and all devices; of other heads what differs by their size."""
    found = []
    for head_dim in _HEAD_DIMS:
        targets = variant.TARGETS if head_dim == 128 else (90,)
        prompt = attention_rows.ladder(head_dim)[-1]
        for code in (_BF16, _INT8, _E4M3, _E5M2):
            found += _variants(attention_rows.ladder(head_dim)[0], head_dim, _same(code), targets)
        for code in (_BF16, _INT8):
            found += _variants(prompt, head_dim, _same(code), targets)
        found += _variants(16, head_dim, MAPS["keys kept"], (90,))
    for forms in (MAPS["K bf16, V int8"], MAPS["heads kept"], _same(_INT8, fixed=True), _same(_E4M3, fixed=True)):
        found += _variants(16, 128, forms, (90,))
    for code in (_E4M3, _E5M2):
        found += _variants(128, 128, _same(code), (90,))
    for code in (_BF16, _INT8):
        found += _variants(64, 128, _same(code), (90,))
    found += _variants(16, 128, _same(_BF16), (90,), capped=True)
    for activations, codes in (("fp16", (_F16, _INT8, _E4M3)), ("fp32", (_F32, _INT8))):
        for code in codes:
            found += _variants(16, 128, _same(code), (90,), activations)
    return (*found, *(_merge_variant(head_dim, "bf16") for head_dim in (80, 128, 256)))


def _variants(
    rows: int,
    head_dim: int,
    forms: Forms,
    targets: tuple[int, ...],
    activations: str = "bf16",
    *,
    capped: bool = False,
) -> list[variant.Variant]:
    """One for each form that some of the targets have."""
    by_form: dict[Form, tuple[int, ...]] = {}
    for target in targets:
        chosen = form(rows, head_dim, forms, _ACTIVATIONS[activations], target)
        by_form[chosen] = (*by_form.get(chosen, ()), target)
    return [_variant(rows, head_dim, forms, activations, capped, *pair) for pair in by_form.items()]


def _variant(
    rows: int, head_dim: int, forms: Forms, activations: str, capped: bool, chosen: Form, targets: tuple[int, ...]
) -> variant.Variant:
    kinds = " and ".join(
        f"{segments_module.code_name(k)}{' fixed' if k_fixed else ''}/{segments_module.code_name(v)}"
        f"{' fixed' if v_fixed else ''}"
        for k, v, k_fixed, v_fixed in forms
    )
    signature = {"q": f"*{activations}", "slab": "*u8", "page_table": "*i32", "table": "*i64", "fixed": "*fp32"}
    signature |= {"items": "*i32", "num_items": "*i32", "out": f"*{activations}", "partials": "*fp32", "stats": "*fp32"}
    signature |= dict.fromkeys(("page_bytes", "pages_a_chunk", "num_kv_heads", "group", "block_bits"), "i32")
    signature |= {"scale": "fp32", "softcap": "fp32", "window": "i32"}
    constants: dict[str, Any] = {"HEAD_DIM": head_dim, "ROWS": rows, "KEYS": chosen.keys, "STAGES": chosen.num_stages}
    constants |= {"CAPPED": capped, "FORMS": forms, "DIALECT": int(numbers.PTX_DIALECT)}
    is_float = activations == "fp32"
    # Of such a row of bytes the rest, 16 or 32 of them, is loaded by 8, as often as the first 64 in a prompt's tile.
    loads_by_8 = rows == 128 and head_dim in (80, 96) and all(code >= _INT8 for pair in forms for code in pair[:2])
    return variant.Variant(
        name=f"attend[{activations} q, {kinds} KV, d{head_dim}, {rows} rows, {chosen.keys} keys"
        f"{', capped' if capped else ''}]",
        function=jit.attend,
        signature=signature,
        constants=constants,
        aligned=(*(name for name, kind in signature.items() if kind.startswith("*")), "page_bytes"),
        num_warps=chosen.num_warps,
        num_stages=chosen.num_stages,
        targets=targets,
        is_hot=not is_float,
        wide_loads=not loads_by_8,
        tensor_cores=not is_float,
        notes={"loads": "what a row of 8 bits has beyond 64 elements comes in pieces of 8"} if loads_by_8 else {},
    )


def _merge_variant(head_dim: int, activations: str) -> variant.Variant:
    return variant.Variant(
        name=f"merge[{activations} out, d{head_dim}]",
        function=merge_jit.merge,
        signature={"partials": "*fp32", "stats": "*fp32", "merges": "*i32", "num_merges": "*i32"}
        | {"out": f"*{activations}", "num_kv_heads": "i32", "group": "i32"},
        constants={"HEAD_DIM": head_dim, "COLUMNS": merge_columns(head_dim), "SPLITS": MERGE_SPLITS},
        aligned=("partials", "stats", "merges", "num_merges", "out"),
        num_warps=MERGE_WARPS,
    )


def merge_columns(head_dim: int) -> int:
    return 1 << (head_dim - 1).bit_length()
