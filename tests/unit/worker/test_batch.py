"""Slot tables and the tensors built from them, against a loop that spells it out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.worker import batch, slots

GREEDY = sampling.SamplingParams(max_tokens=4, temperature=0.0)


def join(slot: int, *token_ids: int) -> step_plan.Join:
    return step_plan.Join(slot, token_ids, len(token_ids), GREEDY)


def plan(joins: tuple[step_plan.Join, ...], *chunks: step_plan.Chunk) -> step_plan.StepPlan:
    return step_plan.StepPlan(0, joins, chunks)


def test_a_chunk_beside_a_decode() -> None:
    tables = slots.SlotTables(4, 32, 4)
    first = plan((join(2, 10, 11, 12, 13, 14),), step_plan.Chunk(2, 0, 5, (7, 3), True))
    tables.apply(first)
    tables.append(np.array([2]), np.array([15]))
    rows = tables.apply(
        plan(
            (join(0, 20, 21, 22, 23, 24, 25, 26),),
            step_plan.Chunk(2, 5, 1, (), True),
            step_plan.Chunk(0, 0, 6, (1, 9), False),
        )
    )
    built = batch.build(tables, rows)
    assert built.token_ids.tolist() == [15, 20, 21, 22, 23, 24, 25]
    assert built.positions.tolist() == [5, 0, 1, 2, 3, 4, 5]
    assert built.token_page.tolist() == [3, 1, 1, 1, 1, 9, 9]
    assert built.token_row.tolist() == [1, 0, 1, 2, 3, 0, 1]
    assert built.page_table.tolist() == [[7, 3], [1, 9]]
    assert built.query_start.tolist() == [0, 1, 7]
    assert built.context_lens.tolist() == [6, 6]
    assert built.sample_rows.tolist() == [0]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 7),
)
def test_building_equals_a_loop_over_tokens(shapes: list[tuple[int, int, bool]], block_size: int) -> None:
    tables = slots.SlotTables(8, 40, block_size)
    joins, chunks, next_page = [], [], 0
    for slot, (start, count, samples) in enumerate(shapes):
        length = start + count + (0 if samples else 1)
        joins.append(join(slot, *range(100 * slot, 100 * slot + length)))
        needed = -(-(start + count) // block_size)
        chunks.append(step_plan.Chunk(slot, start, count, tuple(range(next_page, next_page + needed)), samples))
        next_page += needed
    built = batch.build(tables, tables.apply(plan(tuple(joins), *chunks)))
    expected = [
        (100 * chunk.slot + place, place, chunk.new_pages[place // block_size], place % block_size)
        for chunk in chunks
        for place in range(chunk.start, chunk.start + chunk.count)
    ]
    columns = (built.token_ids, built.positions, built.token_page, built.token_row)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert built.context_lens.tolist() == [chunk.start + chunk.count for chunk in chunks]
    ends = np.cumsum([chunk.count for chunk in chunks])
    sampled = [int(end) - 1 for end, chunk in zip(ends, chunks, strict=True) if chunk.samples]
    assert built.sample_rows.tolist() == sampled
    for row, chunk in enumerate(chunks):
        assert tuple(built.page_table[row, : len(chunk.new_pages)].tolist()) == chunk.new_pages


def test_joining_forgets_what_the_slot_held() -> None:
    tables = slots.SlotTables(1, 16, 2)
    tables.apply(plan((join(0, 1, 2, 3, 4),), step_plan.Chunk(0, 0, 4, (5, 6), True)))
    rows = tables.apply(plan((join(0, 9),), step_plan.Chunk(0, 0, 1, (3,), True)))
    built = batch.build(tables, rows)
    assert built.token_ids.tolist() == [9]
    assert built.page_table.tolist() == [[3]]
    assert tables.num_pages[0] == 1
    assert tables.pages[0].tolist() == [3, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("chunk", "why"),
    [
        (step_plan.Chunk(0, 0, 4, (0, 1), False), "more tokens than are known"),
        (step_plan.Chunk(0, 0, 3, (0,), True), "no page for the last token"),
        (step_plan.Chunk(0, 0, 2, (0,), True), "samples before the last token"),
        (step_plan.Chunk(1, 0, 1, (0,), True), "an empty slot"),
    ],
)
def test_a_plan_that_contradicts_the_tables_stops(chunk: step_plan.Chunk, why: str) -> None:
    tables = slots.SlotTables(2, 8, 2)
    with pytest.raises(ValueError, match="contradicts"):
        tables.apply(plan((join(0, 1, 2, 3),), chunk))


def test_more_tokens_or_pages_than_a_row_holds_stop() -> None:
    tables = slots.SlotTables(1, 4, 2)
    with pytest.raises(ValueError, match="tokens, but a row holds"):
        tables.apply(plan((join(0, *range(9)),), step_plan.Chunk(0, 0, 1, (0,), False)))
    with pytest.raises(ValueError, match="a sequence has at most 2"):
        tables.apply(plan((join(0, 1),), step_plan.Chunk(0, 0, 1, (0, 1, 2), True)))


def test_the_last_token_of_a_full_context_still_fits() -> None:
    tables = slots.SlotTables(1, 4, 2)
    tables.apply(plan((join(0, 1, 2, 3, 4),), step_plan.Chunk(0, 0, 4, (0, 1), True)))
    tables.append(np.array([0]), np.array([5]))
    assert tables.lengths[0] == 5
