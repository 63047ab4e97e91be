"""Bytes that device kernels move, counted from the program as it runs under Triton's interpreter, beside the fewest.

    python benchmarks/kernel_bytes.py [--only decode ...] [--quick]     # writes benchmarks/results/kernel_bytes.md

Needs no device. What counts is what a card's memory moves: sectors of 32 bytes that an instruction of a program touches
(`tidemark_kernels.compiled.bytes_moved`). The fewest: every key's K, V and scale, every weight with its scales, inputs
and results once. The time beside it is what is moved at an H200's 4.8 TB/s: what a perfect card would take for it.
Ends with 1 if a kernel that must be useful to 95 % is not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import paged_case
import pytest
import quick_interpreter
import torch

from tidemark_kernels.compiled import bytes_moved
from tidemark_kernels.device import elementwise, kv_write, packed_linear, packed_weight

RESULT = Path(__file__).resolve().parent / "results" / "kernel_bytes.md"
H200_BYTES_A_SECOND = 4.8e12
"""NVIDIA H200 data sheet."""
LEAST_USEFUL = 0.95
"""Of the bytes that decode attention moves."""
CPU = torch.device("cpu")
KV_DTYPES = ("bfloat16", "float16", "int8", "fp8_e4m3", "fp8_e5m2")
HIDDEN, INTERMEDIATE = 4096, 14336
OUTPUTS = 1024
"""Of a matrix that is counted; a whole one moves a multiple."""


@dataclass(frozen=True, slots=True)
class Line:
    kernel: str
    shape: str
    counted: bytes_moved.Counted
    least_bytes: int
    must_be_useful: bool = False

    @property
    def useful(self) -> float:
        return self.least_bytes / self.counted.moved_bytes

    @property
    def is_met(self) -> bool:
        return not self.must_be_useful or self.useful >= LEAST_USEFUL

    def text(self) -> str:
        moved = self.counted.moved_bytes
        parts = sorted(self.counted.by_tensor.items(), key=lambda item: -item[1].moved_bytes)
        most = ", ".join(f"{name} {100 * one.moved_bytes / moved:.1f} %" for name, one in parts[:4] if one.moved_bytes)
        seconds = moved / H200_BYTES_A_SECOND
        goal = "" if not self.must_be_useful else ("yes" if self.is_met else "**no**")
        return (
            f"| {self.kernel} | {self.shape} | {self.least_bytes:,} | {moved:,} | {100 * self.useful:.1f} % | {goal} | "
            f"{1e6 * seconds:.2f} | {most} |"
        )


def decode(quick: bool) -> Iterator[Line]:
    """One token of one sequence; of the 8 KV heads, which move as much each, one is run."""
    for context in (512,) if quick else (4096, 32768):
        for kv_dtype in KV_DTYPES[2:3] if quick else KV_DTYPES:
            yield decode_line(kv_dtype, context)


def decode_line(kv_dtype: str, context: int, model: paged_case.Model | None = None) -> Line:
    case = paged_case.make(CPU, kv_dtype, [1], [context], model)
    with bytes_moved.counting(case.tensors(), every=case.model.num_kv_heads) as counted:
        case.run()
    return Line("decode attention", f"{kv_dtype}, context {context:,}", counted, case.least_bytes, True)


def prompt(quick: bool) -> Iterator[Line]:
    """A chunk reads its keys once for each tile of queries, as every such kernel; caches serve most of that."""
    count, context = (16, 32) if quick else (128, 1024)
    for kv_dtype in ("bfloat16", "int8"):
        case = paged_case.make(CPU, kv_dtype, [count], [context])
        with bytes_moved.counting(case.tensors(), every=8) as counted:
            case.run()
        yield Line("chunk attention", f"{kv_dtype}, {count} of {context:,}", counted, case.least_bytes)


def writes(quick: bool) -> Iterator[Line]:
    model, num_tokens = paged_case.Model(), 2 if quick else 32
    for kv_dtype in ("int8",) if quick else KV_DTYPES:
        case = paged_case.make(CPU, kv_dtype, [num_tokens], [num_tokens], model)
        heads = model.num_heads + 2 * model.num_kv_heads
        qkv = torch.randn(num_tokens, heads * model.head_dim).bfloat16()
        cos, sin = torch.ones(num_tokens, model.head_dim // 2), torch.zeros(num_tokens, model.head_dim // 2)
        places = torch.arange(num_tokens, dtype=torch.int32)
        page, row = places // model.block_size, places % model.block_size
        named = {"qkv": qkv, "cos": cos, "sin": sin, "pages": case.slab, "q": case.out}
        with bytes_moved.counting(named) as counted:
            kv_write.rope_and_write(
                *(qkv, cos, sin, model.num_heads, model.num_kv_heads, model.head_dim, model.head_dim, None, None, 1e-5),
                *(case.slab, case.segments, page, row, model.block_size),
                out=case.out,
            )
        kv_bytes = num_tokens * model.num_kv_heads * paged_case.shape_of(kv_dtype, model).kv_bytes
        least = sum(_size(one) for one in (qkv, cos, sin, case.out)) + round(kv_bytes)
        yield Line("rope and write", f"{kv_dtype}, {num_tokens} tokens", counted, least)


def small(quick: bool) -> Iterator[Line]:
    num_tokens = 2 if quick else 32
    x, weight = torch.randn(num_tokens, HIDDEN).bfloat16(), torch.ones(HIDDEN).bfloat16()
    residual, out = torch.zeros_like(x), torch.empty_like(x)
    run = lambda: elementwise.rms_norm(x, weight, 1e-5, residual, out=out)
    named = {"x": x, "weight": weight, "residual": residual, "out": out}
    yield _line("norm with residual", f"{num_tokens} x {HIDDEN}", run, named, 4 * _size(x) + _size(weight))
    gate_up, product = (
        torch.randn(num_tokens, 2 * INTERMEDIATE).bfloat16(),
        torch.empty(num_tokens, INTERMEDIATE).bfloat16(),
    )
    run = lambda: elementwise.silu_mul(gate_up, out=product)
    least = _size(gate_up) + _size(product)
    yield _line("SiLU x up", f"{num_tokens} x {INTERMEDIATE}", run, {"gate and up": gate_up, "out": product}, least)


def products(quick: bool) -> Iterator[Line]:
    outputs, inputs = (128, 256) if quick else (OUTPUTS, HIDDEN)
    for name, weight in _weights(outputs, inputs):
        for num_tokens in (1,) if quick else (1, 16):
            x, out = torch.randn(num_tokens, inputs).bfloat16(), torch.empty(num_tokens, outputs).bfloat16()
            held = {"codes": weight.codes, "scales": weight.affine.words}
            if weight.affine.supers is not None:
                held["scales of scales"] = weight.affine.supers
            run = lambda x=x, weight=weight, out=out: packed_linear.packed_linear(x, weight, out=out)
            shape = f"{name}, {num_tokens} x {inputs} -> {outputs}"
            least = sum(_size(one) for one in held.values()) + _size(x) + _size(out)
            yield _line("packed product", shape, run, {**held, "x": x, "out": out}, least)


def _weights(outputs: int, inputs: int) -> Iterator[tuple[str, packed_weight.PackedWeight]]:
    quants = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8)
    for group in (32, 128):
        scales = torch.rand(outputs, inputs // group).half().float() + 0.1
        zeros = torch.full_like(scales, 8.0)
        yield f"4 bits by {group}", packed_weight.PackedWeight.pack(quants, scales, None, group, zeros)
    scales = torch.rand(outputs, 1) + 0.1
    for dtype in (torch.int8, torch.float8_e4m3fn):
        name = str(dtype).removeprefix("torch.")
        yield name, packed_weight.PackedWeight.pack(quants.to(dtype), scales, None, inputs)


def _line(kernel: str, shape: str, run: Callable[[], object], named: dict[str, torch.Tensor], least: int) -> Line:
    with bytes_moved.counting(named) as counted:
        run()
    return Line(kernel, shape, counted, least)


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


PARTS: dict[str, Callable[[bool], Iterator[Line]]] = {
    "decode": decode,
    "prompt": prompt,
    "writes": writes,
    "small": small,
    "products": products,
}

PAGE = """# Bytes that device kernels move

