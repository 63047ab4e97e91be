"""What the programs of paged attention do in a step: made on the host, from counts and contexts alone.

A chunk of `count` queries, the newest of `context` tokens, has `count * group` rows: one for each head that shares a KV
head. They are cut into tiles of the smallest size of the ladder (`tuning.attention_rows`) that holds them, or of the
largest; each size is a launch of its own, and most steps need one or two: decode steps have the first, drafts of a few
tokens the second, prompts the third. A tile's keys run from the first that its first row sees (sliding window) to the
last that its last row sees.

Where a chunk has too few tiles to fill a card, its keys are split, and `merges` says how the parts become one:

    wanted parts = PROGRAMS / (KV heads * tiles)
    keys a part  = max(least, context / wanted), a multiple of 128
    least        : a part's sums are written and read once, which must cost at most 3 % of its keys and values

All of it depends on the chunk's own count and context. So a request's numbers are the same bit for bit alone and in any
company, which a split over whatever processors happen to be free could not give. What that costs is idle time at the
end of a launch: with 132 processors that take two programs each, 8 KV heads of 128 elements in bfloat16, 4 heads each
(computed by `tests/unit/kernels_device/test_work_list.py`, which compares these figures):

    batch                   items   idle, %   idle with a split by batch, %
    1 x 128k + 31 x 4k        373       1.5     1.5
    32 x 4k                   352       3.0     3.0
    1 x 4k                     11      67.7     3.0
    256 x 2k                 1536       0.7     0.7

One short sequence alone leaves two thirds of a card idle; its 16 MiB take 4 microseconds of a whole card, about as long
as the launch itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemark_kernels.tuning import attention_rows

Int32 = npt.NDArray[np.int32]

ITEM_COLUMNS = ("chunk", "first row", "rows", "first key", "stop key", "first partial", "first token", "position")
"""`first partial`: -1 where the item has all keys of its rows. `first token`: where the chunk's queries begin in the
batch. `position`: of the chunk's first query in its sequence."""
MERGE_COLUMNS = ("token", "head in group", "first partial", "stride", "parts", "", "", "")
"""One row whose keys were split; its parts are the partial rows `first partial + i * stride`."""

