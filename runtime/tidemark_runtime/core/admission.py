"""Who gets the next turn: asked again and again in a step until nobody may start.

Rules, in the order in which they are asked:

1. Strict classes: while somebody of a higher priority waits, nobody of a lower one starts.
2. Within a class, whoever was preempted comes before all that never ran, in order of arrival.
3. Of a lane's that never ran, the one that waits longest goes first of its lane once it has waited `aging_seconds`.
   While its lane is not ahead, nobody of its class passes it: pages gather until it fits. A lane is ahead that has had
   more of its share of turns, counted in tokens, than the other, or holds its share of the pages. So every wait is
   bounded, in both directions: a backlog of old long ones does not starve a short one either.
4. Else the express lane's turn comes before the slow lane's, as far as tokens of this step are left for a lane
   (`TokenShares`). Who does not fit may be passed by the next few of its lane.
5. While the first of one lane waits for pages, the other lane takes no more pages than its own share.

What it takes to start: a slot, a place under the soft limit, and pages for all tokens known so that use stays under
the preempt line. While the queue line is crossed, a sequence that never ran also waits, except for what keeps its lane
within its share of the pages under that line: one contract that fills the slab must not hold up every short question.
When nothing runs pages alone decide, or a long request would wait for ever. One that is of higher priority than some
running one is not held up by the queue line, and where it does not fit, those of lower priority have to give way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tidemark_runtime import config
from tidemark_runtime.core import memory, sequence, waiting_queue

LOOK_AHEAD = 8
"""How many of a lane are tried in a step when its first does not fit. Each costs some microseconds."""

SEARCH_EVERY_STEPS = 16
"""How often the prefix cache is searched for one that does not fit without it: a long prompt has a thousand pages."""

_EXPRESS, _SLOW = sequence.Lane.EXPRESS, sequence.Lane.SLOW
_OTHER = {_EXPRESS: _SLOW, _SLOW: _EXPRESS}


class TokenShares:
    """What is left of a step's prompt tokens for those that start in it, by lane."""

    def __init__(self, budget: int, slow_share: float, demand: dict[sequence.Lane, int]) -> None:
        self._budget = budget
        self._slow_share = slow_share
        self._demand = demand

    def is_left(self, lane: sequence.Lane, *, both_wait: bool) -> bool:
        """Whether one more of `lane` would compute anything in this step."""
        express, slow = self._demand[_EXPRESS], self._demand[_SLOW]
        of_slow = math.ceil(self._slow_share * self._budget)
        if lane is _EXPRESS:
            return express < self._budget - (of_slow if both_wait else min(of_slow, slow))
        return slow < self._budget - min(express, self._budget - of_slow)


@dataclass(slots=True)
class State:
    """Of the step being planned."""

    settings: config.SchedulerConfig
    now: float
    step: int
    num_running: int
    least_priority: int | None
    """Of those that run; None when nobody does."""
    queue_line_crossed: bool
    tokens: TokenShares


@dataclass(frozen=True, slots=True)
class Turn:
    """`entry` starts, after as many others of lower priority have given way as its missing pages and slots take."""

    entry: sequence.Sequence
    need: memory.Need
    num_pages_missing: int = 0
    num_slots_missing: int = 0

    @property
    def displaces(self) -> bool:
        return self.num_pages_missing > 0 or self.num_slots_missing > 0