Counted from the programs under Triton's interpreter, without a device: `{command}` ({machine}). One layer of an 8B
Llama: 32 heads, 8 of KV, 128 elements, pages of 16 tokens. *Fewest*: K, V and scales of every key, weights with
their scales, inputs and results once. *Moved*: the 32-byte sectors that each load and store of each program touches.
*Goal*: decode attention must be useful to {goal:.0f} %. *µs*: what is moved at the 4.8 TB/s of an H200 (predicted; a
card's memory reaches about 90 % of it, and a launch takes some microseconds).

| kernel | shape | fewest bytes | moved | useful | goal met | µs | of what is moved |
|---|---|---|---|---|---|---|---|
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=[], help="parts; the file is not written then")
    parser.add_argument("--quick", action="store_true", help="small shapes; the file is not written")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        quick_interpreter.install(stack.enter_context(pytest.MonkeyPatch.context()))
        return run(options)


def run(options: argparse.Namespace) -> int:
    lines = []
    for name, part in PARTS.items():
        if options.only and name not in options.only:
            continue
        for line in part(options.quick):
            sys.stdout.write(f"{line.text()}\n")
            sys.stdout.flush()
            lines.append(line)
    if not (options.only or options.quick):
        import triton

        machine = f"Python {platform.python_version()}, torch {torch.__version__}, Triton {triton.__version__}"
        head = PAGE.format(command="python benchmarks/kernel_bytes.py", machine=machine, goal=100 * LEAST_USEFUL)
        RESULT.write_text(head + "".join(f"{line.text()}\n" for line in lines), encoding="utf-8")
    return 0 if all(line.is_met for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
