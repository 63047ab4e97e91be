"""Which path each op of a device runs, by op, dtype, shape and device, and why: decided before anything is loaded.

Planned is always our kernel. Where it cannot be (no Triton for the device, a head size or a page that no kernel was
written for), the plain torch reference computes the same numbers on the device, many times slower and waiting for the
host; the reason is logged, exported and, with strict kernels, ends the start. Nothing is decided while steps run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tidemark_kernels import dispatch

TRITON = "triton"
"""Our kernels: what is planned on a device."""
TORCH = dispatch.TORCH

OPS = ("paged_attention", "rms_norm", "rope_and_write", "sample", "silu_mul")
"""Those of every model; which products there are depends on its weights."""

LEAST_CAPABILITY = (8, 0)
"""Of CUDA devices: below, there is no bfloat16 in the matrix instructions that kernels are written for."""
LARGEST_VOCAB = 1 << 20
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a model asks of a device."""

    dtype: torch.dtype
    """Of activations."""
    head_dim: int
    block_size: int
    """Tokens a page."""
    kv_dtypes: tuple[str, ...]
    """Of K and V in the pages, as settings spell them."""
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The device."""

    kind: str
    """`cuda`, `npu`, `interpreter`."""
    missing: str = ""
    """Why no kernel of ours runs here at all; empty where they do."""
    capability: tuple[int, int] | None = None
    """Of a CUDA device."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The decision."""

    paths: tuple[dispatch.OpPath, ...]
    """One for each op and dtype that the model can meet."""

    def runs_kernel(self, op: str) -> bool:
        """Raises KeyError for an op that was not decided about."""
        found = [each.path == TRITON for each in self.paths if each.op == op]
        if not found:
            raise KeyError(op)
        return all(found)

    @property
    def unplanned(self) -> tuple[dispatch.OpPath, ...]:
        return tuple(each for each in self.paths if not each.is_planned)


def choose(need: Need, target: Target) -> Choices:
    """For all ops of a model."""
    names = {
        "paged_attention": need.kv_dtypes,
        "rope_and_write": need.kv_dtypes,
        "sample": (dispatch.dtype_name(torch.float32),),
    }
    activations = (dispatch.dtype_name(need.dtype),)
    paths = []
    for op in OPS:
        reason = target.missing or next(_reasons(op, need, target), "")
        path = TORCH if reason else TRITON
        paths += [dispatch.OpPath(op, TRITON, path, name, reason) for name in names.get(op, activations)]
    return Choices(tuple(paths))


def _reasons(op: str, need: Need, target: Target) -> Iterator[str]:
    """Why our kernel of `op` cannot run; the first counts."""
    if target.capability is not None and target.capability < LEAST_CAPABILITY:
        have, least = (".".join(map(str, each)) for each in (target.capability, LEAST_CAPABILITY))
        yield f"the device has the CUDA capability {have}, kernels need {least}"
    if need.dtype not in _FLOATS:
        known = ", ".join(dispatch.dtype_name(each) for each in _FLOATS)
        yield f"activations are {dispatch.dtype_name(need.dtype)}, kernels take {known}"
    if op in ("paged_attention", "rope_and_write"):
        if "int4" in need.kv_dtypes:
            yield "KV memory of 4 bits has no kernel on a device; choose kvCache.dtype int8 or fp8_e4m3"
        multiple = 16 if any(name.startswith(("int8", "fp8")) for name in need.kv_dtypes) else 8
        if need.head_dim % multiple or not 16 <= need.head_dim <= 256:
            yield f"heads have {need.head_dim} elements, kernels take multiples of {multiple} from 16 to 256"
        if need.block_size < 8 or need.block_size & (need.block_size - 1):
            yield f"kvCache.blockSize is {need.block_size}, kernels take powers of two from 8 on"
    if op == "sample" and not 2 <= need.vocab_size <= LARGEST_VOCAB:
        yield f"the vocabulary has {need.vocab_size} tokens, the kernel takes 2 to {LARGEST_VOCAB}"
