"""Which keys need a reconcile pass, and when. Level-based: a key says "look again", never what has happened.

`Ledger` decides and is plain data with time as an argument; `WorkQueue` runs the passes.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_

K = TypeVar("K")


_Heap = list[tuple[float, int, K]]
"""Time, number of the entry, key."""

_MANY = 100
"""Entries left behind that are not worth clearing away."""


@dataclass(slots=True)
class _Waiting:
    """When a key is due, and why."""

    due: float
    urgent: bool
    number: int = -1
    """Of the one entry in the heaps that holds."""


class Ledger(Generic[K]):
    """Due times, running keys and failures.

    A key is in the ledger at most once however often it is added. One that is added while its pass runs gets exactly
    one more pass. Failed passes are retried with exponential back-off and jitter; an addition in between comes first,
    because it may be the end of the fault, but no key starts more often than once in `min_interval_seconds`, and all
    together no faster than the token bucket allows.

    Where more is due than the bucket allows, what was added or has failed goes before those that only look again: a
    change of one service must not wait until a thousand others were asked how they are. Now and then one of those has
    its turn all the same (`urgent_in_a_row`), or it would never be looked at while others are in trouble.
    """

    def __init__(self, settings: settings_.QueueSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._waiting: dict[K, _Waiting] = {}
        self._last_start: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._running: set[K] = set()
        self._tokens = float(settings.burst)
        self._tokens_at = 0.0
        self._urgent_in_a_row = 0
        # Heaps, because a thousand keys wait while a few events a millisecond come in. What an entry says holds as long
        # as its number is still the key's own; the others are left behind where they are, and skipped.
        self._numbers = itertools.count()
        self._later: _Heap[K] = []
        self._now: dict[bool, _Heap[K]] = {True: [], False: []}

    def __len__(self) -> int:
        """Keys waiting, not counting those that run."""
        return len(self._waiting)

    def add(self, key: K, now: float, delay_seconds: float = 0.0, *, urgent: bool = True) -> None:
        """The key needs a pass in `delay_seconds`, or earlier if it was already due earlier. `urgent`: something
        happened, it is not only time to look again."""
        before, due = self._waiting.get(key), now + delay_seconds
        if before is not None:
            if (max(before.due, now), not before.urgent) <= (due, not urgent):
                return
            due, urgent = min(due, before.due), urgent or before.urgent
        self._waiting[key] = _Waiting(due, urgent)
        self._schedule(key)

    def start(self, now: float) -> list[K]:
        """Keys whose pass begins now, longest due first; they run until `succeeded`, `failed` or `ended`."""
        self._refill(now)
        self._wake(now)
        started: list[K] = []
        while len(self._running) < self._settings.max_concurrency and self._tokens >= 1:
            heap = self._first_ready()
            if heap is None:
                break
            key = heapq.heappop(heap)[2]
            self._tokens -= 1
            self._urgent_in_a_row = self._urgent_in_a_row + 1 if self._waiting.pop(key).urgent else 0
            self._running.add(key)
            self._last_start[key] = now
            started.append(key)
        return started

    def next_start(self, now: float) -> float | None:
        """Seconds until `start` can give something; None: not before something is added or ends."""
        self._wake(now)
        if len(self._running) >= self._settings.max_concurrency:
            return None
        pause = 0.0
        if self._first_ready() is None:
            self._drop_stale(self._later)
            if not self._later:
                return None
            pause = self._later[0][0] - now
        self._refill(now)
        for_token = max(0.0, 1 - self._tokens) / self._settings.rate_per_second
        return max(pause, for_token, 0.0)

    def succeeded(self, key: K, now: float, again_in_seconds: float | None) -> None:
        """The pass is over. `again_in_seconds`: look again then even if nothing happens."""
        self._stopped(key)
        self._failures.pop(key, None)
        if again_in_seconds is not None:
            self.add(key, now, again_in_seconds, urgent=False)

    def failed(self, key: K, now: float) -> float:
        """The pass failed and is retried; returns after how many seconds."""
        self._stopped(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._settings.backoff_seconds * 2.0 ** min(failures, 30), self._settings.max_backoff_seconds)
        delay *= 1 - self._settings.jitter_ratio * self._rng.random()
        self.add(key, now, delay)
        return delay

    def ended(self, key: K) -> None:
        """The object is gone: nothing about it is kept and no retry is pending, unless it was added during the pass."""
        self._stopped(key)
        self._failures.pop(key, None)
        if key not in self._waiting:
            self._last_start.pop(key, None)

    def _stopped(self, key: K) -> None:
        self._running.discard(key)
        if key in self._waiting:
            self._schedule(key)

    def _schedule(self, key: K) -> None:
        """One that runs is scheduled when it has stopped."""
        if key in self._running:
            return
        entry = self._waiting[key]
        entry.number = next(self._numbers)
        earliest = self._last_start.get(key, float("-inf")) + self._settings.min_interval_seconds
        self._push(self._later, (max(entry.due, earliest), entry.number, key))

    def _push(self, heap: _Heap[K], item: tuple[float, int, K]) -> None:
        heapq.heappush(heap, item)
        if len(heap) > 2 * len(self._waiting) + _MANY:
            heap[:] = [each for each in heap if self._holds(each)]
            heapq.heapify(heap)

    def _wake(self, now: float) -> None:
        """Those whose time has come."""
        while self._later and self._later[0][0] <= now:
            item = heapq.heappop(self._later)
            if self._holds(item):
                self._push(self._now[self._waiting[item[2]].urgent], item)

    def _first_ready(self) -> _Heap[K] | None:
        """The heap whose first key is the next to start."""
        urgent_first = self._urgent_in_a_row < self._settings.urgent_in_a_row
        for urgent in (urgent_first, not urgent_first):
            heap = self._now[urgent]
            self._drop_stale(heap)
            if heap:
                return heap
        return None

    def _drop_stale(self, heap: _Heap[K]) -> None:
        while heap and not self._holds(heap[0]):
            heapq.heappop(heap)

    def _holds(self, item: tuple[float, int, K]) -> bool:
        entry = self._waiting.get(item[2])
        return entry is not None and entry.number == item[1]

    def _refill(self, now: float) -> None:
        gained = (now - self._tokens_at) * self._settings.rate_per_second
        self._tokens = min(self._settings.burst, self._tokens + max(0.0, gained))
        self._tokens_at = now


GONE = -1.0
"""What a pass returns when its object no longer exists."""

Work = Callable[[K], Awaitable[float | None]]
"""One pass: returns in how many seconds to look again, None for not before something happens, or `GONE`."""


class WorkQueue(Generic[K]):
    """Runs passes: at most one a key at a time, at most `max_concurrency` together."""

    def __init__(
        self,
        work: Work[K],
        on_failure: Callable[[K, BaseException, float], None],
        *,
        settings: settings_.QueueSettings,
        clock: clock_.Clock,
        rng: random.Random,
    ) -> None:
        self._work = work
        self._on_failure = on_failure
        self._clock = clock
        self._ledger: Ledger[K] = Ledger(settings, rng)
        self._wake = asyncio.Event()
        self._ending = False
        self._tasks: set[asyncio.Task[float | None]] = set()

    def __len__(self) -> int:
        return len(self._ledger)

    def add(self, key: K) -> None:
        """Look at `key` soon. Never blocks, never fails."""
        self._ledger.add(key, self._clock.monotonic())
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled; passes that run then are cancelled and awaited."""
        try:
            while True:
                self._wake.clear()
                now = self._clock.monotonic()
                for key in self._ledger.start(now):
                    self._begin(key)
                await clock_.wait(self._clock, self._wake, self._ledger.next_start(now))
        finally:
            self._ending = True
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, key: K) -> None:
        task: asyncio.Task[float | None] = asyncio.ensure_future(self._work(key))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._end(key, done))

    def _end(self, key: K, task: asyncio.Task[float | None]) -> None:
        self._tasks.discard(task)
        self._wake.set()
        if task.cancelled() and self._ending:
            self._ledger.ended(key)
            return
        now = self._clock.monotonic()
        # A pass that something else cancelled has not done its work either.
        failure = asyncio.CancelledError("the pass was cancelled") if task.cancelled() else task.exception()
        if failure is not None:
            self._on_failure(key, failure, self._ledger.failed(key, now))
        elif task.result() == GONE:
            self._ledger.ended(key)
        else:
            self._ledger.succeeded(key, now, task.result())
