"""What every engine in the CPU table is given: the same token ids, the same counts, timed the same way.

Standard library only: it is imported in each peer's own environment.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence

SEED = 20_240_601
DECODE_PROMPT_TOKENS = 16
DECODE_TOKENS = 64
PREFILL_TOKENS = 1024
BATCHES = (1, 16, 32)
REPEATS = 2
NUM_CHECK_PROMPTS = 8
CHECK_TOKENS = 32

CHECK_PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a small village by the sea,",
    "The three primary colours are",
    "In 1969, the first humans",
    "A contract is a legally binding agreement between",
    "Photosynthesis is the process by which",
)
"""Greedy continuations of these are compared with transformers in float32: the correctness beside each speed."""


def prompts(count: int, length: int, vocabulary: int = 40_000) -> list[list[int]]:
    """`count` different prompts of `length` ordinary token ids."""
    source = random.Random(SEED + length)
    return [[source.randrange(200, vocabulary) for _ in range(length)] for _ in range(count)]


def best_rate(run: Callable[[], int]) -> float:
    """Tokens a second of the best of `REPEATS` runs; `run` returns how many tokens it made."""
    rates = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        tokens = run()
        rates.append(tokens / (time.perf_counter() - started))
    return max(rates)


def measure(
    generate: Callable[[Sequence[list[int]], int], list[list[int]]], batches: Sequence[int] = BATCHES
) -> dict[str, float]:
    """`generate(prompts, max_tokens)` returns the new tokens of each prompt, end tokens ignored."""
    generate(prompts(1, 8), 4)
    rates = {}
    for batch in batches:
        inputs = prompts(batch, DECODE_PROMPT_TOKENS)
        rates[f"decode_{batch}"] = best_rate(lambda inputs=inputs: sum(map(len, generate(inputs, DECODE_TOKENS))))
    long = prompts(REPEATS, PREFILL_TOKENS)
    rates["prefill"] = best_rate(lambda: len(generate([long[0]], 1)) * PREFILL_TOKENS)
    return rates


def report(name: str, version: str, rates: dict[str, float], check: list[list[int]] | None, notes: str = "") -> None:
    """One JSON line on standard output, read by `cpu.py`."""
    json.dump({"name": name, "version": version, "rates": rates, "check": check, "notes": notes}, sys.stdout)
    sys.stdout.write("\n")
