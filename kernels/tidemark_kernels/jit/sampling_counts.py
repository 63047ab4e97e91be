"""Bias and penalties: how often each token was seen, and what that makes of its logit.

A row of int32 words [V] is 0 at first. `count` writes into the word of a token how often it was generated (bits 0 to
19), whether it was seen at all, in the prompt or after (bit 20), and which entry of the bias list it has (bits 21 to
31: its place + 1). Integers are added, so the order does not matter. `adjusted` then makes of a word the changed logit:

    x + bias, then divided or multiplied by `repetition` where seen (Keskar et al., CTRL, 2019, as Hugging Face does),
    minus frequency * times generated, minus presence where generated (OpenAI's definition)

each rounded as on the host. Nothing is kept from step to step: counting reads 4 bytes for each known token, which is
less than the logits unless a context is longer than the vocabulary.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import sampling_rules

COUNT_MASK = tl.constexpr((1 << 20) - 1)
SEEN_BIT = tl.constexpr(1 << 20)
BIAS_SHIFT = tl.constexpr(21)
BIAS_MASK = tl.constexpr((1 << 11) - 1)


@triton.jit
def _has_penalties(fields):
    repeats = sampling_rules.real(fields, sampling_rules.REPETITION) != 1.0
    presence = sampling_rules.real(fields, sampling_rules.PRESENCE) != 0.0
    return repeats | presence | (sampling_rules.real(fields, sampling_rules.FREQUENCY) != 0.0)


@triton.jit
def has_any(fields):
    """Whether the logits of this row change."""
    return _has_penalties(fields) | (tl.load(fields + sampling_rules.NUM_BIASES) > 0)


@triton.jit
def count(
    words, slots, table, bias_ids, tokens, lengths, behind, num_prompt_tokens,
    vocab_size, table_stride, bias_stride, tokens_stride,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Grid `[num_rows, SPLITS]`; `words` [num_rows, vocab_size] are 0; `behind` [num_rows] as in `sampling.choose`.
    Ids outside the vocabulary are passed over."""
    row, split = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row)
    fields = table + slot * table_stride
    row_words = words + row.to(tl.int64) * vocab_size
    if split == 0:
        num_biases = tl.load(fields + sampling_rules.NUM_BIASES)
        for start in range(0, num_biases, BLOCK):
            at = start + tl.arange(0, BLOCK)
            ids = tl.load(bias_ids + slot * bias_stride + at, mask=at < num_biases, other=-1)
            inside = (ids >= 0) & (ids < vocab_size)
            tl.atomic_add(row_words + ids, (at + 1) << BIAS_SHIFT, mask=inside, sem="relaxed")
    if _has_penalties(fields):
        length = (tl.load(lengths + slot) + tl.load(behind + row)).to(tl.int32)
        prompt = tl.load(num_prompt_tokens + slot).to(tl.int32)
        for start in range(split * BLOCK, length, SPLITS * BLOCK):
            at = start + tl.arange(0, BLOCK)
            ids = tl.load(tokens + slot.to(tl.int64) * tokens_stride + at, mask=at < length, other=-1)
            inside = (ids >= 0) & (ids < vocab_size)
            tl.atomic_or(row_words + ids, tl.full((BLOCK,), SEEN_BIT, tl.int32), mask=inside, sem="relaxed")
            tl.atomic_add(row_words + ids, tl.full((BLOCK,), 1, tl.int32), mask=inside & (at >= prompt), sem="relaxed")


@triton.jit
def adjusted(values, found, fields, bias_values):
    """The changed logits of one block, from the model's and the words found there. Launched without fused products."""
    entry = (found >> BIAS_SHIFT) & BIAS_MASK
    values += tl.load(bias_values + entry - 1, mask=entry > 0, other=0.0)
    repetition = sampling_rules.real(fields, sampling_rules.REPETITION)
    repeated = tl.where(values > 0.0, tl.math.div_rn(values, tl.zeros_like(values) + repetition), values * repetition)
    values = tl.where((found & SEEN_BIT) != 0, repeated, values)
    times = found & COUNT_MASK
    values -= times.to(tl.float32) * sampling_rules.real(fields, sampling_rules.FREQUENCY)
    values -= tl.where(times > 0, sampling_rules.real(fields, sampling_rules.PRESENCE), 0.0)
    return tl.where(values == 0.0, 0.0, values)
