"""Who waits, in which turn.

Strict classes of priority. Within a class: first those that were preempted, in the order in which they arrived; then
those that never ran, in two lanes by their weight, first tries before retries, and, where asked for, tenants in turn.
What the lanes have had is kept by class, so that ageing can lift one lane over the other without starving that one.

Nothing here grows slower with the number of those that wait, or left, or of their tenants: who leaves from the middle
(abort, timeout, a start ahead of others) is taken out at once, and tenants are kept in the order of their turns.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemark_runtime.core import block_pool, sequence


def _oldest(heads: Iterable[sequence.Sequence | None]) -> sequence.Sequence | None:
    return min((head for head in heads if head is not None), key=lambda entry: entry.order, default=None)


class _Turns:
    """First come, first served."""

    def __init__(self) -> None:
        # Not a dict: that one walks over all that were deleted before its first key.
        self._entries: OrderedDict[sequence.Sequence, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[sequence.Sequence]:
        return iter(self._entries)

    def append(self, entry: sequence.Sequence) -> None:
        self._entries[entry] = None

    def remove(self, entry: sequence.Sequence) -> None:
        del self._entries[entry]

    def head(self) -> sequence.Sequence | None:
        return next(iter(self._entries), None)


class _Tenant:
    def __init__(self, name: str, number: int, served: float) -> None:
        self.name = name
        self.number = number
        """Of two that were served alike, the smaller number goes first."""
        self.turns = {False: _Turns(), True: _Turns()}
        """First tries, and retries (True)."""
        self.served = served
        """Tokens of its requests that had their first turn, counted from where the others were when it came."""

    @property
    def is_idle(self) -> bool:
        return not any(self.turns.values())


class _ByServed:
    """Tenants, those that were served less first. Who is in here is served only between `remove` and `add`."""

    def __init__(self) -> None:
        self._tenants: list[_Tenant] = []

    def __iter__(self) -> Iterator[_Tenant]:
        return iter(self._tenants)

    def add(self, tenant: _Tenant) -> None:
        bisect.insort(self._tenants, tenant, key=self._place)

    def remove(self, tenant: _Tenant) -> None:
        del self._tenants[bisect.bisect_left(self._tenants, self._place(tenant), key=self._place)]

    def pop_up_to(self, served: float) -> list[_Tenant]:
        """Those that were served no more than this; they are in here no more."""
        end = bisect.bisect_right(self._tenants, served, key=lambda tenant: tenant.served)
        taken, self._tenants[:end] = self._tenants[:end], []
        return taken

    @staticmethod
    def _place(tenant: _Tenant) -> tuple[float, int]:
        return (tenant.served, tenant.number)


class LaneQueue:
    """Fresh sequences of one lane and class."""

    def __init__(self) -> None:
        self._turns = {False: _Turns(), True: _Turns()}
        """Of all tenants: first tries, and retries (True)."""
        self._tenants: dict[str, _Tenant] = {}
        self._waiting = {False: _ByServed(), True: _ByServed()}
        """Tenants with first tries, and with retries (True)."""
        self._idle = _ByServed()
        """Tenants with neither, that were served more than one that comes now."""
        self._num_tenants_ever = 0
        self._clock = 0.0
        """`served` of the tenant that had the last turn: where a tenant that comes now begins."""

    def __bool__(self) -> bool:
        return any(self._turns.values())

    def __iter__(self) -> Iterator[sequence.Sequence]:
        """First tries, then retries, each in order of arrival."""
        for turns in self._turns.values():
            yield from turns

    def add(self, entry: sequence.Sequence) -> None:
        tenant = self._tenants.get(entry.turn_of)
        if tenant is None:
            self._num_tenants_ever += 1
            tenant = _Tenant(entry.turn_of, self._num_tenants_ever, self._clock)
            self._tenants[entry.turn_of] = tenant
        elif tenant.is_idle:
            self._idle.remove(tenant)
        if not tenant.turns[entry.is_retry]:
            self._waiting[entry.is_retry].add(tenant)
        tenant.turns[entry.is_retry].append(entry)
        self._turns[entry.is_retry].append(entry)

    def left(self, entry: sequence.Sequence) -> None:
        """`entry` waits no more, and had no turn."""
        self._remove(entry)
        self._forget_idle(self._tenants[entry.turn_of])

    def started(self, entry: sequence.Sequence) -> None:
        """`entry` gets its first turn now."""
        tenant = self._tenants[entry.turn_of]
        self._remove(entry)
        self._clock = max(self._clock, tenant.served)
        waits_in = [self._waiting[is_retry] for is_retry, turns in tenant.turns.items() if turns]
        for by_served in waits_in:
            by_served.remove(tenant)
        tenant.served += entry.num_max_tokens
        for by_served in waits_in:
            by_served.add(tenant)
        self._forget_idle(tenant)

    def oldest(self) -> sequence.Sequence | None:
        """Of all tenants, first tries and retries."""
        return _oldest(turns.head() for turns in self._turns.values())

    def oldest_to_age(self) -> sequence.Sequence | None:
        """The one whose age may bring its turn: a retry only where no first try waits, or a storm of old retries would
        push out first tries."""
        return self._turns[False].head() or self._turns[True].head()

    def candidates(self, limit: int) -> Iterator[sequence.Sequence]:
        """The first `limit` in the order of their turns: tenants that were served less first, each with its first
        tries, then all retries."""
        for is_retry, tenants in self._waiting.items():
            for tenant in tenants:
                for entry in tenant.turns[is_retry]:
                    if not limit:
                        return
                    limit -= 1
                    yield entry

    def _remove(self, entry: sequence.Sequence) -> None:
        tenant = self._tenants[entry.turn_of]
        self._turns[entry.is_retry].remove(entry)
        tenant.turns[entry.is_retry].remove(entry)
        if not tenant.turns[entry.is_retry]:
            self._waiting[entry.is_retry].remove(tenant)

    def _forget_idle(self, tenant: _Tenant) -> None:
        """The `tenant` may have become idle, and the clock may have moved: what it says of idle ones that it has
        passed is what it says of new ones."""
        if tenant.is_idle:
            self._idle.add(tenant)
        for passed in self._idle.pop_up_to(self._clock):
            del self._tenants[passed.name]

    def check_integrity(self) -> None:
        """Raise `PoolCorrupted` unless all have their turn with their tenant."""
        everybody = list(self)
        in_turn = list(self.candidates(len(everybody) + 1))
        if len(in_turn) != len(everybody) or set(in_turn) != set(everybody):
            raise block_pool.PoolCorrupted(f"{len(everybody)} wait in a lane, {len(in_turn)} with their tenants")
        idle = {tenant.name for tenant in self._idle}
        if idle != {name for name, tenant in self._tenants.items() if tenant.is_idle}:
            raise block_pool.PoolCorrupted(f"{len(idle)} tenants were noted to have nobody waiting; others have nobody")


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
        yield from self._preempted
        for lane in self.lanes.values():
            yield from lane

    def first_preempted(self) -> sequence.Sequence | None:
        return self._preempted[0] if self._preempted else None

    def add_preempted(self, entry: sequence.Sequence) -> None:
        bisect.insort(self._preempted, entry, key=lambda item: item.order)

    def add_fresh(self, entry: sequence.Sequence) -> None:
        lane = self.lanes[entry.lane]
        if not lane:
            # Who was away has no claim to what the other lane had meanwhile.
            self._served[entry.lane] = max(self._served.values())
        lane.add(entry)

    def left(self, entry: sequence.Sequence) -> None:
        """`entry` waits no more: a preempted one, or one that had no turn."""
        if entry.started:
            self._preempted.remove(entry)
        else:
            self.lanes[entry.lane].left(entry)

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
            found.left(entry)
        else:
            found.started(entry, lane_share)
        self._count(entry, -1)

    def left(self, entry: sequence.Sequence) -> None:
        """A waiting `entry` is about to be finished."""
        self._class_of(entry).left(entry)
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
        for item in self._classes:
            for lane in item.lanes.values():
                lane.check_integrity()
        if (in_lanes, fresh, retries) != (self._num_waiting, self.fresh, self.retries):
            raise block_pool.PoolCorrupted(
                f"{in_lanes} wait, {fresh} for a first turn, {retries} retries; counted were {self._num_waiting}, "
                f"{self.fresh}, {self.retries}"
            )
