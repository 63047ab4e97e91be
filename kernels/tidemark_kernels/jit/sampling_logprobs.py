"""Log-probabilities of the model's own distribution: the chosen token's and the most likely ones', without a sort.

log p = x - (max x + log(sum exp(x - max x))); the blocks' sums are there already (`sampling.scan`), and so is the
largest of each group of GROUP logits. The most likely tokens are taken one after the other: the group with the largest
maximum, the first such value in it, and that group's maximum without it. GROUP * 4 bytes are read for each.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import sampling_rules

TAKEN = tl.constexpr(-(2**31))
"""Key of a group with nothing left: under that of minus infinity."""
FLOOR = tl.constexpr(-9999.0)


@triton.jit
def _load_keys(row, start, count, SIZE: tl.constexpr):
    at = start + tl.arange(0, SIZE)
    values = tl.load(row + at, mask=at < count, other=0.0)
    values = tl.where(values == 0.0, 0.0, values)
    return tl.where(at < count, sampling_rules.key(values), TAKEN)


@triton.jit
def _logprob(value, normalizer):
    return tl.maximum(FLOOR, tl.minimum(0.0, value - normalizer))


@triton.jit
def logprobs(
    logits, slots, table, best, plain, groups, token_ids, broken, chosen, top_ids, top_logprobs,
    vocab_size, num_blocks, num_groups, logits_stride, table_stride,
    BLOCKS: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr, NUM_TOP: tl.constexpr,
):  # fmt: skip
    """Grid `[num_rows]`. `chosen` float32 [num_rows], `top_ids` int64 and `top_logprobs` float32 [num_rows, NUM_TOP]:
    best first; what a row did not ask for, or what is broken, becomes NaN, and -1 as id."""
    row = tl.program_id(0)
    fields = table + tl.load(slots + row) * table_stride
    is_sound = tl.load(broken + row) == 0
    wanted = tl.where(is_sound, tl.load(fields + sampling_rules.NUM_LOGPROBS), -1)
    source = logits + row.to(tl.int64) * logits_stride
    at = tl.arange(0, BLOCKS)
    of_blocks = tl.load(best + row * num_blocks + at, mask=at < num_blocks, other=-float("inf"))
    sums = tl.load(plain + row * num_blocks + at, mask=at < num_blocks, other=0.0)
    of_blocks = tl.where(is_sound, of_blocks, 0.0)
    largest = tl.max(of_blocks, axis=0)
    total = tl.sum(sums * sampling_rules.weights(of_blocks, largest, sampling_rules.LOG2_E), axis=0)
    normalizer = largest + tl.log(tl.where(total > 0.0, total, 1.0))
    nothing = float("nan")
    own = _logprob(tl.load(source + tl.load(token_ids + row)), normalizer)
    tl.store(chosen + row, tl.where(wanted >= 0, own, nothing))
    groups_at = tl.arange(0, GROUPS)
    maxima = _load_keys(groups + row.to(tl.int64) * num_groups, 0, num_groups, GROUPS)
    before, last = TAKEN + 0, -1
    for place in range(NUM_TOP):
        token, logprob = -1, nothing
        if place < tl.minimum(wanted, vocab_size):
            value, group = tl.max(maxima, axis=0, return_indices=True, return_indices_tie_break_left=True)
            ids = group * GROUP + tl.arange(0, GROUP)
            keys = _load_keys(source, group * GROUP, vocab_size, GROUP)
            last = tl.where(value == before, last, -1)
            token = tl.min(tl.where((keys == value) & (ids > last), ids, sampling_rules.LARGEST_KEY), axis=0)
            left = (keys < value) | ((keys == value) & (ids > token))
            maxima = tl.where(groups_at == group, tl.max(tl.where(left, keys, TAKEN), axis=0), maxima)
            logprob = _logprob(sampling_rules.of_key(value), normalizer)
            before, last = value, token
        tl.store(top_ids + row * NUM_TOP + place, token)
        tl.store(top_logprobs + row * NUM_TOP + place, logprob)
