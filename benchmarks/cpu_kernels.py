"""Speed of the CPU kernels: the matrix products of a whole model, and attention over pages.

    python benchmarks/cpu_kernels.py [--quick]

Prints milliseconds for all matrix products of one step of SmolLM2-135M (30 layers, 4-bit groups of 32 with minima; the
head 8 bits) with float32 and with 8-bit activations, beside torch's float32 `F.linear`, then attention of 16
sequences. Each figure is the least of several rounds, the forms taking turns within a round, so that a neighbour's load
falls on all of them.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import torch

from tidemark_kernels import dispatch, grouped, ops, reference, segments

NUM_LAYERS = 30
SHAPES = {"qkv": (960, 576), "o": (576, 576), "gate_up": (3072, 576), "down": (576, 1536)}
HEAD = (49152, 576)
ROWS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 512)
MAX_HEAD_ROWS = 64
FLOP_PER_ROW = 2 * (NUM_LAYERS * sum(n * k for n, k in SHAPES.values()))
HEAD_FLOP_PER_ROW = 2 * HEAD[0] * HEAD[1]

Form = Callable[[torch.Tensor, torch.Tensor], object]
Weight = TypeVar("Weight")


def packed(shape: tuple[int, int], bits: int) -> grouped.GroupedWeight:
    rows, columns = shape
    if bits == 4:
        quants = torch.randint(0, 16, shape, dtype=torch.uint8)
        mins = torch.randn(rows, columns // 32).half().float()
    else:
        quants, mins = torch.randint(-128, 128, shape, dtype=torch.int8), None
    return grouped.GroupedWeight.pack(quants, torch.rand(rows, columns // 32).half().float(), mins, bits, 32)


def over_model(layers: list[list[Weight]], head: Weight, apply: Callable[[torch.Tensor, Weight], object]) -> Form:
    """A step's products, each with weights of its own, as in a model: nothing stays in the caches by accident."""

    def step(x: torch.Tensor, wide: torch.Tensor) -> None:
        for qkv, o, gate_up, down in layers:
            apply(x, qkv)
            apply(x, o)
            apply(x, gate_up)
            apply(wide, down)
        apply(x[:MAX_HEAD_ROWS], head)

    return step


def forms() -> Iterator[tuple[str, Form]]:
    shapes = list(SHAPES.values())
    grouped_model = [[packed(shape, 4) for shape in shapes] for _ in range(NUM_LAYERS)], packed(HEAD, 8)
    yield "grouped", over_model(*grouped_model, lambda x, w: ops.grouped_linear(x, w))
    yield "8-bit x", over_model(*grouped_model, lambda x, w: ops.grouped_linear_int8(x, w))
    dense = [[torch.randn(shape) for shape in shapes] for _ in range(NUM_LAYERS)], torch.randn(HEAD)
    yield "torch f32", over_model(*dense, lambda x, w: torch.nn.functional.linear(x, w))
    panels = [[grouped.PackedDense.pack(w) for w in layer] for layer in dense[0]], grouped.PackedDense.pack(dense[1])
    yield "panels f32", over_model(*panels, lambda x, w: ops.dense_linear_f32(x, w))


def least(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest round of each call; the calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for round_number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if round_number:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def products(rounds: int) -> None:
    chosen = dict(forms())
    print(f"{'rows':>5}" + "".join(f"{name:>14}" for name in chosen) + f"{'grouped GFLOP/s':>18}")
    for rows in ROWS:
        x, wide = torch.randn(rows, 576), torch.randn(rows, 1536)
        calls = {name: functools.partial(form, x, wide) for name, form in chosen.items()}
        took = least(calls, max(2, rounds // 4) if rows >= 128 else rounds)
        flop = rows * FLOP_PER_ROW + min(rows, MAX_HEAD_ROWS) * HEAD_FLOP_PER_ROW
        row = "".join(f"{seconds * 1e3:11.1f} ms" for seconds in took.values())
        print(f"{rows:5}{row}{flop / took['grouped'] / 1e9:18.0f}")


def attention(rounds: int) -> None:
    """One layer times 30 of SmolLM2-135M's attention: 9 heads, 3 KV heads of 64, pages of 16 tokens."""
    print("\nattention, 30 layers")
    cases = [("decode", 16, 200, 1), ("decode", 16, 2000, 1), ("decode", 1, 2000, 1), ("prompt", 1, 512, 512)]
    cases.append(("prompt", 1, 2048, 512))
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2, segments.INT4):
        for kind, sequences, context, count in cases:
            step = attention_step(dtype, sequences, context, count)
            took = least({"ours": step}, rounds)["ours"]
            moved = 30 * sequences * context * 3 * segments.row_bytes(segments.DTYPE_CODES[dtype], 64) * 2
            flop = 30 * 4 * 9 * 64 * sequences * count * (context - (count - 1) / 2)
            print(
                f"{kind} {sequences:2} x {context:4} tokens, KV {dispatch.dtype_name(dtype):8} "
                f"{took * 1e3:8.2f} ms {moved / took / 1e9:7.1f} GB/s {flop / took / 1e9:6.0f} GFLOP/s"
            )


def attention_step(dtype: torch.dtype, sequences: int, context: int, count: int) -> Callable[[], object]:
    pages = -(-context // 16)
    code = segments.DTYPE_CODES[dtype]
    scaled = code in segments.LARGEST or dtype is segments.INT4
    elements, scale_bytes = 16 * segments.row_bytes(code, 64), 16 * segments.scale_bytes(code, 64)
    segment = elements + (scale_bytes if scaled else 0)
    slab = torch.zeros(sequences * pages, 6 * segment, dtype=torch.uint8)
    starts_at = [index * segment for index in range(6)]
    scales_at = [at + elements if scaled else -1 for at in starts_at]
    for at, scales in zip(starts_at, scales_at, strict=True):
        rows = torch.randn(sequences * pages * 16, 64)
        if scaled:
            codes, factors = reference.quantized(rows, dtype)
            slab[:, scales : scales + scale_bytes] = factors.view(torch.uint8).view(sequences * pages, scale_bytes)
        else:
            codes = rows.to(dtype)
        slab[:, at : at + elements] = codes.view(torch.uint8).view(sequences * pages, elements)
    layer = ops.LayerSegments.from_offsets(
        starts_at[::2], starts_at[1::2], dtype, dtype, scales_at[::2], scales_at[1::2]
    )
    table = torch.randperm(sequences * pages).to(torch.int32).view(sequences, pages)
    starts = torch.arange(0, (sequences + 1) * count, count, dtype=torch.int32)
    lengths = torch.full((sequences,), context, dtype=torch.int32)
    q = torch.randn(sequences * count, 9, 64)

    def step() -> None:
        for _ in range(NUM_LAYERS):
            ops.paged_attention(q, slab, layer, table, starts, lengths, 16, 0.125)

    return step


def overhead(rounds: int) -> None:
    """Microseconds of a call on one tiny token: what Python, the checks and ctypes cost."""
    x, weight = torch.randn(1, 64), torch.ones(64)
    took = least(
        {
            "rms_norm": lambda: [ops.rms_norm(x, weight, 1e-5, out=x) for _ in range(1000)],
            "silu_mul": lambda: [ops.silu_mul(x) for _ in range(1000)],
        },
        rounds,
    )
    print("\nper call: " + ", ".join(f"{name} {seconds * 1e3:.1f} us" for name, seconds in took.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 4 if parser.parse_args().quick else 16
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    print(f"path: {dispatch.current().path}\n")
    products(rounds)
    attention(rounds)
    overhead(rounds)


if __name__ == "__main__":
    main()
