"""Every visible pair of query and key once, bounded items, even loads, and parts that no other request decides."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_kernels.device import work_list
from tidemark_kernels.tuning import attention_rows

LLAMA = work_list.Shape(num_heads=32, num_kv_heads=8, head_dim=128, kv_bytes=512)
PROCESSORS = 132

SHAPES = st.builds(
    lambda kv_heads, group, head_dim, kv_bytes, window: work_list.Shape(
        num_heads=kv_heads * group, num_kv_heads=kv_heads, head_dim=head_dim, kv_bytes=kv_bytes, window=window
    ),
    st.sampled_from([1, 2, 8, 32]),
    st.sampled_from([1, 3, 4, 7, 8, 40]),
    st.sampled_from([16, 128, 256]),
    st.sampled_from([264.0, 1024.0, 8192.0]),
    st.none() | st.integers(1, 3000),
)
CHUNKS = st.lists(
    st.tuples(st.integers(0, 40) | st.integers(0, 400), st.integers(0, 3000)).map(lambda pair: (pair[0], sum(pair))),
    max_size=6,
)


def visible_keys(work: work_list.WorkList, chunks: list[tuple[int, int]]) -> list[np.ndarray]:
    """How often each (row, key) of each chunk is in an item that shows it to the row."""
    shape = work.shape
    seen = [np.zeros((count * shape.group, context), dtype=np.int8) for count, context in chunks]
    for items in work.items:
        for chunk, first_row, num_rows, first_key, stop_key, *_ in items.tolist():
            seen[chunk][first_row : first_row + num_rows, first_key:stop_key] += 1
    for (count, context), each in zip(chunks, seen, strict=True):
        position = context - count + np.arange(count * shape.group) // shape.group
        key = np.arange(context)
        hidden = key[None, :] > position[:, None]
        if shape.window is not None:
            hidden |= key[None, :] <= position[:, None] - shape.window
        each[hidden] = -1
    return seen


@settings(max_examples=40)
@given(SHAPES, CHUNKS)
def test_every_visible_pair_is_covered_once(shape: work_list.Shape, chunks: list[tuple[int, int]]) -> None:
    work = work_list.plan([count for count, _ in chunks], [context for _, context in chunks], shape)
    for each in visible_keys(work, chunks):
        assert ((each == 1) | (each == -1)).all()


@settings(max_examples=40)
@given(SHAPES, CHUNKS)
def test_items_are_bounded_and_longest_first(shape: work_list.Shape, chunks: list[tuple[int, int]]) -> None:
    counts, contexts = [count for count, _ in chunks], [context for _, context in chunks]
    work = work_list.plan(counts, contexts, shape)
    starts = np.cumsum([0, *counts])
    for rows, items in zip(attention_rows.ladder(shape.head_dim), work.items, strict=True):
        assert items.dtype == np.int32
        assert items.shape[1] == len(work_list.ITEM_COLUMNS)
        for chunk, first_row, num_rows, first_key, stop_key, _, first_token, position in items.tolist():
            assert 1 <= num_rows <= min(rows, counts[chunk] * shape.group - first_row)
            assert 0 <= first_key < stop_key <= contexts[chunk]
            assert (first_token, position) == (starts[chunk], contexts[chunk] - counts[chunk])
        lengths = items[:, 4] - items[:, 3]
        assert (np.diff(lengths) <= 0).all()


@settings(max_examples=30)
@given(SHAPES, CHUNKS)
def test_parts_of_split_rows_have_places_of_their_own(shape: work_list.Shape, chunks: list[tuple[int, int]]) -> None:
    counts = [count for count, _ in chunks]
    work = work_list.plan(counts, [context for _, context in chunks], shape)
    written: dict[int, tuple[int, int]] = {}
    starts = np.cumsum([0, *counts])
    for items in work.items:
        for chunk, first_row, num_rows, _, _, partial, *_ in items[items[:, 5] >= 0].tolist():
            for row in range(first_row, first_row + num_rows):
                place = partial + row - first_row
                assert place not in written
                written[place] = (int(starts[chunk]) + row // shape.group, row % shape.group)
    merged = {
        first + part * stride: (token, head)
        for token, head, first, stride, parts, *_ in work.merges.tolist()
        for part in range(parts)
    }
    assert merged == written
    assert sorted(written) == list(range(work.partial_rows))


@settings(max_examples=30)
@given(SHAPES, CHUNKS.filter(bool), st.integers(0, 5))
def test_a_chunk_alone_has_the_same_parts(shape: work_list.Shape, chunks: list[tuple[int, int]], at: int) -> None:
    at %= len(chunks)
    both = work_list.plan([count for count, _ in chunks], [context for _, context in chunks], shape)
    alone = work_list.plan([chunks[at][0]], [chunks[at][1]], shape)
    for items, own in zip(both.items, alone.items, strict=True):
        assert items[items[:, 0] == at][:, 1:5].tolist() == own[:, 1:5].tolist()


@settings(max_examples=30)
@given(SHAPES.filter(lambda shape: shape.group <= 8), st.integers(1, 5), st.data())
def test_room_holds_any_step(shape: work_list.Shape, max_count: int, data: st.DataObject) -> None:
    contexts = data.draw(st.lists(st.integers(max_count, 9000), max_size=5))
    counts = [data.draw(st.integers(0, max_count)) for _ in contexts]
    room = work_list.capacity(5, max_count, 9000, sum(contexts), shape)
    work_list.plan(counts, contexts, shape, room)


def test_small_room_is_refused() -> None:
    room = work_list.Capacity(items=(1, 0, 0), merges=0, partial_rows=0)
    with pytest.raises(ValueError, match=r"a step needs Capacity\(items=\(2, 0, 0\).*expected at most"):
        work_list.plan([1, 1], [10, 10], LLAMA, room)


@pytest.mark.parametrize(
    ("counts", "contexts", "message"),
    [
        ([2], [1], "chunk 0 has 2 queries and a context of 1"),
        ([1, -1], [1, 1], "chunk 1 has -1 queries"),
        ([1], [1, 2], "counts and contexts have the shapes"),
    ],
)
def test_impossible_lengths_are_refused(counts: list[int], contexts: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        work_list.plan(counts, contexts, LLAMA)


def test_impossible_shapes_are_refused() -> None:
    for wrong, message in (
        ({"num_heads": 5}, "num_heads is 5"),
        ({"window": 0}, "window is 0"),
        ({"kv_bytes": 0}, "kv"),
    ):
        with pytest.raises(ValueError, match=message):
            work_list.Shape(**({"num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "kv_bytes": 256} | wrong))


# ------------------------------------------------------------------------------------- figures of the docstring


def idle_percent(lengths: np.ndarray, kv_heads: int) -> float:
    """Of 132 processors with two programs each, which take the longest pairs of item and head first."""
    programs = np.zeros(2 * PROCESSORS)
    for length in np.repeat(np.sort(lengths)[::-1], kv_heads):
        programs[programs.argmin()] += length
    return float(100 * (1 - programs.mean() / programs.max()))


BATCHES = {
    "1 x 128k + 31 x 4k": [131072, *[4096] * 31],
    "32 x 4k": [4096] * 32,
    "1 x 4k": [4096],
    "256 x 2k": [2048] * 256,
}


def figures(contexts: list[int]) -> tuple[int, float, float]:
    """Items; idle share; idle share if all keys of the batch were cut into as many equal parts as programs run."""
    work = work_list.plan([1] * len(contexts), contexts, LLAMA)
    lengths = work.items[0][:, 4] - work.items[0][:, 3]
    tiles = sum(contexts) // 128 * LLAMA.num_kv_heads
    most = -(-tiles // (2 * PROCESSORS))
    return len(lengths), idle_percent(lengths, LLAMA.num_kv_heads), 100 * (1 - tiles / (2 * PROCESSORS) / most)


@pytest.mark.parametrize("name", BATCHES)
def test_figures_of_the_docstring(name: str) -> None:
    line = re.search(rf"\n +{re.escape(name)} +(\d+) +([\d.]+) +([\d.]+)\n", str(work_list.__doc__))
    assert line is not None
    items, idle, by_batch = figures(BATCHES[name])
    assert (line[1], line[2], line[3]) == (str(items), f"{idle:.1f}", f"{by_batch:.1f}")


def test_one_long_sequence_does_not_hold_up_the_short_ones() -> None:
    assert figures(BATCHES["1 x 128k + 31 x 4k"])[1] < 5
