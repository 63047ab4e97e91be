"""The next token of each row of logits, chosen where the logits are.

Maths, for a row x [V] with bias and penalties already in it (`sampling_counts`), temperature t and place u in [0, 1):

    w = exp((x - max x) / t)
    top-k   keep the k largest x                 equal ones: the lower id first
    top-p   of these, the fewest largest x whose weights reach p of theirs
    min-p   of these, those with w >= min-p
    token   the first, by id, at which the sum of the kept weights passes u of their whole sum

Nothing is sorted. "The k largest" are those above a border, which is found by bisection: floats become integers of the
same order, so at most 32 questions "how many are at least this?" (top-p: "how much do these weigh?") give it exactly.

Layout and bytes: `scan` reads the logits once, in blocks of BLOCK, and leaves of each block its largest and where it
is, sums of weights, and the largest of each group of GROUP. That is all a greedy or an unfiltered row needs: `choose`
then reads one block more, TILE at a time. A filtered row is read once more, to copy the few that may matter into
CAPACITY places, where bisection costs little; if they are more, bisection reads the row itself. So 4 V bytes a row,
8 V with filters; bias and penalties add 12 V: words are zeroed, read, and become the changed logits.

Sums are float32 in a block, float64 from block to block, always in the order of ids: runs repeat bit for bit, and a row
does not depend on the other rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tidemark_kernels.jit import sampling_counts, sampling_rules

# ---- one block of a row -------------------------------------------------------------------------------------------


@triton.jit
def _load(row, start, count, BLOCK: tl.constexpr):
    """BLOCK values from `start`; minus infinity from `count` on, no NaN, and no negative zero."""
    at = start + tl.arange(0, BLOCK)
    values = tl.load(row + at, mask=at < count, other=-float("inf"))
    values = tl.where(values != values, float("inf"), values)  # what is broken shows as a maximum that is not finite
    return tl.where(values == 0.0, 0.0, values)


@triton.jit
def _summarize(
    values, start, best, index, sums, groups, at_block, at_group, num_groups, scale,
    BLOCK: tl.constexpr, GROUP: tl.constexpr, SUMS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    largest, place = tl.max(values, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(best + at_block, largest)
    tl.store(index + at_block, start + place)
    if SUMS:
        # A block of minus infinities has no differences; every weight of one that is broken is 0.
        base = tl.where(tl.abs(largest) == float("inf"), 0.0, largest)
        tl.store(sums + at_block, tl.sum(sampling_rules.weights(values, base, scale), axis=0))
    if GROUPS:
        maxima = tl.max(tl.reshape(values, (BLOCK // GROUP, GROUP)), axis=1)
        group = start // GROUP + tl.arange(0, BLOCK // GROUP)
        tl.store(groups + at_group + group, maxima, mask=group < num_groups)


# ---- first launch: every block of every row ------------------------------------------------------------------------


@triton.jit
def scan(
    logits, words, slots, table, bias_values, best, index, tempered, plain, groups,
    num_rows, vocab_size, num_blocks, num_groups,
    logits_stride, table_stride, bias_stride,
    BLOCK: tl.constexpr, GROUP: tl.constexpr, SAMPLES: tl.constexpr, ADJUSTS: tl.constexpr, LOGPROBS: tl.constexpr,
):  # fmt: skip
    """Grid `[num_rows, num_blocks]`. `best`, `index` [kinds, num_rows, num_blocks], `groups` [kinds, num_rows,
    num_groups]: kind 0 is the model's own, kind 1 with bias and penalties, where ADJUSTS. `tempered` and `plain`
    [num_rows, num_blocks]: sums of exp((x - best) / t), and with t = 1 of the model's own.
    ADJUSTS: `words` [num_rows, vocab_size] hold counts, and afterwards the changed logits."""
    row, block = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row)
    fields = table + slot * table_stride
    start = block * BLOCK
    at_block = row * num_blocks + block
    at_group = row.to(tl.int64) * num_groups
    values = _load(logits + row.to(tl.int64) * logits_stride, start, vocab_size, BLOCK)
    scale = sampling_rules.scale(fields)
    _summarize(
        values, start, best, index, plain, groups, at_block, at_group, num_groups, sampling_rules.LOG2_E,
        BLOCK, GROUP, LOGPROBS, LOGPROBS or (SAMPLES and not ADJUSTS),
    )  # fmt: skip
    if ADJUSTS:
        at = start + tl.arange(0, BLOCK)
        row_words = words + row.to(tl.int64) * vocab_size
        found = tl.load(row_words + at, mask=at < vocab_size, other=0)
        values = sampling_counts.adjusted(values, found, fields, bias_values + slot * bias_stride)
        tl.store(row_words + at, values.to(tl.int32, bitcast=True), mask=at < vocab_size)
        at_block += num_rows * num_blocks
        at_group = (row + num_rows).to(tl.int64) * num_groups
        _summarize(
            values, start, best, index, tempered, groups, at_block, at_group, num_groups, scale,
            BLOCK, GROUP, False, SAMPLES,
        )  # fmt: skip
    if SAMPLES:
        largest = tl.max(values, axis=0)
        base = tl.where(tl.abs(largest) == float("inf"), 0.0, largest)
        sums = tl.sum(sampling_rules.weights(values, base, scale), axis=0)
        tl.store(tempered + row * num_blocks + block, sums)


# ---- borders: by bisection over what `source` holds -----------------------------------------------------------------


@triton.jit
def _border(
    source, count, wanted_count, wanted_weight, low, high, best, scale, BY_WEIGHT: tl.constexpr, BLOCK: tl.constexpr
):
    """The largest key that `wanted_count` of the values reach; BY_WEIGHT: that values reach that weigh `wanted_weight`.

    Enough reach `low`; `high` is the largest key. Both move to keys that occur, so that it ends when the borders have
    one left between them, or when just as many as are wanted reach one: 28 questions at most, usually 6 to 12.
    """
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)  # half of low + high, rounded up, where the sum would not fit
        reached, weight = 0, tl.zeros((), tl.float64)
        over, under = high, low
        for start in range(0, count, BLOCK):
            values = _load(source, start, count, BLOCK)
            bits = values.to(tl.int32, bitcast=True)
            keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
            reaching = keys >= middle
            over = tl.minimum(over, tl.min(tl.where(reaching, keys, high), axis=0))
            under = tl.maximum(under, tl.max(tl.where(reaching, low, keys), axis=0))
            if BY_WEIGHT:
                weight += tl.sum(tl.where(reaching, tl.exp2((values - best) * scale), 0.0), axis=0)
            else:
                reached += tl.sum(reaching.to(tl.int32), axis=0)
        enough = weight >= wanted_weight if BY_WEIGHT else reached >= wanted_count
        low = tl.where(enough, over, low)
        high = tl.where(enough, high, under)
        if not BY_WEIGHT:
            high = tl.where(reached == wanted_count, low, high)
    return low


@triton.jit
def _above(source, count, border, best, scale, BLOCK: tl.constexpr):
    """How many values have keys over `border`, how many equal it, and what those over it weigh."""
    over, equal, weight = 0, 0, tl.zeros((), tl.float64)
    for start in range(0, count, BLOCK):
        values = _load(source, start, count, BLOCK)
        keys = sampling_rules.key(values)
        over += tl.sum((keys > border).to(tl.int32), axis=0)
        equal += tl.sum(((keys == border) & (start + tl.arange(0, BLOCK) < count)).to(tl.int32), axis=0)
        weight += tl.sum(tl.where(keys > border, sampling_rules.weights(values, best, scale), 0.0), axis=0)
    return over, equal, weight


# ---- the few that may matter ----------------------------------------------------------------------------------------


@triton.jit
def _gather(
    row, values_out, ids_out, vocab_size, least_key, least_weight, best, scale,
    BLOCK: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """Copy, in the order of ids, what is not under either bound; returns how many there are and their smallest key.
    More than CAPACITY: only so much is sure, that they are too many."""
    found, smallest = 0, sampling_rules.LARGEST_KEY + 0
    start = 0
    while (start < vocab_size) & (found <= CAPACITY):
        values = _load(row, start, vocab_size, BLOCK)
        at = start + tl.arange(0, BLOCK)
        keys = sampling_rules.key(values)
        wanted = (keys >= least_key) & (sampling_rules.weights(values, best, scale) >= least_weight) & (at < vocab_size)
        place = found + tl.cumsum(wanted.to(tl.int32), axis=0) - 1
        tl.store(values_out + place, values, mask=wanted & (place < CAPACITY))
        tl.store(ids_out + place, at, mask=wanted & (place < CAPACITY))
        found += tl.sum(wanted.to(tl.int32), axis=0)
        smallest = tl.minimum(smallest, tl.min(tl.where(wanted, keys, sampling_rules.LARGEST_KEY), axis=0))
        start += BLOCK
    return found, smallest


# ---- the draw -------------------------------------------------------------------------------------------------------


@triton.jit
def _kept(values, border, num_ties, ties_before, least_weight, best, scale):
    """Weights, 0 for what is filtered out, and how many equalled the border up to the end of this block."""
    keys = sampling_rules.key(values)
    ties = (keys == border).to(tl.int32)
    rank = ties_before + tl.cumsum(ties, axis=0)
    inside = (keys > border) | ((keys == border) & (rank <= num_ties))
    found = sampling_rules.weights(values, best, scale)
    found = tl.where(inside & (found >= least_weight), found, 0.0)
    return found, ties_before + tl.sum(ties, axis=0)


@triton.jit
def _whole(source, count, border, num_ties, least_weight, best, scale, BLOCK: tl.constexpr):
    whole, ties = tl.zeros((), tl.float64), 0
    for start in range(0, count, BLOCK):
        values = _load(source, start, count, BLOCK)
        found, ties = _kept(values, border, num_ties, ties, least_weight, best, scale)
        whole += tl.sum(found, axis=0)
    return whole


@triton.jit
def _walk(source, start, count, before, target, border, num_ties, least_weight, best, scale, BLOCK: tl.constexpr):
    """Place in `source` of the first value at which the kept weights, `before` at `start`, pass `target`; rounding can
    keep them under it: then the last one with a weight."""
    none = sampling_rules.LARGEST_KEY + 0
    place, last, ties = none, -1, 0
    while (start < count) & (place == none):
        at = start + tl.arange(0, BLOCK)
        found, ties = _kept(_load(source, start, count, BLOCK), border, num_ties, ties, least_weight, best, scale)
        after = before + tl.sum(found, axis=0)
        last = tl.maximum(last, tl.max(tl.where(found > 0.0, at, -1), axis=0))
        if after > target:
            passed = tl.cumsum(found, axis=0) > (target - before).to(tl.float32)
            place = tl.min(tl.where(passed & (found > 0.0), at, none), axis=0)
            place = tl.where(place == none, last, place)  # sums of a tree and of a row differ in the last bit
        before = after
        start += BLOCK
    return tl.where(place == none, last, place)


@triton.jit
def _filtered(
    row, groups, buffer_values, buffer_ids, fields, best, scale, total, share, vocab_size, num_groups,
    BLOCK: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    top_k = tl.load(fields + sampling_rules.TOP_K)
    top_p = sampling_rules.real(fields, sampling_rules.TOP_P)
    min_p = sampling_rules.real(fields, sampling_rules.MIN_P)
    by_count = (top_k > 0) & (top_k < vocab_size)
    highest = sampling_rules.key(best)
    # What can be left out at once. Of k groups each has a value that reaches the k-th largest maximum of a group.
    least_key, least_weight = sampling_rules.SMALLEST_KEY + 0, tl.zeros((), tl.float32)
    if by_count:
        if top_k <= num_groups:
            least_key = _border(groups, num_groups, top_k, total, least_key, highest, best, scale, False, BLOCK)
    elif top_p < 1.0:
        # All that weigh less than their mean's share of what top-p leaves over cannot be needed; half, for rounding.
        least_weight = (0.5 * (1.0 - top_p) * total / vocab_size).to(tl.float32)
    else:
        least_weight = min_p
    count, smallest = _gather(
        row, buffer_values, buffer_ids, vocab_size, least_key, least_weight, best, scale, BLOCK, CAPACITY
    )
    tl.debug_barrier()  # other threads of this program read what these have written
    is_copied = count <= CAPACITY
    source = row
    if is_copied:
        source = buffer_values
    else:
        count = vocab_size
        smallest = sampling_rules.SMALLEST_KEY + 0
    border, num_ties = smallest, count
    if by_count:
        border = _border(source, count, top_k, total, smallest, highest, best, scale, False, BLOCK)
        over, equal, weight = _above(source, count, border, best, scale, BLOCK)
        num_ties = top_k - over
        total = weight + num_ties * sampling_rules.weights(sampling_rules.of_key(border), best, scale).to(tl.float64)
    if top_p < 1.0:
        wanted = top_p.to(tl.float64) * total
        inside = border
        border = _border(source, count, 0, wanted, border, highest, best, scale, True, BLOCK)
        over, equal, weight = _above(source, count, border, best, scale, BLOCK)
        each = sampling_rules.weights(sampling_rules.of_key(border), best, scale).to(tl.float64)
        missing = tl.maximum(1.0, tl.ceil(tl.maximum(wanted - weight, 0.0) / tl.maximum(each, 1e-300)))
        num_ties = tl.minimum(missing, tl.where(border == inside, num_ties, equal).to(tl.float64)).to(tl.int32)
    whole = _whole(source, count, border, num_ties, min_p, best, scale, BLOCK)
    start, before = 0, tl.zeros((), tl.float64)
    place = _walk(source, start, count, before, share * whole, border, num_ties, min_p, best, scale, BLOCK)
    if is_copied:
        place = tl.load(buffer_ids + place)
    return place


@triton.jit
def _drawn(
    row, groups, block_sums, buffer_values, buffer_ids, fields, length, best, largest, vocab_size, num_groups,
    BLOCK: tl.constexpr, TILE: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    scale = sampling_rules.scale(fields)
    share = sampling_rules.uniform(sampling_rules.seed(fields), length)
    # The sum of a block was taken over its own largest; what holds nothing but minus infinities weighs nothing.
    sums = block_sums.to(tl.float64) * sampling_rules.weights(best, largest, scale).to(tl.float64)
    total = tl.sum(sums, axis=0)
    if sampling_rules.is_filtered(fields, vocab_size):
        token = _filtered(
            row, groups, buffer_values, buffer_ids, fields, largest, scale, total, share, vocab_size, num_groups,
            TILE, CAPACITY,
        )  # fmt: skip
    else:
        target = share * total
        after = tl.cumsum(sums, axis=0)
        at = tl.arange(0, sums.shape[0])
        last = tl.max(tl.where(sums > 0.0, at, 0), axis=0)
        block = tl.minimum(tl.min(tl.where((after > target) & (sums > 0.0), at, sums.shape[0]), axis=0), last)
        before = tl.sum(tl.where(at < block, sums, 0.0), axis=0)
        end = tl.minimum(vocab_size, (block + 1) * BLOCK)
        border, none = sampling_rules.SMALLEST_KEY + 0, tl.zeros((), tl.float32)
        token = _walk(row, block * BLOCK, end, before, target, border, 0, none, largest, scale, TILE)
    return token


# ---- second launch: one program a row -------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["adjusts"])
def choose(
    source, slots, table, lengths, behind, best, index, tempered, groups, buffer_values, buffer_ids, token_ids, broken,
    num_rows, vocab_size, num_blocks, num_groups, source_stride, table_stride, adjusts,
    BLOCK: tl.constexpr, TILE: tl.constexpr, BLOCKS: tl.constexpr, CAPACITY: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    """Grid `[num_rows]`. `source` are the logits, or with `adjusts` 1 (else 0) the changed ones, the words after `scan`
    read as float32. `behind` int64 [num_rows]: how many guessed tokens lie after the known ones. `token_ids` int64 and
    `broken` int32 [num_rows]: 0, 1 where the model's largest logit is not finite, 2 where bias and penalties leave none
    that is, 3 where a row asks for what this launch leaves out. BLOCKS is `num_blocks` or the next power of two."""
    row = tl.program_id(0)
    slot = tl.load(slots + row)
    fields = table + slot * table_stride
    at = tl.arange(0, BLOCKS)
    inside = at < num_blocks
    own = tl.max(tl.load(best + row * num_blocks + at, mask=inside, other=-float("inf")), axis=0)
    at_row = row + adjusts * num_rows
    of_blocks = tl.load(best + at_row * num_blocks + at, mask=inside, other=-float("inf"))
    largest, block = tl.max(of_blocks, axis=0, return_indices=True, return_indices_tie_break_left=True)
    status = tl.where(tl.abs(largest) == float("inf"), 2, 0)
    status = tl.where(tl.abs(own) == float("inf"), 1, status)
    left_out = (adjusts == 0) & sampling_counts.has_any(fields)
    token = tl.load(index + at_row * num_blocks + block)
    samples = sampling_rules.real(fields, sampling_rules.TEMPERATURE) > 0.0
    if SAMPLES:
        if (status == 0) & samples:
            sums = tl.load(tempered + row * num_blocks + at, mask=inside, other=0.0)
            buffer = row.to(tl.int64) * CAPACITY
            token = _drawn(
                source + row.to(tl.int64) * source_stride, groups + at_row.to(tl.int64) * num_groups, sums,
                buffer_values + buffer, buffer_ids + buffer, fields, tl.load(lengths + slot) + tl.load(behind + row),
                of_blocks, largest, vocab_size, num_groups, BLOCK, TILE, CAPACITY,
            )  # fmt: skip
    else:
        left_out = left_out | samples
    status = tl.where((status == 0) & left_out, 3, status)
    tl.store(token_ids + row, tl.where(status == 0, token, 0))  # an id that can be embedded, whatever comes of it
    tl.store(broken + row, status)
