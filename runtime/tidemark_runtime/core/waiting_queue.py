"""Who waits, in which turn.

Strict classes of priority. Within a class: first those that were preempted, in the order in which they arrived; then
those that never ran, in two lanes by their weight, first tries before retries, and, where asked for, tenants in turn.
What the lanes have had is kept by class, so that ageing can lift one lane over the other without starving that one.

Leaving from the middle (abort, timeout, a start ahead of others) is lazy: an entry that no longer waits for its first
turn is skipped when it comes up, so that nothing here grows slower with the number of those that wait.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemark_runtime.core import block_pool, sequence


def _is_fresh(entry: sequence.Sequence) -> bool:
    return entry.state is sequence.State.WAITING and not entry.started


def _oldest(heads: Iterable[sequence.Sequence | None]) -> sequence.Sequence | None:
    return min((head for head in heads if head is not None), key=lambda entry: entry.order, default=None)


class _Line:
    """First come, first served."""

    def __init__(self) -> None:
        self._entries: deque[sequence.Sequence] = deque()

    def __bool__(self) -> bool:
        return self.head() is not None

    def __iter__(self) -> Iterator[sequence.Sequence]:
        self.head()
        return (entry for entry in self._entries if _is_fresh(entry))

    def append(self, entry: sequence.Sequence) -> None:
        self._entries.append(entry)

    def head(self) -> sequence.Sequence | None:
        while self._entries and not _is_fresh(self._entries[0]):
            self._entries.popleft()
        return self._entries[0] if self._entries else None

    def tail(self) -> sequence.Sequence | None:
        while self._entries and not _is_fresh(self._entries[-1]):
            self._entries.pop()
        return self._entries[-1] if self._entries else None


class _Tenant:
    def __init__(self, served: float) -> None:
        self.first_tries = _Line()
        self.retries = _Line()
        self.served = served
        """Tokens of its requests that had their first turn, counted from where the others were when it came."""

    def __bool__(self) -> bool:
        return bool(self.first_tries) or bool(self.retries)


class LaneQueue:
    """Fresh sequences of one lane and class."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._first_tries = _Line()
        self._retries = _Line()
        self._clock = 0.0
        """`served` of the tenant that had the last turn: where a tenant that comes now begins."""

    def __bool__(self) -> bool:
        return bool(self._first_tries) or bool(self._retries)

    def __iter__(self) -> Iterator[sequence.Sequence]:
        """First tries, then retries, each in order of arrival."""
        yield from self._first_tries
        yield from self._retries

    def add(self, entry: sequence.Sequence) -> None:
        line = self._tenants.get(entry.turn_of)
        if line is None:
            self._forget_idle()
            line = self._tenants[entry.turn_of] = _Tenant(self._clock)
        elif not line:
            line.served = max(line.served, self._clock)
        (line.retries if entry.is_retry else line.first_tries).append(entry)
        (self._retries if entry.is_retry else self._first_tries).append(entry)

    def oldest(self) -> sequence.Sequence | None:
        """Of all tenants, first tries and retries."""
        return _oldest(line.head() for line in (self._first_tries, self._retries))

    def oldest_to_age(self) -> sequence.Sequence | None:
        """The one whose age may bring its turn: a retry only where no first try waits, or a storm of old retries would
        push out first tries."""
        return self._first_tries.head() or self._retries.head()

    def candidates(self, limit: int) -> Iterator[sequence.Sequence]:
        """The first `limit` in the order of their turns: tenants that were served less first, each with its first
        tries, then all retries."""
        tenants = sorted((item for item in self._tenants.values() if item), key=lambda item: item.served)
        for retries in (False, True):
            for tenant in tenants:
                for entry in tenant.retries if retries else tenant.first_tries:
                    if not limit:
                        return
                    limit -= 1
                    yield entry

    def started(self, entry: sequence.Sequence) -> None:
        """`entry` gets its first turn now."""
        line = self._tenants[entry.turn_of]
        self._clock = max(self._clock, line.served)
        line.served += entry.num_max_tokens

    def last(self, *, retries: bool) -> sequence.Sequence | None:
        """The one that came last, of the retries or of the first tries."""
        lines = (item.retries if retries else item.first_tries for item in self._tenants.values())
        tails = [tail for line in lines if (tail := line.tail()) is not None]
        return max(tails, key=lambda entry: entry.order, default=None)

    def _forget_idle(self) -> None:
        self._tenants = {name: item for name, item in self._tenants.items() if item or item.served > self._clock}


@dataclass(slots=True)
class Amount:
    """Some of those that wait."""

    num: int = 0
    num_tokens: int = 0
    """With the most they may generate."""

    def count(self, entry: sequence.Sequence, change: int) -> None:
        self.num += change
        self.num_tokens += change * entry.num_max_tokens

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.num + other.num, self.num_tokens + other.num_tokens)


