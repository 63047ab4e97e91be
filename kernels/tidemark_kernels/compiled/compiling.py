"""Compiles one form of a kernel for one target, without a device."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.backends import compiler as backends
from triton.compiler import ASTSource

from tidemark_kernels.tuning import variant as variant_module

DIVISIBILITY = 16
"""Bytes of a pointer, or what a size is a multiple of: Triton's launcher asks for no other number."""
WARP_SIZE = 32
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass(frozen=True, slots=True)
class Binary:
    cubin: bytes
    shared_bytes: int
    """Of one program."""
    num_warps: int


def compiled(variant: variant_module.Variant, target: int) -> Binary:
    """Compile `variant` for a compute capability (times ten); Triton's own cache is used.

    Raises `ValueError` for an argument of the kernel that the variant does not name, or names wrongly, and
    `RuntimeError` where kernels would be interpreted.
    """
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise RuntimeError("TRITON_INTERPRET is set: kernels are interpreted in this process, expected one without it")
    source = ASTSource(
        variant.function,
        signature=_signature(variant),
        constexprs=dict(variant.constants),
        attrs=_alignment(variant),
    )
    # Fused multiply-add is what Triton does by default; said here, because it warns of a default that will change.
    options = {"num_warps": variant.num_warps, "num_stages": variant.num_stages, "enable_fp_fusion": True}
    with knobs.compilation.scope():
        # Lines of the source beside the code stay: without them, a tenth of the time is saved, but one form of forty
        # has a few registers more or less than what a launch compiles.
        knobs.compilation.store_binary_only = True
        kernel = triton.compile(source, target=backends.GPUTarget("cuda", target, WARP_SIZE), options=options)
    return Binary(kernel.asm["cubin"], int(kernel.metadata.shared), int(kernel.metadata.num_warps))


def _signature(variant: variant_module.Variant) -> dict[str, str]:
    """Every argument with its type, in the kernel's own order."""
    arguments = list(variant.function.arg_names)
    types = {**variant.signature, **dict.fromkeys(variant.constants, "constexpr")}
    twice = sorted(set(variant.signature) & set(variant.constants))
    wrong = sorted(set(types) ^ set(arguments))
    if wrong or twice:
        raise ValueError(
            f"variant {variant.name}: arguments {wrong or twice} are not named exactly once, expected each of "
            f"{arguments} in signature or in constants"
        )
    return {name: types[name] for name in arguments}


def _alignment(variant: variant_module.Variant) -> dict[tuple[int], list[list[Any]]]:
    arguments = list(variant.function.arg_names)
    unknown = sorted(set(variant.aligned) - set(variant.signature))
    if unknown:
        raise ValueError(f"variant {variant.name}: aligned names {unknown}, expected arguments of its signature")
    return {(arguments.index(name),): [["tt.divisibility", DIVISIBILITY]] for name in variant.aligned}


def tool(name: str, *arguments: str) -> str:
    """What one of the tools that Triton brings along says."""
    return subprocess.run([str(TOOLS / name), *arguments], capture_output=True, text=True, check=True).stdout


@cache
def versions() -> dict[str, str]:
    """What the generated code depends on."""
    last = tool("ptxas", "--version").strip().splitlines()[-1]
    return {"triton": triton.__version__, "ptxas": last.removeprefix("Build ")}
