"""Sections of `gpu.py`: the four products of a layer of an 8B Llama, in each form that weights have, and small ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from gpu_frame import Bench, Row, Section
from torch.nn import functional

from tidemark_kernels.device import elementwise, packed_linear, packed_weight

HIDDEN, INTERMEDIATE, QKV, VOCABULARY = 4096, 14336, 6144, 128256
SHAPES = {
    "qkv": (QKV, HIDDEN),
    "o": (HIDDEN, HIDDEN),
    "gate_up": (2 * INTERMEDIATE, HIDDEN),
    "down": (HIDDEN, INTERMEDIATE),
}
TINY_SHAPES = {"qkv": (48, 128), "down": (128, 64)}
TOKENS = (1, 16, 256, 2048)
MEMORY_BOUND = 16
"""Up to so many tokens a product is measured against memory, beyond against cuBLAS."""

Form = Callable[[torch.Tensor], torch.Tensor]


def products(bench: Bench) -> Iterator[Row]:
    """All products of one layer; weights are read anew each time."""
    shapes = TINY_SHAPES if bench.is_tiny else SHAPES
    bf16: dict[int, float] = {}
    for name, make in FORMS.items():
        made = [make(bench.device, shape) for shape in shapes.values()]
        num_bytes = sum(size for _, size in made)
        for num_tokens in bench.some(TOKENS, (1, 3)):
            inputs = {
                width: torch.randn(num_tokens, width, device=bench.device).bfloat16()
                for width in {width for _, width in shapes.values()}
            }
            widths = [width for _, width in shapes.values()]
            run = lambda made=made, widths=widths, inputs=inputs: [
                form(inputs[width]) for (form, _), width in zip(made, widths, strict=True)
            ]
            seconds = bench.seconds(run)
            bf16.setdefault(num_tokens, seconds)
            flops = 2 * num_tokens * sum(rows * columns for rows, columns in shapes.values())
            yield {
                "weights": name,
                "MiB": num_bytes / 2**20,
                "tokens": num_tokens,
                "µs a layer": 1e6 * seconds,
                "% of a copy": bench.share_of_copy(num_bytes, seconds) if num_tokens <= MEMORY_BOUND else "",
                "TFLOP/s": flops / seconds / 1e12,
                "faster than bfloat16": bf16[num_tokens] / seconds,
            }


def dense(device: torch.device, shape: tuple[int, int]) -> tuple[Form, int]:
    weight = torch.randn(shape, device=device).bfloat16()
    return lambda x: functional.linear(x, weight), weight.numel() * 2


def packed(dtype: torch.dtype, group_size: int | None, has_zeros: bool) -> Callable[..., tuple[Form, int]]:
    """`group_size` None: one scale for all inputs of an output."""

    def make(device: torch.device, shape: tuple[int, int]) -> tuple[Form, int]:
        size = min(group_size or shape[1], shape[1])
        groups = (shape[0], shape[1] // size)
        scales = torch.rand(groups, device=device).half().float() * 0.01 + 2**-10
        zeros = torch.full(groups, 8.0, device=device) if has_zeros else None
        mins = None if has_zeros or dtype != torch.uint8 else -8 * scales
        quants = torch.randint(0, 16, shape, dtype=torch.uint8, device=device).to(dtype)
        weight = packed_weight.PackedWeight.pack(quants, scales, mins, size, zeros)
        return lambda x: packed_linear.packed_linear(x, weight), weight.num_bytes

    return make


FORMS: dict[str, Callable[[torch.device, tuple[int, int]], tuple[Form, int]]] = {
    "bfloat16 (cuBLAS)": dense,
    "4 bits, groups of 32 with minima (GGUF)": packed(torch.uint8, 32, False),
    "4 bits, groups of 128 with zeros (AWQ, GPTQ)": packed(torch.uint8, 128, True),
    "int8, a scale an output": packed(torch.int8, None, False),
    "fp8 e4m3, a scale an output": packed(torch.float8_e4m3fn, None, False),
}


def small(bench: Bench) -> Iterator[Row]:
    """Norm with residual, SiLU x up and rows of the embedding, as shares of a copy."""
    width, wide = bench.size(HIDDEN, 64), bench.size(INTERMEDIATE, 96)
    table = torch.randn(bench.size(VOCABULARY, 50), width, device=bench.device).bfloat16()
    weight = torch.ones(width, device=bench.device).bfloat16()
    for num_tokens in bench.some((1, 32, 256, 2048), (1, 3)):
        x = torch.randn(num_tokens, width, device=bench.device).bfloat16()
        residual, gate_up = torch.zeros_like(x), torch.randn(num_tokens, 2 * wide, device=bench.device).bfloat16()
        ids = torch.randint(0, len(table), (num_tokens,), device=bench.device)
        ops: dict[str, tuple[Callable[[], object], int]] = {
            "rms_norm": (lambda x=x, residual=residual: elementwise.rms_norm(x, weight, 1e-5, residual), 8 * x.numel()),
            "silu_mul": (lambda gate_up=gate_up: elementwise.silu_mul(gate_up), 3 * gate_up.numel()),
            "embedding_rows": (lambda ids=ids: elementwise.embedding_rows(table, ids), 4 * x.numel()),
        }
        for name, (run, num_bytes) in ops.items():
            seconds = bench.seconds(run)
            share = bench.share_of_copy(num_bytes, seconds)
            yield {"op": name, "tokens": num_tokens, "µs": 1e6 * seconds, "% of a copy": share}


SECTIONS = (
    Section("products", "The four products of a layer, 8B Llama", products, 70),
    Section("small", "Small ops", small, 20),
)
