"""One form of a kernel: what a launch would compile, so that it can be compiled and read where no device is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TARGETS = (80, 89, 90)
"""CUDA compute capabilities, times ten: A100, L40S and RTX 4090, H100 and H200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A kernel with everything that is known when it is compiled."""

    name: str
    """Unique and readable: `attention[bf16 q, int8 k, int8 v, d128, 16 rows]`. Names its row of the table."""
    function: Any
    """The `triton.jit` function."""
    signature: Mapping[str, str]
    """Argument -> Triton's type (`*bf16`, `*u8`, `i32`, `fp32`), of all that are no constants, in order."""
    constants: Mapping[str, Any]
    """Argument -> value, of its `tl.constexpr` arguments, and None for a pointer that is not given."""
    aligned: tuple[str, ...] = ()
    """Pointers to, and sizes that are multiples of, 16: what a launch finds out by looking at its arguments."""
    num_warps: int = 4
    num_stages: int = 2
    targets: tuple[int, ...] = TARGETS
    is_hot: bool = True
    """Runs in every step, for every layer: it must not spill registers."""
    wide_loads: bool = True
    """16 bytes a load in the code that reads the bulk of its bytes."""
    tensor_cores: bool = False
    """Products of tiles by matrix instructions."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What else the table says of it, for example what a figure was traded for."""