PROGRAMS = 256
"""Programs that one sequence alone is cut into, if it is long enough: about two for each processor of a large card. A
constant, not the card's number: else a request's numbers would depend on the card's size."""
ALIGNED_KEYS = 128
"""Parts begin at multiples of it, tiles of keys are at most as large."""
PARTIAL_SHARE = 0.03
"""What the sums of parts may cost, of the bytes of their keys and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What of a model decides its work lists. Layers with another window need another list."""

    num_heads: int
    num_kv_heads: int
    """Both of this device, where a model is cut into several."""
    head_dim: int
    kv_bytes: float
    """K, V and scales of a token in one KV head; the mean, where a map mixes dtypes."""
    window: int | None = None

    def __post_init__(self) -> None:
        if self.num_kv_heads < 1 or self.num_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads is {self.num_heads}, expected a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim < 1 or not self.kv_bytes > 0:
            raise ValueError(f"head_dim is {self.head_dim} and kv_bytes {self.kv_bytes}, expected more than 0")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window is {self.window}, expected at least 1, or None")

    @property
    def group(self) -> int:
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The most that lists of a captured graph hold. Its launches are those with room here, whether used or not."""

    items: tuple[int, ...]
    """For each size of the ladder."""
    merges: int
    partial_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkList:
    shape: Shape
    num_chunks: int
    num_tokens: int
    max_context: int
    items: tuple[Int32, ...]
    """For each size of the ladder `[num_items, 8]` (ITEM_COLUMNS), the longest first."""
    merges: Int32
    """`[num_merges, 8]` (MERGE_COLUMNS)."""
    partial_rows: int
    """Rows of the workspace that items write."""

    @property
    def capacity(self) -> Capacity:
        """What it needs."""
        return Capacity(
            items=tuple(len(each) for each in self.items), merges=len(self.merges), partial_rows=self.partial_rows
        )


def least_keys(shape: Shape, rows: int) -> int:
    """Keys of a part of a tile of `rows`, at least."""
    partial_bytes = 2 * rows * (shape.head_dim + 2) * 4
    return _aligned(math.ceil(partial_bytes / (PARTIAL_SHARE * shape.kv_bytes)))


def plan(counts: npt.ArrayLike, contexts: npt.ArrayLike, shape: Shape, capacity: Capacity | None = None) -> WorkList:
    """counts `[num_chunks]`: queries, 0 or more, one chunk after the other; contexts: tokens with them.

    Raises `ValueError` for impossible lengths, and where `capacity` is given and too small.
    """
    count, context = np.asarray(counts, dtype=np.int64), np.asarray(contexts, dtype=np.int64)
    _check_lengths(count, context)
    sizes = np.asarray(attention_rows.ladder(shape.head_dim))
    rows = count * shape.group
    size = sizes[np.minimum(np.searchsorted(sizes, rows), len(sizes) - 1)]
    tiles = -(-rows // size)
    first_token = np.cumsum(count) - count

    # ---- tiles, of all chunks one after the other
    chunk = np.repeat(np.arange(len(count)), tiles)
    tile = _counted(tiles)
    first_row = tile * size[chunk]
    num_rows = np.minimum(size[chunk], rows[chunk] - first_row)
    position = (context - count)[chunk]
    stop = position + (first_row + num_rows - 1) // shape.group + 1
    first = np.zeros_like(stop)
    if shape.window is not None:
        first = np.maximum(0, position + first_row // shape.group - shape.window + 1)

    # ---- their parts
    keys = _keys_a_part(rows, size, tiles, context, shape)[chunk]
    begin = first // ALIGNED_KEYS * ALIGNED_KEYS
    parts = -(-(stop - begin) // keys)
    is_split = parts > 1
    partial = np.cumsum(np.where(is_split, parts * num_rows, 0))
    partial_rows = int(partial[-1]) if len(partial) else 0
    partial -= np.where(is_split, parts * num_rows, 0)

    of, part = np.repeat(np.arange(len(chunk)), parts), _counted(parts)
    part_first = np.maximum(first[of], begin[of] + part * keys[of])
    part_stop = np.minimum(stop[of], begin[of] + (part + 1) * keys[of])
    slot = np.where(is_split[of], partial[of] + part * num_rows[of], -1)
    columns = (chunk[of], first_row[of], num_rows[of], part_first, part_stop, slot)
    items = np.stack((*columns, first_token[chunk[of]], position[of]), axis=1).astype(np.int32)
    order = np.argsort(part_first - part_stop, kind="stable")
    items, launch = items[order], size[chunk[of]][order]
    work = WorkList(
        shape=shape,
        num_chunks=len(count),
        num_tokens=int(count.sum()),
        max_context=int(context.max()) if len(context) else 0,
        items=tuple(items[launch == each] for each in sizes),
        merges=_merges(first_token[chunk], first_row, num_rows, partial, parts, shape.group),
        partial_rows=partial_rows,
    )
    if capacity is not None:
        check_capacity(work, capacity)
    return work


def capacity(num_chunks: int, max_count: int, max_context: int, total_tokens: int, shape: Shape) -> Capacity:
    """Room for any step of up to `num_chunks` chunks of 0 to `max_count` queries, whose contexts are at most
    `max_context` and together at most `total_tokens` (the tokens of a pool, if no pages are shared)."""
    sizes, wanted = attention_rows.ladder(shape.head_dim), PROGRAMS // shape.num_kv_heads
    rows = max_count * shape.group
    if rows > sizes[-1]:
        raise ValueError(
            f"chunks of {max_count} queries and {shape.group} heads have {rows} rows, expected at most {sizes[-1]} "
            "where a graph is captured"
        )
    items, partial_rows, merges, below = [], 0, 0, 0
    for size in sizes:
        most = min(rows, size)
        if below >= rows or (first_count := below // shape.group + 1) * shape.group > most:
            items.append(0)
            below = size
            continue
        parts = _most_parts(num_chunks, max_context, total_tokens, wanted, least_keys(shape, first_count * shape.group))
        items.append(parts)
        partial_rows = max(partial_rows, parts * most)
        merges = num_chunks * most
        below = size
    return Capacity(items=tuple(items), merges=merges, partial_rows=partial_rows)


def check_capacity(work: WorkList, room: Capacity) -> None:
    needed = work.capacity
    fits = len(needed.items) == len(room.items) and all(n <= m for n, m in zip(needed.items, room.items, strict=True))
    if not (fits and needed.merges <= room.merges and needed.partial_rows <= room.partial_rows):
        raise ValueError(f"a step needs {needed}, expected at most {room}")


def _most_parts(num_chunks: int, max_context: int, total_tokens: int, wanted: int, least: int) -> int:
    # The first part of a window begins at a multiple of 128 below it: one part more than keys / least.
    one = min(max(1, wanted) + 2, max_context // least + 2)
    return min(num_chunks * one, 2 * num_chunks + total_tokens // least)


def _check_lengths(count: npt.NDArray[np.int64], context: npt.NDArray[np.int64]) -> None:
    if count.ndim != 1 or count.shape != context.shape:
        raise ValueError(
            f"counts and contexts have the shapes {count.shape} and {context.shape}, expected one and equal"
        )
    bad = np.flatnonzero((count < 0) | (context < count) | (context >= 2**31))
    if len(bad):
        at = bad[0]
        raise ValueError(
            f"chunk {at} has {count[at]} queries and a context of {context[at]}, expected 0 <= queries <= it"
        )


def _keys_a_part(
    rows: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
    tiles: npt.NDArray[np.int64],
    context: npt.NDArray[np.int64],
    shape: Shape,
) -> npt.NDArray[np.int64]:
    seen = context if shape.window is None else np.minimum(context, shape.window + size)
    wanted = PROGRAMS // (shape.num_kv_heads * np.maximum(tiles, 1))
    partial_bytes = 2 * np.minimum(rows, size) * (shape.head_dim + 2) * 4
    least = np.ceil(partial_bytes / (PARTIAL_SHARE * shape.kv_bytes)).astype(np.int64)
    keys = np.maximum(least, -(-seen // np.maximum(wanted, 1)))
    keys = -(-keys // ALIGNED_KEYS) * ALIGNED_KEYS
    return np.where(wanted > 1, keys, _aligned(2**31 - ALIGNED_KEYS))


def _merges(
    first_token: npt.NDArray[np.int64],
    first_row: npt.NDArray[np.int64],
    num_rows: npt.NDArray[np.int64],
    partial: npt.NDArray[np.int64],
    parts: npt.NDArray[np.int64],
    group: int,
) -> Int32:
    """One line for each row of the tiles with several parts."""
    split = np.flatnonzero(parts > 1)
    of, row = np.repeat(split, num_rows[split]), _counted(num_rows[split])
    of_chunk = first_row[of] + row
    nothing = np.zeros_like(of)
    columns = (first_token[of] + of_chunk // group, of_chunk % group, partial[of] + row, num_rows[of], parts[of])
    return np.stack((*columns, nothing, nothing, nothing), axis=1).astype(np.int32)


def _counted(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0 to length - 1, for each length, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def _aligned(keys: int) -> int:
    return -(-keys // ALIGNED_KEYS) * ALIGNED_KEYS
