"""Sections of `gpu.py`: attention over pages and writing them, in the shape of one layer of an 8B Llama."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import paged_case
import torch
from gpu_frame import Bench, Row, Section
from torch.nn import functional

from tidemark_kernels.device import kv_write, layout
from tidemark_runtime.model import batch as batches

LLAMA = paged_case.Model()
TINY = paged_case.Model(num_heads=4, num_kv_heads=2, head_dim=16, block_size=8)
KV_DTYPES = ("bfloat16", "int8", "fp8_e4m3", "fp8_e5m2")
TINY_KV_DTYPES = ("bfloat16", "int8", "fp8_e4m3")
GOALS = {"bfloat16": 90.0}
GOAL_8_BITS = 85.0
INT8_BEHIND_FP8 = 1.03
"""The most that int8 may take of what fp8 does."""
LAYERS = 32
"""In a page, as far as memory allows: a layer's K and V lie as far apart as in a real slab."""
SLAB_SHARE = 0.5
"""Of free memory."""


def model_of(bench: Bench, kv_dtype: str, contexts: list[int]) -> paged_case.Model | None:
    """With as many layers a page as memory allows; None where not even one fits."""
    if bench.is_tiny:
        return TINY
    layer_bytes = paged_case.layout_of(kv_dtype, LLAMA).page_bytes * sum(-(-one // 16) for one in contexts)
    free, _ = torch.cuda.mem_get_info(bench.device)
    layers = min(LAYERS, int(SLAB_SHARE * free / layer_bytes))
    return paged_case.with_layers(LLAMA, layers) if layers else None


def decode(bench: Bench) -> Iterator[Row]:
    """One token each of many sequences."""
    long, short = bench.size(32768, 48), bench.size(4096, 24)
    mixed = [bench.size(131072, 64), *[short] * bench.size(31, 1)]
    some = [(count, context) for context in (short, long) for count in (1, 32, 256)]
    batches_of = {f"{count} x {context}": [context] * count for count, context in bench.some(some, [(1, short)])}
    seconds: dict[tuple[str, str], float] = {}
    for name, contexts in {**batches_of, f"1 x {mixed[0]} + {len(mixed) - 1} x {short}": mixed}.items():
        for kv_dtype in bench.some(KV_DTYPES, TINY_KV_DTYPES):
            model = model_of(bench, kv_dtype, contexts)
            if model is None:
                yield {"KV": kv_dtype, "batch": name, "goal": "does not fit into this card's memory"}
                continue
            case = paged_case.make(bench.device, kv_dtype, [1] * len(contexts), contexts, model)
            took = seconds[name, kv_dtype] = bench.seconds(case.run)
            started = time.perf_counter()
            paged_case.plan_again(case, [1] * len(contexts), contexts)
            host = time.perf_counter() - started
            yield decode_row(bench, name, kv_dtype, case, took, host)
            del case
    for name in dict.fromkeys(batch for batch, _ in seconds):
        if {(name, "int8"), (name, "fp8_e4m3")} <= set(seconds):
            ratio = seconds[name, "int8"] / seconds[name, "fp8_e4m3"]
            yield {
                "KV": "int8 / fp8_e4m3",
                "batch": name,
                "times": ratio,
                "goal": f"at most {INT8_BEHIND_FP8}",
                "met": ratio <= INT8_BEHIND_FP8,
            }


def decode_row(bench: Bench, name: str, kv_dtype: str, case: paged_case.Case, seconds: float, host: float) -> Row:
    goal, share = GOALS.get(kv_dtype, GOAL_8_BITS), bench.share_of_copy(case.least_bytes, seconds)
    return {
        "KV": kv_dtype,
        "batch": name,
        "layers a page": case.model.num_layers,
        "µs": 1e6 * seconds,
        "GB/s": case.least_bytes / seconds / 1e9,
        "% of a copy": share,
        "work list on the host, µs": 1e6 * host,
        "goal": f"{goal:.0f} %",
        "met": share >= goal,
    }


def prompts(bench: Bench) -> Iterator[Row]:
    """A chunk of a prompt behind what is there already; beside it torch's own on contiguous K and V."""
    chunk = bench.size(2048, 16)
    for before in bench.some((0, 6144, 30720), (0, 16)):
        for kv_dtype in bench.some(KV_DTYPES[:3], TINY_KV_DTYPES[:1]):
            model = TINY if bench.is_tiny else LLAMA
            case = paged_case.make(bench.device, kv_dtype, [chunk], [before + chunk], model)
            seconds = bench.seconds(case.run, cold=False)
            flops = 4 * model.num_heads * model.head_dim * case.num_scores
            row: Row = {"KV": kv_dtype, "chunk": f"{chunk} behind {before}", "ms": 1e3 * seconds}
            row["TFLOP/s"] = flops / seconds / 1e12
            if not before and kv_dtype == "bfloat16":
                other = bench.seconds(lambda model=model: torch_attention(bench.device, chunk, model), cold=False)
                row["torch, ms"] = 1e3 * other
            yield row


def torch_attention(device: torch.device, count: int, model: paged_case.Model) -> torch.Tensor:
    q = torch.ones(1, model.num_heads, count, model.head_dim, device=device, dtype=torch.bfloat16)
    kv = torch.ones(1, model.num_kv_heads, count, model.head_dim, device=device, dtype=torch.bfloat16)
    return functional.scaled_dot_product_attention(q, kv, kv, is_causal=True, enable_gqa=True)


def drafts(bench: Bench) -> Iterator[Row]:
    """Verifying guesses: a few tokens of each sequence at once; the time beside that of one token."""
    context = bench.size(4096, 24)
    for count in bench.some((1, 32), (1,)):
        alone = 0.0
        for guessed in bench.some((1, 2, 4, 8), (1, 2)):
            model = TINY if bench.is_tiny else LLAMA
            case = paged_case.make(bench.device, "bfloat16", [guessed] * count, [context] * count, model)
            seconds = bench.seconds(case.run)
            alone = alone or seconds
            yield {
                "batch": f"{count} x {context}",
                "tokens each": guessed,
                "µs": 1e6 * seconds,
                "times": seconds / alone,
            }


def writes(bench: Bench) -> Iterator[Row]:
    """Rotary embedding and the write of K and V into pages."""
    model = TINY if bench.is_tiny else LLAMA
    for num_tokens in bench.some((1, 32, 256, 2048), (1, 3)):
        for kv_dtype in bench.some(KV_DTYPES, TINY_KV_DTYPES):
            run, num_bytes = write_of(bench.device, kv_dtype, num_tokens, model)
            seconds = bench.seconds(run)
            yield {
                "KV": kv_dtype,
                "tokens": num_tokens,
                "µs": 1e6 * seconds,
                "% of a copy": bench.share_of_copy(num_bytes, seconds),
            }


def write_of(
    device: torch.device, kv_dtype: str, num_tokens: int, model: paged_case.Model
) -> tuple[Callable[[], torch.Tensor], int]:
    """The write of so many tokens, and the bytes that it must move."""
    made = paged_case.layout_of(kv_dtype, model)
    num_pages = -(-num_tokens // model.block_size)
    slab = torch.zeros(num_pages, made.page_bytes, dtype=torch.uint8, device=device)
    segments = layout.DeviceSegments.of(batches.KVMemory.of(slab, made).segments[0], device)
    heads = model.num_heads + 2 * model.num_kv_heads
    qkv = torch.randn(num_tokens, heads * model.head_dim, device=device).bfloat16()
    angles = torch.rand(num_tokens, model.head_dim // 2, device=device)
    places = torch.arange(num_tokens, dtype=torch.int32, device=device)
    page, row = places // model.block_size, places % model.block_size
    out = torch.empty(num_tokens, model.num_heads, model.head_dim, dtype=qkv.dtype, device=device)

    def run() -> torch.Tensor:
        return kv_write.rope_and_write(
            *(qkv, angles, angles, model.num_heads, model.num_kv_heads, model.head_dim, model.head_dim),
            *(None, None, 1e-5, slab, segments, page, row, model.block_size),
            out=out,
        )

    kv_bytes = round(num_tokens * model.num_kv_heads * paged_case.shape_of(kv_dtype, model).kv_bytes)
    return run, 2 * qkv.numel() + 2 * out.numel() + 8 * angles.numel() + kv_bytes


SECTIONS = (
    Section(
        "decode",
        "Decode attention, one layer, 32 heads and 8 of KV, 128 elements; goals: 90 % of a copy with 16 bits, 85 % "
        "with 8, int8 within 3 % of fp8",
        decode,
        110,
    ),
    Section("prompts", "Attention of a chunk of a prompt", prompts, 40),
    Section("drafts", "Attention while verifying guesses", drafts, 20),
    Section("writes", "Rotary embedding and writing K and V", writes, 30),
)
