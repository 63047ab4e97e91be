"""What sharing a model costs on a processor: sums over ranks, and plans that are sent to them.

    python benchmarks/tensor_parallel.py [--rounds 200]

Ranks are processes of this machine that share its cores and its memory, so nothing can get faster: what is measured is
what messages cost. The sum as the engine does it (`GlooGroup.all_reduce`) stands beside gloo's own. Each time is the
median of rounds, of the first rank.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
import msgspec
import torch

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import parallel
from tidemark_runtime.worker import process_group, rank_messages

RESULTS = Path(__file__).resolve().parent / "results/tensor_parallel.md"
HIDDEN = 576
SHAPES = ((1, HIDDEN), (32, HIDDEN), (512, HIDDEN), (512, 4096))
SIZES = (2, 3)
PROMPTS = (1_000, 32_000, 128_000)


def median_ms(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found) * 1e3


def sums(rank: int, size: int, folder: str, times: int) -> list[tuple[float, float]]:
    """(ours, gloo's own) of each of SHAPES, milliseconds."""
    torch.set_num_threads(1)
    group = process_group.GlooGroup(parallel.Shard(rank, size), Path(folder))
    group.meet(1)
    found = []
    for shape in SHAPES:
        x = torch.zeros(shape)
        ours = median_ms(lambda x=x: group.all_reduce(x), times)  # type: ignore[misc]
        own = median_ms(lambda x=x: group._met.allreduce([x]).wait(), times)  # type: ignore[misc]
        found.append((ours, own))
    group.leave()
    return found


def sums_of(size: int, times: int) -> list[tuple[float, float]]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, context.Pool(size - 1) as pool:
        others = [pool.apply_async(sums, (rank, size, folder, times)) for rank in range(1, size)]
        found = sums(0, size, folder, times)
        for other in others:
            other.get(60)
    return found


def plan_ms(num_tokens: int, times: int) -> tuple[int, float, float]:
    """Bytes, writing and reading of a plan with one prompt that joins."""
    join = step_plan.Join(
        slot=0,
        token_ids=tuple(range(num_tokens)),
        num_prompt_tokens=num_tokens,
        params=sampling.SamplingParams(max_tokens=10),
        pages=tuple(range(num_tokens // 16)),
    )
    chunk = step_plan.Chunk(slot=0, start=0, count=512, samples=False)
    message = rank_messages.Execute(step_plan.StepPlan(step=1, joins=(join,), chunks=(chunk,)))
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(rank_messages.ToRank)
    frame = encoder.encode(message)
    assert decoder.decode(frame) == message
    return (
        len(frame),
        median_ms(lambda: encoder.encode(message), times),
        median_ms(lambda: decoder.decode(frame), times),
    )


def write(times: int) -> str:
    lines = [
        "# What sharing a model costs on a processor",
        "",
        f"`python benchmarks/tensor_parallel.py`. Median of {times} rounds of the first rank, one thread each.",
        "Predicted for a sum: each rank receives (n - 1) times the tensor, over loopback; what is small is latency.",
        "",
        f"Machine: {machine.describe()}; load average at the end {os.getloadavg()[0]:.0f}.",
        "",
        "| ranks | sum of | bytes received | ours, ms | gloo's own, ms |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES:
        for shape, (ours, own) in zip(SHAPES, sums_of(size, times), strict=True):
            num_bytes = (size - 1) * 4 * shape[0] * shape[1]
            lines.append(f"| {size} | {shape[0]} x {shape[1]} float32 | {num_bytes:,} | {ours:.3f} | {own:.3f} |")
    lines += ["", "| a plan with a prompt of | bytes | written, ms | read, ms |", "|---|---|---|---|"]
    for num_tokens in PROMPTS:
        num_bytes, written, read = plan_ms(num_tokens, times)
        lines.append(f"| {num_tokens:,} tokens | {num_bytes:,} | {written:.2f} | {read:.2f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    text = write(parser.parse_args().rounds)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
