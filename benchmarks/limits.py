"""What this machine can do at most, measured in the same run as the engines: the yardstick of the CPU table.

Two figures: float32 multiply-adds a second with everything in registers, and bytes a second read from memory, each on
all threads, best of some rounds. From them follow tokens a second that no engine in float32 can pass: a prompt costs
multiply-adds, decoding one sequence reads every weight once a token.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

import workload

from tidemark_kernels.cpu import build
from tidemark_runtime.model import checkpoint as checkpoints
from tidemark_runtime.model import sources
from tidemark_runtime.worker import loading

ROUNDS = 24
READ_BYTES = 256 << 20
"""Of each thread: beyond every cache."""
FMA_LOOPS = 1_000_000
FMA_VECTORS = 12
"""Independent sums: two units of four steps' latency need eight, and sixteen registers hold twelve and two factors."""
FMA_FLOATS = 8

SOURCE = f"""
#include <stdint.h>
typedef float v8 __attribute__((vector_size(32)));
typedef uint64_t w4 __attribute__((vector_size(32)));
#define EACH _Pragma("GCC unroll 16") for (int i = 0; i < {FMA_VECTORS}; ++i)
float fma_peak(int64_t loops, float factor) {{
    v8 sum[{FMA_VECTORS}], x = {{factor, factor, factor, factor, factor, factor, factor, factor}}, all = x;
    EACH sum[i] = x * (float)i; /* equal sums would become one */
    for (int64_t n = 0; n < loops; ++n) EACH sum[i] = sum[i] * x + x;
    EACH all += sum[i];
    return all[0];
}}
uint64_t read_all(const w4 *from, int64_t vectors) {{
    w4 sum[4] = {{{{0}}}};
    for (int64_t i = 0; i < vectors; i += 4)
        for (int j = 0; j < 4; ++j) sum[j] ^= from[i + j];
    return (sum[0] ^ sum[1] ^ sum[2] ^ sum[3])[0];
}}
"""


@dataclass(frozen=True, slots=True)
class Limits:
    gflops: float
    """Float32, a multiply-add counted as two."""
    gigabytes: float
    """A second, read."""
    rates: dict[str, float]
    """Tokens a second, by column of the table."""

    @property
    def notes(self) -> str:
        return f"{self.gflops:.0f} GFLOP/s in float32, {self.gigabytes:.1f} GB/s read"


def measure(gguf: str, threads: int) -> Limits:
    """Raises `build.BuildError` without a C compiler."""
    library = _compile()
    gflops = _peak(library, threads) / 1e9
    gigabytes = _bandwidth(library, threads) / 1e9
    checkpoint = checkpoints.open_checkpoint(sources.resolve(gguf, Path()))
    spec = checkpoint.spec
    layers = 2.0 * loading.num_matrix_elements(spec)
    head = 2.0 * spec.vocab_size * spec.hidden_size
    key = 4.0 * spec.num_layers * spec.num_heads * spec.head_dim  # scores and weighted sum, a key
    prompt = layers + key * workload.PREFILL_TOKENS / 2 + head / workload.PREFILL_TOKENS
    rates = {"prefill": gflops * 1e9 / prompt}
    for batch in workload.BATCHES:
        reading = batch * gigabytes * 1e9 / checkpoint.num_bytes
        rates[f"decode_{batch}"] = min(reading, gflops * 1e9 / (layers + head))
    return Limits(gflops, gigabytes, rates)


def _compile() -> ctypes.CDLL:
    compiler = build.find_compiler()
    if compiler is None:
        raise build.BuildError("no C compiler found; install gcc")
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "limits.c"), Path(folder, "limits.so")
        source.write_text(SOURCE, encoding="utf-8")
        flags = ["-O3", "-ffp-contract=fast", *build.native_flags(), "-fPIC", "-shared"]
        subprocess.run([compiler, *flags, str(source), "-o", str(made)], check=True)
        library = ctypes.CDLL(str(made))
    library.fma_peak.argtypes, library.fma_peak.restype = (ctypes.c_int64, ctypes.c_float), ctypes.c_float
    library.read_all.argtypes, library.read_all.restype = (ctypes.c_void_p, ctypes.c_int64), ctypes.c_uint64
    return library


def _peak(library: ctypes.CDLL, threads: int) -> float:
    def work(_index: int) -> None:
        library.fma_peak(FMA_LOOPS, 0.5)

    return threads * FMA_LOOPS * FMA_VECTORS * FMA_FLOATS * 2 / _fastest(work, threads)


def _bandwidth(library: ctypes.CDLL, threads: int) -> float:
    rooms = [bytearray(READ_BYTES + 64) for _ in range(threads)]
    starts = [(ctypes.addressof(ctypes.c_char.from_buffer(room)) + 63) // 64 * 64 for room in rooms]

    def work(index: int) -> None:
        library.read_all(starts[index], READ_BYTES // 32)

    return threads * READ_BYTES / _fastest(work, threads)


def _fastest(work: Callable[[int], None], threads: int) -> float:
    """Seconds of the fastest round; ctypes lets the threads run at the same time."""
    best = float("inf")
    with futures.ThreadPoolExecutor(threads) as pool:
        for _ in range(ROUNDS):
            started = time.perf_counter()
            list(pool.map(work, range(threads)))
            best = min(best, time.perf_counter() - started)
    return best
