"""What the first rank of several devices hears of the others, by a thread of its own.

On a device a step that waits for a lost rank fails nowhere: its kernels go on waiting, and so does whoever waits for
them. Here it is noticed that a rank says that memory ran out, says its last words, has ended, or that a step takes for
ever. The group is left then, which ends the waiting on the device, and all that wait on the host are told why.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

from tidemark_runtime import errors
from tidemark_runtime.worker import parallel, rank_messages

HANG_SECONDS = 300.0
"""A step that takes longer has lost a rank that hangs. The first ones compile kernels, which may take minutes."""
_LISTEN_SECONDS = 0.35
"""At a time; `rank_links.FirstLink` looks every tenth of a second whether the ranks still live."""
_JOIN_SECONDS = 5.0

_Said = TypeVar("_Said", bound=rank_messages.FromRank)


class Listening:
    """Implements `parallel.Link` for one thread at a time, around a real one that nobody else reads meanwhile."""

    def __init__(self, link: parallel.Link, group: parallel.Meeting, hang_seconds: float = HANG_SECONDS) -> None:
        """Begins at once."""
        self._link = link
        self._group = group
        self._hang_seconds = hang_seconds
        self._said: queue.SimpleQueue[rank_messages.FromRank] = queue.SimpleQueue()
        self._met: queue.SimpleQueue[rank_messages.Met] = queue.SimpleQueue()
        """Apart: a rank that has met goes on, and what it says next may come before another one has met."""
        self._changing = threading.Lock()
        self._failure: errors.TidemarkError | None = None
        self._failed = threading.Event()
        self._waiting_since: dict[int, float] = {}
        """By thread."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="ranks", daemon=True)
        self._thread.start()

    @property
    def num_others(self) -> int:
        return self._link.num_others

    def send(self, message: rank_messages.ToRank) -> None:
        self._link.send(message)

    def receive(self, seconds: float = float("inf")) -> rank_messages.FromRank | None:
        """The next answer of any rank but `Met`, or None after so long. Raises what has failed, but for a lack of
        memory, after which ranks speak with each other again."""
        return self._next(self._said, seconds)

    def met(self, seconds: float) -> rank_messages.Met | None:
        """The next rank that has met, or None after so long. Raises as `receive`."""
        return self._next(self._met, seconds)

    def _next(self, said: queue.SimpleQueue[_Said], seconds: float) -> _Said | None:
        until = time.monotonic() + seconds
        while True:
            try:
                return said.get(timeout=min(_LISTEN_SECONDS, max(0.0, until - time.monotonic())))
            except queue.Empty:
                if self._failure is not None and not isinstance(self._failure, errors.OutOfMemory):
                    raise self._failure from None
                if time.monotonic() >= until:
                    return None

    # ---- failures ------------------------------------------------------------------------------------------

    @property
    def failure(self) -> errors.TidemarkError | None:
        """Why steps in flight have come to nothing; the group has been left then. After a lack of memory until
        `forget`, else for ever."""
        with self._changing:
            return self._failure

    def fail(self, error: errors.TidemarkError) -> None:
        """Leave the group, have the others leave it, and tell all that wait. Of two failures the graver one counts; a
        second lack of memory is a part of the first. From any thread."""
        if isinstance(error, errors.OutOfMemory) and not self._group.can_leave:
            error = errors.RankLost(
                f"{error}. The other devices wait in {self._group.backend} for the rest of that step, and it is not "
                "known how to end that wait: the engine ends"
            )
        with self._changing:
            known = self._failure
            is_less = isinstance(error, errors.OutOfMemory) or not isinstance(known, errors.OutOfMemory)
            if known is not None and is_less:
                return
            # Before the group is left: what the device then computes is anything, and nobody may take it for a result.
            self._failure = error
            self._failed.set()
            self._group.leave()
            with contextlib.suppress(errors.RankLost):  # who is gone need not be told
                self._link.send(rank_messages.Leave())

    def forget(self) -> None:
        """All have met again after a lack of memory. Raises what has failed for good meanwhile."""
        with self._changing:
            if self._failure is not None and not isinstance(self._failure, errors.OutOfMemory):
                raise self._failure
            self._failure = None
            self._failed.clear()

    def reason(self, error: errors.RankLost) -> errors.TidemarkError:
        """Why this rank was left alone, which is `error` to it: what another one says, or that none says anything."""
        if not self._failed.wait(parallel.REASON_SECONDS):
            self.fail(parallel.nobody_says(error))
        assert self._failure is not None  # noqa: S101  the event says so
        return self._failure

    def wait(self, seconds: float) -> None:
        """So long, or until something fails: raises that."""
        if self._failed.wait(seconds) and self._failure is not None:
            raise self._failure

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, the calling thread waits for all devices; a failure of the ranks follows where it takes too long."""
        mine = threading.get_ident()
        self._waiting_since[mine] = time.monotonic()
        try:
            yield
        finally:
            del self._waiting_since[mine]

    def stop(self) -> None:
        """Nobody listens afterwards."""
        self._stopped.set()
        self._thread.join(_JOIN_SECONDS)

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                said = self._link.receive(_LISTEN_SECONDS)
                self._look_for_hangs()
            except errors.TidemarkError as error:
                self.fail(error)
                return
            if isinstance(said, rank_messages.OutOfMemory):
                self.fail(errors.OutOfMemory(f"rank {said.rank}: {said.message}"))
            elif isinstance(said, rank_messages.Met):
                self._met.put(said)
            elif said is not None:
                self._said.put(said)

    def _look_for_hangs(self) -> None:
        began = min(list(self._waiting_since.values()), default=None)
        if began is not None and time.monotonic() - began > self._hang_seconds:
            raise errors.RankLost(
                f"a step has not ended after {self._hang_seconds:g} s, and every rank's process lives: a rank or its "
                "device hangs"
            )
