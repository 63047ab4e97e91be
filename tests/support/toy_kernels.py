"""Small kernels that are what a reading of generated code must find: good, and bad in one way each."""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.tuning import variant


@triton.jit
def product(a, b, out, count, BLOCK: tl.constexpr):
    """out `[BLOCK, BLOCK]` = a `[BLOCK, count]` @ b `[count, BLOCK]`."""
    rows = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, count, BLOCK):
        left = tl.load(a + rows[:, None] * count + start + rows[None, :])
        right = tl.load(b + (rows[:, None] + start) * BLOCK + rows[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * BLOCK + rows[None, :], total)


@triton.jit
def twice(x, out, count, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """out `[count]` = 2 * every STEP-th number of x."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at * STEP, mask=at < count, other=0.0), mask=at < count)


SIGNATURE = {"a": "*bf16", "b": "*bf16", "out": "*fp32", "count": "i32"}
ALIGNED = ("a", "b", "out", "count")


def variants() -> tuple[variant.Variant, ...]:
    good = variant.Variant(
        name="product[64]",
        function=product,
        signature=SIGNATURE,
        constants={"BLOCK": 64},
        aligned=ALIGNED,
        num_stages=3,
        tensor_cores=True,
    )
    spilling = variant.Variant(
        name="product[128, two warps]",
        function=product,
        signature=SIGNATURE,
        constants={"BLOCK": 128},
        aligned=ALIGNED,
        num_warps=2,
        num_stages=1,
        targets=(80,),
        tensor_cores=True,
    )
    narrow, wide = (
        variant.Variant(
            name=f"twice[step {step}]",
            function=twice,
            signature={"x": "*fp32", "out": "*fp32", "count": "i32"},
            constants={"STEP": step, "BLOCK": 512},
            aligned=("x", "out", "count"),
            targets=(80,),
            tensor_cores=step == 2,
        )
        for step in (2, 1)
    )
    return good, spilling, narrow, wide
