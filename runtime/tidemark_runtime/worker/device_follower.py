"""A rank that is not the first, on a device: loads its part, then launches whatever plans it is sent, in their order.

It launches and goes on, as the first rank does; what a step computes here is waited for only to stay no more than
DEPTH steps ahead. A thread of its own reads what the first rank says: that a group is to be left must be heard while
the device waits for a rank that is lost, and the thread that launches with it.
"""

from __future__ import annotations

import collections
import queue
import threading
from typing import TypeVar

from tidemark_runtime import config, errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.model import sources
from tidemark_runtime.worker import device_ranks, follower, parallel, rank_links, rank_messages, ranks

DEPTH = 2
"""Steps on their way at once: the first rank has no more."""

_LISTEN_SECONDS = 0.1
"""At a time; a message ends the wait at once."""

_Said = TypeVar("_Said", bound=rank_messages.ToRank)


class _Hearing(threading.Thread):
    """Reads the link; `next` hands on what was read, in order."""

    def __init__(self, link: rank_links.OtherLink, group: parallel.Meeting) -> None:
        super().__init__(name="hears", daemon=True)
        self._link = link
        self._group = group
        self._heard: queue.SimpleQueue[rank_messages.ToRank | BaseException] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self.num_left = 0
        """How often the first rank has said so, and the group was left, whatever was being launched."""
        self.start()

    def stop(self) -> None:
        """Nobody reads the link afterwards: it can be closed."""
        self._stopped.set()
        self.join()

    def next(self) -> rank_messages.ToRank:
        """Waits for it. Raises what reading raised."""
        heard = self._heard.get()
        if isinstance(heard, BaseException):
            raise heard
        return heard

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                heard = self._link.listen(_LISTEN_SECONDS)
            except BaseException as error:  # noqa: BLE001  it belongs to whoever asks for the next message
                self._heard.put(error)
                self._group.leave()
                return
            if isinstance(heard, rank_messages.Leave):
                self.num_left += 1
                self._group.leave()  # before the next meeting can begin
            if heard is not None:
                self._heard.put(heard)


class DeviceFollower:
    """`run` returns when the first rank says that nothing follows."""

    def __init__(
        self,
        settings: config.EngineConfig,
        source: sources.ModelSource,
        load: device_ranks.Load,
        group: parallel.Meeting,
        link: rank_links.OtherLink,
    ) -> None:
        """`settings`: of one rank."""
        self._settings = settings
        self._source = source
        self._load = load
        self._group = group
        self._link = link
        self._rank = group.shard.rank
        self._plans = follower.SamePlans()
        self._is_out = False
        """Of the group, after a step that came to nothing: plans are not computed before the next meeting."""
        self._num_left = 0
        """As `_Hearing.num_left`, of what has come to its turn."""
        self._on_their_way: collections.deque[device_ranks.Launched] = collections.deque()

    def run(self) -> None:
        """Raises what loading raises, and whatever ends a step but a lack of memory and the loss of another rank; the
        first rank has been told then."""
        hearing = _Hearing(self._link, self._group)
        try:
            with follower.last_words(self._rank, self._link, self._group):
                self._run(hearing)
        finally:
            hearing.stop()

    def _run(self, hearing: _Hearing) -> None:
        self._link.send(rank_messages.Here(self._rank))
        self._meet(_expected(hearing, rank_messages.Meet).generation)

        def agree(own: ranks.NumPages) -> ranks.NumPages:
            self._link.send(rank_messages.Sized(self._rank, own.slab, own.host))
            said = _expected(hearing, rank_messages.Agreed)
            return ranks.NumPages(said.slab_pages, said.host_pages)

        place = ranks.Place(self._group, agree)
        worker = self._load(self._settings, self._source, lambda _phase, _share: None, place)
        self._link.send(follower.loaded(self._rank, worker.facts))
        while True:
            match hearing.next():
                case rank_messages.Meet(generation):
                    self._meet(generation)
                case rank_messages.Leave():
                    self._num_left += 1
                    self._leave()
                case rank_messages.Execute(plan):
                    self._launch(worker, plan, hearing)
                case rank_messages.Close():
                    worker.close()
                    self._group.leave()
                    return
                case message:
                    raise errors.EngineError(f"the first rank said {message}, expected a plan: a mistake of ours")

    def _meet(self, generation: int) -> None:
        self._leave()
        device_ranks.connect(self._group, generation, self._settings)
        self._is_out = False
        self._link.send(rank_messages.Met(self._rank, generation))

    def _leave(self) -> None:
        self._is_out = True
        self._on_their_way.clear()
        self._group.leave()

    def _launch(self, worker: device_ranks.RankWorker, plan: step_plan.StepPlan, hearing: _Hearing) -> None:
        if self._is_out:
            return
        try:
            self._on_their_way.append(worker.launch(self._plans.same(plan)))
            if len(self._on_their_way) > DEPTH:
                self._on_their_way.popleft().result()
        except errors.OutOfMemory as error:
            # Said before the group is left: the first rank looks for a reason as soon as it notices.
            self._link.send(rank_messages.OutOfMemory(self._rank, plan.step, str(error)))
            self._leave()
        except errors.RankLost:
            self._leave()  # another one knows why; this one hears of it, or ends with the first
        except device_ranks.AFTER_LEAVING:
            if hearing.num_left == self._num_left:
                raise
            self._leave()


def _expected(hearing: _Hearing, kind: type[_Said]) -> _Said:
    said = hearing.next()
    if not isinstance(said, kind):
        raise errors.EngineError(f"the first rank said {said}, expected {kind.__name__}: a mistake of ours")
    return said
