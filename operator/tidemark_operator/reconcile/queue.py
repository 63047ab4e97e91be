"""Which keys need a reconcile pass, and when. Level-based: a key says "look again", never what has happened.

`Ledger` decides and is plain data with time as an argument; `WorkQueue` runs the passes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_

K = TypeVar("K")


class Ledger(Generic[K]):
    """Due times, running keys and failures.

    A key is in the ledger at most once however often it is added. One that is added while its pass runs gets exactly
    one more pass. Failed passes are retried with exponential back-off and jitter; an addition in between comes first,
    because it may be the end of the fault, but no key starts more often than once in `min_interval_seconds`, and all
    together no faster than the token bucket allows.
    """

    def __init__(self, settings: settings_.QueueSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._due: dict[K, float] = {}
        self._last_start: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._running: set[K] = set()
        self._tokens = float(settings.burst)
        self._tokens_at = 0.0

    def __len__(self) -> int:
        """Keys waiting, not counting those that run."""
        return len(self._due)

    def add(self, key: K, now: float, delay_seconds: float = 0.0) -> None:
        """The key needs a pass in `delay_seconds`, or earlier if it was already due earlier."""
        due = now + delay_seconds
        self._due[key] = min(self._due.get(key, due), due)

    def start(self, now: float) -> list[K]:
        """Keys whose pass begins now, longest due first; they run until `succeeded`, `failed` or `ended`."""
        self._refill(now)
        started: list[K] = []
        waiting = [key for key in self._due if key not in self._running]
        for key in sorted(waiting, key=self._start_time):
            if self._start_time(key) > now or len(self._running) >= self._settings.max_concurrency or self._tokens < 1:
                break
            self._tokens -= 1
            del self._due[key]
            self._running.add(key)
            self._last_start[key] = now
            started.append(key)
        return started

    def next_start(self, now: float) -> float | None:
        """Seconds until `start` can give something; None: not before something is added or ends."""
        waiting = [self._start_time(key) for key in self._due if key not in self._running]
        if not waiting or len(self._running) >= self._settings.max_concurrency:
            return None
        self._refill(now)
        for_token = max(0.0, 1 - self._tokens) / self._settings.rate_per_second
        return max(min(waiting) - now, for_token, 0.0)

    def succeeded(self, key: K, now: float, again_in_seconds: float | None) -> None:
        """The pass is over. `again_in_seconds`: look again then even if nothing happens."""
        self._running.discard(key)
        self._failures.pop(key, None)
        if again_in_seconds is not None:
            self.add(key, now, again_in_seconds)

    def failed(self, key: K, now: float) -> float:
        """The pass failed and is retried; returns after how many seconds."""
        self._running.discard(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._settings.backoff_seconds * 2.0 ** min(failures, 30), self._settings.max_backoff_seconds)
        delay *= 1 - self._settings.jitter_ratio * self._rng.random()
        self.add(key, now, delay)
        return delay

    def ended(self, key: K) -> None:
        """The object is gone: nothing about it is kept and no retry is pending, unless it was added during the pass."""
        self._running.discard(key)
        self._failures.pop(key, None)
        if key not in self._due:
            self._last_start.pop(key, None)

    def _start_time(self, key: K) -> float:
        earliest = self._last_start.get(key, float("-inf")) + self._settings.min_interval_seconds
        return max(self._due[key], earliest)

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
        if task.cancelled():
            self._ledger.ended(key)
            return
        now = self._clock.monotonic()
        failure = task.exception()
        if failure is not None:
            self._on_failure(key, failure, self._ledger.failed(key, now))
        elif task.result() == GONE:
            self._ledger.ended(key)
        else:
            self._ledger.succeeded(key, now, task.result())