class Admission:
    """Looks, and changes nothing; but it notes in a sequence when to search the prefix cache for it again."""

    def __init__(self, memory_: memory.Memory, waiting: waiting_queue.WaitingQueue) -> None:
        self._memory = memory_
        self._waiting = waiting

    def next(self, state: State) -> Turn | None:
        """Whose turn it is now; None when nobody of the highest class that waits may start."""
        highest = self._waiting.highest()
        return self._of_class(highest, state) if highest is not None else None

    def _of_class(self, found: waiting_queue.PriorityClass, state: State) -> Turn | None:
        preempted = found.first_preempted()
        if preempted is not None:
            newest_is_with_the_worker = preempted.num_pending > 0
            if newest_is_with_the_worker or not state.tokens.is_left(preempted.lane, both_wait=False):
                return None
            return self._fits(preempted, state) or self._displacing(preempted, state)
        aged = {lane: entry for lane in found.lanes if (entry := self._aged(found, lane, state)) is not None}
        for entry in sorted(aged.values(), key=lambda item: item.order):
            if self._may_block(found, entry.lane, state):
                if not state.tokens.is_left(entry.lane, both_wait=False):
                    return None
                return self._fits(entry, state) or self._displacing(entry, state)
        return self._of_lanes(found, aged, state)

    @staticmethod
    def _aged(found: waiting_queue.PriorityClass, lane: sequence.Lane, state: State) -> sequence.Sequence | None:
        """The one of `lane` that nobody of it passes any more."""
        entry = found.lanes[lane].oldest_to_age()
        if entry is None or state.now - entry.arrival_seconds < state.settings.aging_seconds:
            return None
        return entry

    def _may_block(self, found: waiting_queue.PriorityClass, lane: sequence.Lane, state: State) -> bool:
        """Whether pages are to gather for an aged one of `lane`. Alone it may always: it starves nobody."""
        if not found.lanes[_OTHER[lane]]:
            return True
        if found.is_ahead(lane):
            return False
        return not self._memory.num_pages_of(lane) or self._within_share(lane, 1, 1.0, state)

    def _of_lanes(
        self, found: waiting_queue.PriorityClass, aged: dict[sequence.Lane, sequence.Sequence], state: State
    ) -> Turn | None:
        waiting = [lane for lane in (_EXPRESS, _SLOW) if found.lanes[lane]]
        if not self._may_start_fresh(found.priority, waiting, state):
            return None
        open_ = [lane for lane in waiting if state.tokens.is_left(lane, both_wait=len(waiting) == 2)]
        if not open_:
            return None
        firsts = {lane: aged.get(lane) or next(found.lanes[lane].candidates(1)) for lane in waiting}
        turns = {lane: self._fits(firsts[lane], state) for lane in waiting}
        for lane in open_:
            other_waits_for_pages = _OTHER[lane] in turns and turns[_OTHER[lane]] is None
            look_ahead = 1 if lane in aged else LOOK_AHEAD
            for turn in self._ahead(found.lanes[lane], turns[lane], look_ahead, state):
                if not other_waits_for_pages or self._within_share(lane, turn.need.num_pages, 1.0, state):
                    return turn
        return self._displacing(firsts[open_[0]], state)

    def _ahead(
        self, lane: waiting_queue.LaneQueue, first: Turn | None, look_ahead: int, state: State
    ) -> Iterator[Turn]:
        """The first of a lane and the next few, as far as they fit."""
        if first is not None:
            yield first
            return
        for entry in list(lane.candidates(look_ahead))[1:]:
            turn = self._fits(entry, state)
            if turn is not None:
                yield turn

    def _may_start_fresh(self, priority: int, waiting: list[sequence.Lane], state: State) -> bool:
        """Cheap, so that waiting costs nothing in the steady state of a full batch."""
        if self._outranks(priority, state):
            return True
        return self._num_places(state) > 0 and any(self._passes_queue_line(lane, 1, state) for lane in waiting)

    def _passes_queue_line(self, lane: sequence.Lane, num_pages: int, state: State) -> bool:
        """Whether `num_pages` more for `lane` are allowed while the line may be crossed."""
        line = state.settings.queue_watermark
        return not state.queue_line_crossed or self._within_share(lane, num_pages, line, state)

    def _within_share(self, lane: sequence.Lane, num_pages: int, of: float, state: State) -> bool:
        """Whether `lane` with `num_pages` more stays within its share of `of` (0 to 1) of all pages."""
        share = state.settings.long_request_share
        of_lane = share if lane is _SLOW else 1.0 - share
        return self._memory.num_pages_of(lane) + num_pages <= of_lane * of * self._memory.pool.num_pages

    def _fits(self, entry: sequence.Sequence, state: State) -> Turn | None:
        if self._num_places(state) <= 0:
            return None
        room = self._room(entry, state)
        need = self._need(entry, room, state)
        if need.num_taken > room:
            return None
        if not entry.started and not self._outranks(entry.priority, state) and state.num_running:
            return Turn(entry, need) if self._passes_queue_line(entry.lane, need.num_taken, state) else None
        return Turn(entry, need)

    def _displacing(self, entry: sequence.Sequence, state: State) -> Turn | None:
        """A turn that others of lower priority make way for, as long as there are any."""
        if not self._outranks(entry.priority, state):
            return None
        need = self._memory.need(entry, self._num_tokens(entry, state), search=True)
        pages = max(0, need.num_taken - self._room(entry, state))
        slots = max(0, 1 - self._num_places(state))
        return Turn(entry, need, pages, slots)

    def _need(self, entry: sequence.Sequence, room: int, state: State) -> memory.Need:
        num_tokens = self._num_tokens(entry, state)
        fits_anyway = self._memory.pages_for(num_tokens) <= room
        search = fits_anyway or state.step >= entry.search_step
        if search and not fits_anyway:
            entry.search_step = state.step + SEARCH_EVERY_STEPS
        return self._memory.need(entry, num_tokens, search=search)

    def _num_tokens(self, entry: sequence.Sequence, state: State) -> int:
        """Tokens whose pages it gets at once: all it knows; all it may ever have once it may not be preempted again."""
        return entry.num_max_tokens if self._is_guaranteed(entry, state) else entry.num_known

    def _room(self, entry: sequence.Sequence, state: State) -> int:
        """Pages that `entry` may take: up to the preempt line; all when nothing runs, or it must not wait any more."""
        pool = self._memory.pool
        if not state.num_running or self._is_guaranteed(entry, state):
            return pool.num_free
        line = math.floor(state.settings.preempt_watermark * pool.num_pages)
        return max(0, min(pool.num_free, line - pool.num_used))

    def _num_places(self, state: State) -> int:
        soft = state.settings.max_concurrency_soft
        free = self._memory.num_free_slots
        return free if soft is None else min(free, soft - state.num_running)

    @staticmethod
    def _is_guaranteed(entry: sequence.Sequence, state: State) -> bool:
        return entry.num_preemptions >= state.settings.max_preemptions_per_request

    @staticmethod
    def _outranks(priority: int, state: State) -> bool:
        return state.least_priority is not None and state.least_priority < priority
