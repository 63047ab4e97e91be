"""Forms of `jit.kv_write`: heads a program takes, warps, and for which dtypes of K and V a kernel is compiled."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import triton

from tidemark_kernels import segments as segments_module
from tidemark_kernels.jit import kv_write as jit
from tidemark_kernels.tuning import variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """For heads of which at most `half` elements turn with as many others."""

    half: int
    heads: int
    """A program takes at most so many of one token."""
    num_warps: int
    basis: str


_SEEN = (
    "predicted: 16 bytes of either half a lane at 16 bits; compiled, no shared memory for other layouts than the loads'"
)
ROWS = (
    Row(half=32, heads=16, num_warps=2, basis=_SEEN),
    Row(half=64, heads=16, num_warps=4, basis=f"{_SEEN}; 48 registers, of 8 heads and 2 warps 87 and 14 barriers"),
    Row(half=128, heads=16, num_warps=8, basis=f"{_SEEN}; 48 registers, of 8 heads and 4 warps 82"),
)

_F32, _F16, _BF16, _INT8, _E4M3, _E5M2 = (
    segments_module.DTYPE_CODES[dtype]
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
)
ONE_DTYPE = tuple(1 << code for code in (_F32, _F16, _BF16, _INT8, _E4M3, _E5M2))
MAPS = tuple(1 << wide | 1 << narrow for wide in (_BF16, _F16) for narrow in (_INT8, _E4M3, _E5M2))
"""A precision map keeps segments in the model's dtype and has the others in one of 8 bits."""
ANY_MAP = sum(ONE_DTYPE)
"""Of any other map: all dtypes are computed, and one is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a launch needs beside its tensors."""

    half: int
    rest: int
    """Sizes of tiles that hold half of what turns, and what does not: powers of two. 1: nothing is left."""
    heads: int
    num_warps: int
    codes: int
    """A bit for each dtype code for which the kernel is compiled."""
    programs_a_token: int


@functools.lru_cache(maxsize=256)
def form(num_heads: int, num_kv_heads: int, head_dim: int, rotary_dim: int, codes: tuple[int, ...]) -> Form:
    """`codes`: those of K and V."""
    turned = rotary_dim or head_dim
    half = triton.next_power_of_2(turned // 2)
    row = next(row for row in ROWS if half <= row.half)
    heads = min(row.heads, triton.next_power_of_2(num_heads))
    programs = triton.cdiv(num_heads, heads) + 2 * triton.cdiv(num_kv_heads, heads)
    return Form(
        half=half,
        rest=triton.next_power_of_2(max(1, head_dim - turned)),
        heads=heads,
        num_warps=row.num_warps,
        codes=compiled_codes(codes),
        programs_a_token=programs,
    )


def compiled_codes(codes: Iterable[int]) -> int:
    """The narrowest form that is compiled and can write all of `codes`."""
    wanted = 0
    for code in codes:
        wanted |= 1 << code
    return next(mask for mask in (*ONE_DTYPE, *MAPS, ANY_MAP) if wanted & ~mask == 0)


# ---------------------------------------------------------------------------------------------------------- variants

_ACTIVATIONS = {"bf16": _BF16, "fp16": _F16, "fp32": _F32}
"""Triton's name -> dtype code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    has_norms: bool = False


_MODELS = (
    _Model(num_heads=32, num_kv_heads=8, head_dim=64, rotary_dim=64),
    _Model(num_heads=32, num_kv_heads=32, head_dim=80, rotary_dim=32),
    _Model(num_heads=32, num_kv_heads=32, head_dim=96, rotary_dim=96),
    _Model(num_heads=32, num_kv_heads=8, head_dim=128, rotary_dim=128),
    _Model(num_heads=32, num_kv_heads=8, head_dim=128, rotary_dim=96),
    _Model(num_heads=32, num_kv_heads=8, head_dim=128, rotary_dim=128, has_norms=True),
    _Model(num_heads=16, num_kv_heads=16, head_dim=192, rotary_dim=192),
    _Model(num_heads=16, num_kv_heads=8, head_dim=256, rotary_dim=256),
)
_EVERY = _MODELS[3]
"""For which every dtype and every map is compiled."""
_BLOCK_SIZE = 16


def variants() -> tuple[variant.Variant, ...]:
    found = []
    for model in _MODELS:
        for code in (_BF16, _INT8, _E4M3, _E5M2):
            found.append(_variant(model, "bf16", 1 << code))
    for mask in (*MAPS, ANY_MAP):
        found.append(_variant(_EVERY, "fp16" if mask & 1 << _F16 and mask != ANY_MAP else "bf16", mask))
    for activations in ("fp16", "fp32"):
        for code in (_ACTIVATIONS[activations], _INT8, _E4M3, _E5M2):
            found.append(_variant(_EVERY, activations, 1 << code))
    found.append(_variant(_EVERY, "bf16", 1 << _BF16, has_positions=True))
    return tuple(found)


def _variant(model: _Model, activations: str, mask: int, *, has_positions: bool = False) -> variant.Variant:
    codes = [code for code in range(len(ONE_DTYPE)) if mask >> code & 1]
    chosen = form(model.num_heads, model.num_kv_heads, model.head_dim, model.rotary_dim, tuple(codes))
    kinds = "any" if mask == ANY_MAP else "+".join(segments_module.code_name(code) for code in codes)
    turned = "" if model.rotary_dim == model.head_dim else f" r{model.rotary_dim}"
    extras = (", norms" if model.has_norms else "") + (", positions" if has_positions else "")
    shape = f"{model.num_heads}+{model.num_kv_heads} heads, d{model.head_dim}{turned}"
    signature = {"qkv": f"*{activations}", "cos": "*fp32", "sin": "*fp32"}
    signature |= {"positions": "*i64"} if has_positions else {}
    signature |= {"q_norm": "*fp32", "k_norm": "*fp32"} if model.has_norms else {}
    signature |= {"out": f"*{activations}", "slab": "*u8", "table": "*i64", "fixed": "*fp32"}
    signature |= {"token_page": "*i32", "token_row": "*i32"}
    pointers = tuple(signature)
    missing = [name for name in ("positions", "q_norm", "k_norm") if name not in signature]
    return variant.Variant(
        name=f"rope_and_write[{activations}, {kinds}, {shape}{extras}]",
        function=jit.rope_and_write,
        signature=signature | {"num_pages": "i32", "num_positions": "i32", "page_bytes": "i32", "eps": "fp32"},
        constants=dict.fromkeys(missing)
        | {
            "NUM_HEADS": model.num_heads,
            "NUM_KV_HEADS": model.num_kv_heads,
            "HEAD_DIM": model.head_dim,
            "ROTARY_DIM": model.rotary_dim,
            "BLOCK_SIZE": _BLOCK_SIZE,
            "CODES": chosen.codes,
            "HEADS": chosen.heads,
            "HALF": chosen.half,
            "REST": chosen.rest,
        },
        aligned=(*pointers, "page_bytes"),
        num_warps=chosen.num_warps,
    )
