"""Who left is forgotten at once, the turns of tenants are right, and nothing grows with either."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime.core import block_pool, sampling, sequence, waiting_queue


class Tokens(list[int]):
    """Of which can be told whether somebody still has them."""


def make(order: int, *, tenant: str = "", max_tokens: int = 10, is_retry: bool = False) -> sequence.Sequence:
    params = sampling.SamplingParams(max_tokens)
    return sequence.Sequence(
        str(order), Tokens([1]), params, order=order, arrival_seconds=0.0, tenant=tenant, is_retry=is_retry
    )


def lane_of(queue: waiting_queue.WaitingQueue) -> waiting_queue.LaneQueue:
    found = queue.highest()
    assert found is not None
    return found.lanes[sequence.Lane.EXPRESS]


def in_turn(queue: waiting_queue.WaitingQueue, limit: int = 1000) -> list[str]:
    return [entry.id for entry in lane_of(queue).candidates(limit)] if len(queue) else []


def take(queue: waiting_queue.WaitingQueue, entry: sequence.Sequence) -> None:
    queue.taken(entry, 0.5)
    entry.started = True
    entry.state = sequence.State.RUNNING


def leave(queue: waiting_queue.WaitingQueue, entry: sequence.Sequence) -> None:
    queue.left(entry)
    entry.state = sequence.State.FINISHED


Leaving = Callable[[waiting_queue.WaitingQueue, sequence.Sequence], None]


@pytest.mark.parametrize("leaving", [leave, take])
def test_who_left_behind_a_waiting_head_is_not_kept(leaving: Leaving) -> None:
    queue = waiting_queue.WaitingQueue()
    queue.add(make(0, tenant="first"), by_tenant=True)
    gone = [make(1 + index, tenant=str(index % 3), is_retry=index % 2 == 1) for index in range(20)]
    seen = [weakref.ref(entry.token_ids) for entry in gone]
    for entry in gone:
        queue.add(entry, by_tenant=True)
    queue.add(make(100, tenant="last"), by_tenant=True)
    for entry in gone:
        leaving(queue, entry)
    del entry, gone
    gc.collect()
    assert [ref() for ref in seen] == [None] * 20
    assert in_turn(queue) == ["0", "100"]
    queue.check_integrity()


def test_a_preempted_one_that_left_is_not_kept() -> None:
    queue = waiting_queue.WaitingQueue()
    entries = [make(index) for index in range(5)]
    for entry in entries:
        entry.started = True
        queue.add_preempted(entry)
    seen = [weakref.ref(entry.token_ids) for entry in entries]
    for entry in entries[1:4]:
        leave(queue, entry)
    del entries[1:4], entry
    gc.collect()
    assert [ref() is None for ref in seen] == [False, True, True, True, False]
    for entry in entries:
        found = queue.highest()
        assert found is not None
        assert found.first_preempted() is entry
        queue.taken(entry, 0.5)
    assert len(queue) == 0


@pytest.mark.parametrize("num_tenants", [3, 3000])
def test_what_a_turn_looks_at_does_not_grow_with_the_tenants(num_tenants: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = waiting_queue.WaitingQueue()
    for index in range(num_tenants):
        queue.add(make(index, tenant=f"t{index}"), by_tenant=True)
    looks = itertools.count()
    is_waiting = waiting_queue._Turns.__bool__

    def counted(turns: waiting_queue._Turns) -> bool:
        next(looks)
        return is_waiting(turns)

    place = waiting_queue._ByServed._place

    def counted_place(tenant: waiting_queue._Tenant) -> tuple[float, int]:
        next(looks)
        return place(tenant)

    monkeypatch.setattr(waiting_queue._Turns, "__bool__", counted)
    monkeypatch.setattr(waiting_queue._ByServed, "_place", staticmethod(counted_place))
    assert in_turn(queue, 2) == ["0", "1"]
    first = next(lane_of(queue).candidates(1))
    take(queue, first)
    last = make(num_tenants, tenant="new")
    queue.add(last, by_tenant=True)
    leave(queue, last)
    assert next(looks) < 150


class Simple:
    """The same rules, each time from the beginning."""

    def __init__(self) -> None:
        self.waiting: list[sequence.Sequence] = []
        self.served: dict[str, float] = {}
        self.clock = 0.0

    def add(self, entry: sequence.Sequence) -> None:
        if not any(other.tenant == entry.tenant for other in self.waiting):
            self.served[entry.tenant] = max(self.served.get(entry.tenant, 0.0), self.clock)
        self.waiting.append(entry)

    def take(self, entry: sequence.Sequence) -> None:
        self.waiting.remove(entry)
        self.clock = max(self.clock, self.served[entry.tenant])
        self.served[entry.tenant] += entry.num_max_tokens

    def places(self) -> list[tuple[bool, float]]:
        """Of each in its turn; of two tenants that were served alike either may be the first."""
        return sorted((entry.is_retry, self.served[entry.tenant]) for entry in self.waiting)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "take", "leave"]), st.integers(0, 9), st.integers(0, 4), st.booleans()),
    max_size=60,
)


@given(OPERATIONS)
def test_turns_are_as_if_sorted_each_time(operations: list[tuple[str, int, int, bool]]) -> None:
    queue, simple = waiting_queue.WaitingQueue(), Simple()
    for order, (what, number, tenant, is_retry) in enumerate(operations):
        if what == "add":
            entry = make(order, tenant=str(tenant), max_tokens=1 + 3 * number, is_retry=is_retry)
            queue.add(entry, by_tenant=True)
            simple.add(entry)
        elif simple.waiting and what == "take":
            entry = list(lane_of(queue).candidates(number + 1))[-1]
            take(queue, entry)
            simple.take(entry)
        elif simple.waiting:
            entry = simple.waiting.pop(number % len(simple.waiting))
            leave(queue, entry)
        check(queue, simple)


def check(queue: waiting_queue.WaitingQueue, simple: Simple) -> None:
    queue.check_integrity()
    assert len(queue) == len(simple.waiting)
    if not simple.waiting:
        return
    lane = lane_of(queue)
    found = list(lane.candidates(len(simple.waiting)))
    assert [(entry.is_retry, simple.served[entry.tenant]) for entry in found] == simple.places()
    for tenant in {entry.tenant for entry in found}:
        for is_retry in (False, True):
            of_tenant = [entry.order for entry in found if entry.tenant == tenant and entry.is_retry is is_retry]
            assert of_tenant == sorted(of_tenant)
    assert lane.oldest() is simple.waiting[0]


def test_tenants_that_have_nothing_to_be_remembered_for_are_forgotten() -> None:
    queue = waiting_queue.WaitingQueue()
    queue.add(make(0, tenant="stays"), by_tenant=True)
    for index in range(1, 50):
        entry = make(index, tenant=f"t{index}")
        queue.add(entry, by_tenant=True)
        leave(queue, entry)
    assert set(lane_of(queue)._tenants) == {"stays"}
    entry = make(50, tenant="served")
    queue.add(entry, by_tenant=True)
    take(queue, entry)
    assert set(lane_of(queue)._tenants) == {"stays", "served"}
    for order in (51, 52, 53):
        queue.add(make(order, tenant="stays"), by_tenant=True)
        take(queue, next(lane_of(queue).candidates(1)))
    assert set(lane_of(queue)._tenants) == {"stays"}


def test_the_check_notices_one_that_waits_without_a_turn() -> None:
    queue = waiting_queue.WaitingQueue()
    entries = [make(0, tenant="a"), make(1, tenant="b")]
    for entry in entries:
        queue.add(entry, by_tenant=True)
    lane = lane_of(queue)
    lane._tenants["b"].turns[False].remove(entries[1])
    with pytest.raises(block_pool.PoolCorrupted):
        queue.check_integrity()
