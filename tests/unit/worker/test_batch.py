"""Slot tables and the tensors built from them, against a loop that spells it out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.worker import batch, slots

GREEDY = sampling.SamplingParams(max_tokens=4, temperature=0.0)


def join(slot: int, token_ids: tuple[int, ...], pages: tuple[int, ...] = ()) -> step_plan.Join:
    return step_plan.Join(slot, token_ids, len(token_ids), GREEDY, pages)


def plan(
    *joins: step_plan.Join,
    decodes: tuple[int, ...] = (),
    chunks: tuple[step_plan.Chunk, ...] = (),
    new_pages: tuple[step_plan.NewPages, ...] = (),
) -> step_plan.StepPlan:
    return step_plan.StepPlan(step=0, joins=joins, decodes=decodes, chunks=chunks, new_pages=new_pages)


def test_a_chunk_beside_a_decode() -> None:
    tables = slots.SlotTables(4, 32, 4)
    tables.apply(plan(join(2, (10, 11, 12, 13, 14), (7, 3)), chunks=(step_plan.Chunk(2, 0, 5, True),)))
    tables.append(np.array([2]), np.array([15]))
    rows = tables.apply(
        plan(
            join(0, (20, 21, 22, 23, 24, 25, 26), (1, 9)),
            decodes=(2,),
            chunks=(step_plan.Chunk(0, 0, 6, False),),
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


@dataclass(frozen=True)
class Shape:
    """A row of a random plan: how much of a sequence is computed, and how its pages come."""

    start: int
    count: int
    samples: bool
    pages_late: int
    """Pages that come by `new_pages` and not with the join."""

    @property
    def is_decode(self) -> bool:
        return self.count == 1 and self.samples and self.start > 0


SHAPES = st.builds(Shape, st.integers(0, 20), st.integers(1, 12), st.booleans(), st.integers(0, 3))


@given(st.lists(SHAPES, min_size=1, max_size=8), st.integers(1, 7))
def test_building_equals_a_loop_over_tokens(shapes: list[Shape], block_size: int) -> None:
    """Rows come in the order of decodes, then chunks, and results in that of the rows."""
    tables = slots.SlotTables(8, 40, block_size)
    joins, late, pages_of, next_page = [], [], {}, 3
    for slot, shape in enumerate(shapes):
        needed = -(-(shape.start + shape.count) // block_size)
        pages_of[slot] = tuple(range(next_page, next_page + needed))
        next_page += needed
        with_join = max(0, needed - shape.pages_late)
        length = shape.start + shape.count + (0 if shape.samples else 1)
        joins.append(join(slot, tuple(range(100 * slot, 100 * slot + length)), pages_of[slot][:with_join]))
        if with_join < needed:
            late.append(step_plan.NewPages(slot, pages_of[slot][with_join:]))
    decodes = tuple(slot for slot, shape in enumerate(shapes) if shape.is_decode)
    chunks = tuple(
        step_plan.Chunk(slot, shape.start, shape.count, shape.samples)
        for slot, shape in enumerate(shapes)
        if not shape.is_decode
    )
    made = plan(*joins, decodes=decodes, chunks=chunks, new_pages=tuple(late))
    rows = tables.apply(made)
    built = batch.build(tables, rows)
    order = [*decodes, *(chunk.slot for chunk in chunks)]
    expected = [
        (100 * slot + place, place, pages_of[slot][place // block_size], place % block_size)
        for slot in order
        for place in range(shapes[slot].start, shapes[slot].start + shapes[slot].count)
    ]
    columns = (built.token_ids, built.positions, built.token_page, built.token_row)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert built.context_lens.tolist() == [shapes[slot].start + shapes[slot].count for slot in order]
    ends = np.cumsum([shapes[slot].count for slot in order]).tolist()
    sampled = [end - 1 for end, slot in zip(ends, order, strict=True) if shapes[slot].samples]
    assert built.sample_rows.tolist() == sampled
    assert rows.slots[rows.samples].tolist() == [slot for slot in order if shapes[slot].samples]
    for row, slot in enumerate(order):
        assert tuple(built.page_table[row, : len(pages_of[slot])].tolist()) == pages_of[slot]


def test_the_same_decodes_again_take_the_next_token_of_each() -> None:
    tables = slots.SlotTables(3, 16, 4)
    decodes = (2, 0)
    tables.apply(plan(join(0, (1, 2, 3), (5,)), join(2, (7,), (6,)), decodes=decodes))
    for expected in ([1, 3], [2, 4]):
        tables.append(np.array(decodes), np.array([70, 30]))
        rows = tables.apply(plan(decodes=decodes, new_pages=(step_plan.NewPages(0, (8 + expected[0],)),)))
        assert rows.starts.tolist() == expected
        assert batch.build(tables, rows).token_ids.tolist() == [70, 30]


def test_other_decodes_are_not_mistaken_for_those_before() -> None:
    tables = slots.SlotTables(3, 16, 4)
    tables.apply(plan(join(0, (1, 2), (5,)), join(1, (3,), (6,)), decodes=(0, 1)))
    assert tables.apply(plan(decodes=(1,))).slots.tolist() == [1]
    assert tables.apply(plan(decodes=(1, 0))).starts.tolist() == [0, 1]
    rows = tables.apply(plan())
    assert rows.slots.size == rows.starts.size == rows.counts.size == rows.samples.size == 0


def test_joining_forgets_what_the_slot_held() -> None:
    tables = slots.SlotTables(1, 16, 2)
    tables.apply(plan(join(0, (1, 2, 3, 4), (5, 6)), chunks=(step_plan.Chunk(0, 0, 4, True),)))
    rows = tables.apply(plan(join(0, (9,), (3,)), chunks=(step_plan.Chunk(0, 0, 1, True),)))
    built = batch.build(tables, rows)
    assert built.token_ids.tolist() == [9]
    assert built.page_table.tolist() == [[3]]
    assert tables.num_pages[0] == 1
    assert tables.pages[0].tolist() == [3, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("chunk", "why"),
    [
        (step_plan.Chunk(0, 0, 4, False), "more tokens than are known"),
        (step_plan.Chunk(0, 2, 1, True), "no page for the last token"),
        (step_plan.Chunk(0, 0, 2, True), "samples before the last token"),
        (step_plan.Chunk(1, 0, 1, True), "an empty slot"),
        (step_plan.Chunk(0, -1, 2, False), "before the first token"),
        (step_plan.Chunk(0, 1, 0, False), "nothing to compute"),
    ],
)
def test_a_chunk_that_contradicts_the_tables_stops(chunk: step_plan.Chunk, why: str) -> None:
    tables = slots.SlotTables(2, 8, 2)
    with pytest.raises(ValueError, match="contradicts"):
        tables.apply(plan(join(0, (1, 2, 3), (0,)), chunks=(chunk,)))


@pytest.mark.parametrize(("slot", "why"), [(0, "no page for its last token"), (1, "an empty slot")])
def test_a_decode_that_contradicts_the_tables_stops(slot: int, why: str) -> None:
    tables = slots.SlotTables(2, 8, 2)
    with pytest.raises(ValueError, match=rf"slot {slot}: computing .* contradicts"):
        tables.apply(plan(join(0, (1, 2, 3), (0,)), decodes=(slot,)))


@pytest.mark.parametrize(
    ("decodes", "chunks"),
    [((0, 0), ()), ((0,), (step_plan.Chunk(0, 0, 1, False),)), ((-1,), ()), ((), (step_plan.Chunk(-2, 0, 1, False),))],
)
def test_a_slot_computes_once_and_is_counted_from_0(
    decodes: tuple[int, ...], chunks: tuple[step_plan.Chunk, ...]
) -> None:
    tables = slots.SlotTables(2, 8, 2)
    joins = (join(0, (1, 2), (0,)), join(1, (1, 2), (1,)))
    with pytest.raises(ValueError, match="computes in each slot once"):
        tables.apply(plan(*joins, decodes=decodes, chunks=chunks))


def test_more_tokens_or_pages_than_a_row_holds_stop() -> None:
    tables = slots.SlotTables(1, 4, 2)
    with pytest.raises(ValueError, match="tokens, but a row holds"):
        tables.apply(plan(join(0, tuple(range(9)))))
    with pytest.raises(ValueError, match="a sequence has at most 2"):
        tables.apply(plan(join(0, (1,), (0, 1, 2))))
    with pytest.raises(ValueError, match="a sequence has at most 2"):
        tables.apply(plan(join(0, (1,), (0, 1)), new_pages=(step_plan.NewPages(0, (2,)),)))


def test_the_last_token_of_a_full_context_still_fits() -> None:
    tables = slots.SlotTables(1, 4, 2)
    tables.apply(plan(join(0, (1, 2, 3, 4), (0, 1)), decodes=(0,)))
    tables.append(np.array([0]), np.array([5]))
    assert tables.lengths[0] == 5