class PriorityClass:
    """All that wait with one priority."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.fresh = Amount()
        """Of all that wait for a first turn."""
        self.retries = Amount()
        """Of these, the retries."""
        self.lanes = {lane: LaneQueue() for lane in sequence.Lane}
        self._served = dict.fromkeys(sequence.Lane, 0.0)
        """Tokens of the requests that had their first turn, divided by the lane's share."""
        self._preempted: list[sequence.Sequence] = []

    def __bool__(self) -> bool:
        return self.first_preempted() is not None or any(self.lanes.values())

    def __iter__(self) -> Iterator[sequence.Sequence]:
        """Everybody."""
        yield from (entry for entry in self._preempted if entry.state is sequence.State.WAITING)
        for lane in self.lanes.values():
            yield from lane

    def first_preempted(self) -> sequence.Sequence | None:
        while self._preempted and self._preempted[0].state is not sequence.State.WAITING:
            del self._preempted[0]
        return self._preempted[0] if self._preempted else None

    def add_preempted(self, entry: sequence.Sequence) -> None:
        bisect.insort(self._preempted, entry, key=lambda item: item.order)

    def pop_preempted(self) -> None:
        del self._preempted[0]

    def add_fresh(self, entry: sequence.Sequence) -> None:
        lane = self.lanes[entry.lane]
        if not lane:
            # Who was away has no claim to what the other lane had meanwhile.
            self._served[entry.lane] = max(self._served.values())
        lane.add(entry)

    def started(self, entry: sequence.Sequence, lane_share: float) -> None:
        """`entry` gets its first turn; its lane is to have `lane_share` (0 to 1) of what both have."""
        self.lanes[entry.lane].started(entry)
        self._served[entry.lane] += entry.num_max_tokens / lane_share

    def is_ahead(self, lane: sequence.Lane) -> bool:
        """Whether `lane` had more of its share than the other one, since both have been waiting."""
        return self._served[lane] > min(self._served.values())

    def oldest_fresh(self) -> sequence.Sequence | None:
        """Of both lanes."""
        return _oldest(lane.oldest() for lane in self.lanes.values())

    def last_fresh(self, *, retries: bool) -> sequence.Sequence | None:
        tails = [tail for lane in self.lanes.values() if (tail := lane.last(retries=retries)) is not None]
        return max(tails, key=lambda entry: entry.order, default=None)


class WaitingQueue:
    """Counts, and the classes by priority."""

    def __init__(self) -> None:
        self._classes: list[PriorityClass] = []
        """The highest priority first."""
        self._num_waiting = dict.fromkeys(sequence.Lane, 0)

    def __len__(self) -> int:
        return sum(self._num_waiting.values())

    def num_in(self, lane: sequence.Lane) -> int:
        return self._num_waiting[lane]

    def highest(self) -> PriorityClass | None:
        """Of the classes in which somebody waits."""
        return next((item for item in self._classes if item), None)

    def add(self, entry: sequence.Sequence, *, by_tenant: bool) -> None:
        """For a first turn."""
        entry.turn_of = entry.tenant if by_tenant else ""
        self._class_of(entry).add_fresh(entry)
        self._count(entry, 1)

    def add_preempted(self, entry: sequence.Sequence) -> None:
        """In its old turn."""
        self._class_of(entry).add_preempted(entry)
        self._count(entry, 1)

    def taken(self, entry: sequence.Sequence, lane_share: float) -> None:
        """`entry` is about to get its turn, of a lane that is to have `lane_share`; called before its state changes."""
        found = self._class_of(entry)
        if entry.started:
            assert found.first_preempted() is entry  # noqa: S101  nobody overtakes a preempted one
            found.pop_preempted()
        else:
            found.started(entry, lane_share)
        self._count(entry, -1)

    def left(self, entry: sequence.Sequence) -> None:
        """A waiting `entry` is about to be finished."""
        self._count(entry, -1)

    def oldest_fresh(self) -> sequence.Sequence | None:
        """Of those that never ran, the one that waits longest."""
        return _oldest(item.oldest_fresh() for item in self._classes)

    @property
    def fresh(self) -> Amount:
        """Of all that wait for a first turn."""
        return sum((item.fresh for item in self._classes), Amount())

    @property
    def retries(self) -> Amount:
        """Of these, the retries."""
        return sum((item.retries for item in self._classes), Amount())

    def ahead_of(self, priority: int) -> Amount:
        """Of those whose first turn comes before that of a newcomer."""
        return sum((item.fresh for item in self._classes if item.priority >= priority), Amount())

    def sheddable(self, priority: int, *, is_retry: bool) -> Amount:
        """What the queue could lose for a newcomer: lower priorities, and for a first try the retries of its own."""
        lower = sum((item.fresh for item in self._classes if item.priority < priority), Amount())
        own = (item.retries for item in self._classes if item.priority == priority and not is_retry)
        return sum(own, lower)

    def next_to_shed(self, priority: int, *, is_retry: bool) -> sequence.Sequence | None:
        """Of these, the one that goes first: of the lowest priority the last retry, or the last."""
        for item in reversed(self._classes):
            if item.priority > priority or (item.priority == priority and is_retry):
                return None
            found = item.last_fresh(retries=True)
            if found is None and item.priority < priority:
                found = item.last_fresh(retries=False)
            if found is not None:
                return found
        return None

    def _class_of(self, entry: sequence.Sequence) -> PriorityClass:
        index = bisect.bisect_left(self._classes, -entry.priority, key=lambda item: -item.priority)
        if index == len(self._classes) or self._classes[index].priority != entry.priority:
            self._classes.insert(index, PriorityClass(entry.priority))
        return self._classes[index]

    def _count(self, entry: sequence.Sequence, change: int) -> None:
        self._num_waiting[entry.lane] += change
        if not entry.started:
            found = self._class_of(entry)
            found.fresh.count(entry, change)
            if entry.is_retry:
                found.retries.count(entry, change)

    def check_integrity(self) -> None:
        """Raise `PoolCorrupted` unless the counts are right."""
        everybody = [entry for item in self._classes for entry in item]
        in_lanes = {lane: sum(entry.lane is lane for entry in everybody) for lane in sequence.Lane}
        fresh, retries = Amount(), Amount()
        for entry in everybody:
            if not entry.started:
                fresh.count(entry, 1)
                retries.count(entry, 1 if entry.is_retry else 0)
        if (in_lanes, fresh, retries) != (self._num_waiting, self.fresh, self.retries):
            raise block_pool.PoolCorrupted(
                f"{in_lanes} wait, {fresh} for a first turn, {retries} retries; counted were {self._num_waiting}, "
                f"{self.fresh}, {self.retries}"
            )
