"""One level of load: requests leave when they are due, whether or not answers have come, and a window is measured.

Times are those of the event loop, from the level's beginning on. What is due is never put off because the client is
late: it leaves late, and its latency counts from when it was due (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tidemark_runtime.loadtest import exchange, levels
from tidemark_runtime.simulation import percentiles, senders

Send = Callable[[senders.Request, exchange.Clock, exchange.Exchange], Awaitable[None]]
Companion = Callable[[], Awaitable[None]]
"""What is to run beside the load and not be measured, such as the check of answers."""

_LAG_EVERY_SECONDS = 0.02
_FAILED_PAUSE_SECONDS = 1.0
"""A user whose request failed waits so long; at once it would fail again, thousands of times a second."""
_EARLY_SECONDS = 1e-6
"""What is due that soon is due: sums of seconds are not exact, and the loop would be woken again and again for less."""
_COMPANION_SHARE = 0.25
"""Of a workload's duration, after which the companion starts. Where there is a window, it starts after that."""


@dataclass(slots=True)
class Try:
    """One try of a request, and when it was due."""

    request: senders.Request
    due: float
    exchange: exchange.Exchange = field(default_factory=exchange.Exchange)
    is_last: bool = True
    """The client does not come back with it."""


@dataclass(slots=True)
class Record:
    """What happened in one level. Seconds from its beginning."""

    tries: list[Try] = field(default_factory=list)
    begin: float = 0.0
    """Of the window that counts."""
    end: float = 0.0
    enough: bool = True
    """The least number of requests was reached."""
    lag: percentiles.Values = field(default_factory=percentiles.Values)
    """How late the client's own loop was, each time it was asked to wake."""
    cpu_seconds: float = 0.0
    """Of this process, over all of the level."""
    seconds: float = 0.0
    """Of the whole level."""
    interrupted: bool = False

    def counts(self, request: senders.Request) -> bool:
        """First sent within the window."""
        return self.begin <= request.first_sent < self.end


class Driver:
    """Runs one level once."""

    def __init__(
        self,
        level: levels.Level,
        send: Send,
        *,
        companion: Companion | None = None,
        progress: Callable[[float, int], None] | None = None,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        """`progress`: told seconds and answers so far. `cpu`: seconds this process has computed."""
        self._level = level
        self._send = send
        self._companion = companion
        self._progress = progress
        self._cpu = cpu
        self._senders = senders.Senders(level.load, level.load.seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._companion_task: asyncio.Task[None] | None = None
        self._open: dict[int, senders.Request] = {}
        """Requests that were sent and have not had their last try, by number."""
        self._wake = asyncio.Event()
        self.begun = asyncio.Event()
        """The window has."""
        self.over = asyncio.Event()
        """The window is, or the level."""
        self._num_ended_in_window = 0
        self._failure: BaseException | None = None
        """A mistake of ours in a request or in the companion; what servers do is never one."""
        self._start = 0.0
        window = level.window
        self.record = Record(begin=window.warm_up_seconds if window is not None else 0.0, end=senders.NEVER)

    async def run(self) -> Record:
        """Until all that counts has been answered. After `CancelledError`, `record` has what there is so far."""
        loop = asyncio.get_running_loop()
        self._start = loop.time()
        cpu_before = self._cpu()
        lag = loop.create_task(self._measure_lag())
        try:
            while not self._is_over():
                if self._failure is not None:
                    raise self._failure
                self._send_due()
                await self._until_something_happens(loop)
        except asyncio.CancelledError:
            self.record.interrupted = True
            raise
        finally:
            await self._stop(lag)
            self.record.cpu_seconds = self._cpu() - cpu_before
        return self.record

    def now(self) -> float:
        """Seconds since the level began."""
        return asyncio.get_running_loop().time() - self._start

    def _is_over(self) -> bool:
        now = self.now() + _EARLY_SECONDS
        if now >= self.record.begin:
            self.begun.set()
        if self._level.window is None:
            return self._is_whole_load_over(now)
        if self.record.end == senders.NEVER:
            self._end_window(self._level.window, now)
        if not self.over.is_set() or any(self.record.counts(request) for request in self._open.values()):
            return False
        self._start_companion()
        return not self._companion_is_busy()

    def _is_whole_load_over(self, now: float) -> bool:
        if self._tasks and now >= _COMPANION_SHARE * (self._level.load.duration_seconds or 0.0):
            self._start_companion()
        return self._senders.next_at == senders.NEVER and not self._tasks and not self._companion_is_busy()

    def _end_window(self, window: levels.Window, now: float) -> None:
        """If it is time; never before one request has ended, which `--timeout` sees to."""
        past = now - window.warm_up_seconds
        num = self._num_ended_in_window
        enough = num >= window.least_requests
        if past >= window.seconds and (enough or (num and past >= window.most_seconds)):
            self.record.end = self.now()
            self.record.enough = enough
            self.over.set()

    def _send_due(self) -> None:
        for request, at in self._senders.due(self.now() + _EARLY_SECONDS):
            entry = Try(request, at)
            self.record.tries.append(entry)
            self._open[request.number] = request
            task = asyncio.get_running_loop().create_task(self._one(entry))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def _one(self, entry: Try) -> None:
        await self._send(entry.request, self.now, entry.exchange)
        found, request, now = entry.exchange, entry.request, self.now()
        refused = found.outcome is exchange.Outcome.REFUSED
        comes_back = self._senders.over(
            request,
            now,
            refused=found.outcome is not exchange.Outcome.OK,
            retry_after_seconds=(found.retry_after_seconds or 0.0) if refused else _FAILED_PAUSE_SECONDS,
            useless=not refused,
        )
        entry.is_last = not comes_back
        if not comes_back:
            del self._open[request.number]
            self._num_ended_in_window += self.record.counts(request)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
        self._wake.set()

    def _start_companion(self) -> None:
        """Once."""
        if self._companion is not None and self._companion_task is None:
            self._companion_task = asyncio.get_running_loop().create_task(_as_coroutine(self._companion))
            self._companion_task.add_done_callback(self._done)

    def _companion_is_busy(self) -> bool:
        return self._companion_task is not None and not self._companion_task.done()

    async def _until_something_happens(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next request is due, an answer ended, or the window may be over."""
        self._wake.clear()
        at = min(self._senders.next_at, self._next_look())
        handle = None if at == senders.NEVER else loop.call_at(self._start + at, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if handle is not None:
                handle.cancel()

    def _next_look(self) -> float:
        """When the window begins or may be over, if nothing happens before."""
        window = self._level.window
        if window is None or self.record.end != senders.NEVER:
            return senders.NEVER
        now = self.now() + _EARLY_SECONDS
        ends = (window.warm_up_seconds + seconds for seconds in (0.0, window.seconds, window.most_seconds))
        return min((end for end in ends if end > now), default=senders.NEVER)

    async def _measure_lag(self) -> None:
        while True:
            before = self.now()
            await asyncio.sleep(_LAG_EVERY_SECONDS)
            self.record.lag.add(max(0.0, self.now() - before - _LAG_EVERY_SECONDS))
            if self._progress is not None:
                self._progress(self.now(), self._num_ended_in_window)

    async def _stop(self, lag: asyncio.Task[None]) -> None:
        """Ends whatever is still under way; its server sees closed connections."""
        now = self.now()
        self.record.seconds = now
        if self.record.end == senders.NEVER:
            self.record.end = now
        self.over.set()
        tasks = [lag, *self._tasks]
        if self._companion_task is not None:
            tasks.append(self._companion_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure


async def _as_coroutine(companion: Companion) -> None:
    await companion()
