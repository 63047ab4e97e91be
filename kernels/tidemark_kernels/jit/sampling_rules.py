"""Small functions of sampling: where a parameter lies, the order of floats as integers, weights, places of a seed.

`table` has a row of int32 words for each slot; floats and the seed lie in it as they are, bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

TEMPERATURE = tl.constexpr(0)
TOP_K = tl.constexpr(1)
TOP_P = tl.constexpr(2)
MIN_P = tl.constexpr(3)
REPETITION = tl.constexpr(4)
PRESENCE = tl.constexpr(5)
FREQUENCY = tl.constexpr(6)
NUM_BIASES = tl.constexpr(7)
SEED = tl.constexpr(8)
"""Two words: int64."""
NUM_LOGPROBS = tl.constexpr(10)
"""-1: none, not even the chosen token's."""

LOG2_E = tl.constexpr(1.4426950408889634)
SMALLEST_KEY = tl.constexpr(-(2**31) + 1)
"""Under the key of minus infinity."""
LARGEST_KEY = tl.constexpr(2**31 - 1)


@triton.jit
def real(fields, COLUMN: tl.constexpr):
    return tl.load(fields + COLUMN).to(tl.float32, bitcast=True)


@triton.jit
def seed(fields):
    low = tl.load(fields + SEED).to(tl.int64) & 0xFFFFFFFF
    return low | (tl.load(fields + SEED + 1).to(tl.int64) << 32)


@triton.jit
def is_filtered(fields, vocab_size):
    top_k = tl.load(fields + TOP_K)
    return ((top_k > 0) & (top_k < vocab_size)) | (real(fields, TOP_P) < 1.0) | (real(fields, MIN_P) > 0.0)


@triton.jit
def scale(fields):
    """log2(e) / temperature; of greedy rows, which ask for no weights, that of temperature 1."""
    temperature = real(fields, TEMPERATURE)
    return LOG2_E / tl.where(temperature > 0.0, temperature, 1.0)


@triton.jit
def weights(values, best, scale):
    """exp((values - best) / temperature): exactly 1 for the best, 0 for minus infinity."""
    return tl.exp2((values - best) * scale)


@triton.jit
def key(values):
    """int32 in the order of the float32 `values`: of negative ones all bits but the sign are turned."""
    bits = values.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def of_key(keys):
    """The float32 of a key."""
    return (keys ^ ((keys >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _splitmix64(state):
    """Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014."""
    z = state + 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def uniform(seed, position):
    """float64 in [0, 1) of an int64 seed and a position: 53 bits of two rounds of SplitMix64."""
    seed = seed.to(tl.uint64, bitcast=True)
    mixed = _splitmix64(_splitmix64(seed) ^ position.to(tl.uint64))
    return (mixed >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16
