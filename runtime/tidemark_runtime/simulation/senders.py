"""Those who send: open and closed loops, and clients that come back after a refusal. Deterministic by seed.

Each class draws from random streams of its own, one for each of its concerns; so a class that is added, or a policy
that serves requests in another order, changes nobody else's arrivals and lengths (common random numbers). A simulation
reads them by its virtual clock, a load test by a real one: it is the same requests.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemark_runtime.core import overload
from tidemark_runtime.simulation import arrivals, distributions, workload

NEVER = math.inf
"""The moment of an event that does not come."""


@dataclass(slots=True)
class Request:
    """What a client wants, until it has it or gives up."""

    kind: workload.RequestClass
    number: int
    """In the whole run, from 0; also the seed of its tokens."""
    num_prompt_tokens: int
    num_output_tokens: int
    """What the model would say."""
    max_tokens: int
    tenant: str
    first_sent: float
    num_tries: int = 0


@dataclass(order=True, slots=True)
class _Event:
    at: float
    order: int
    sender: _Sender = field(compare=False)
    request: Request | None = field(compare=False)
    """None: a new request of the sender. Else: its next try."""


class _Sender:
    """One class: its arrivals and its lengths."""

    def __init__(self, kind: workload.RequestClass, seed: int, duration: float | None) -> None:
        self.kind = kind
        self._prompts = random.Random(f"{seed}/{kind.name}/prompt")
        self._outputs = random.Random(f"{seed}/{kind.name}/output")
        self._limits = random.Random(f"{seed}/{kind.name}/max")
        self._thoughts = random.Random(f"{seed}/{kind.name}/think")
        source = random.Random(f"{seed}/{kind.name}/arrivals")
        self._times = (kind.start_seconds + at for at in kind.arrivals.times(source))
        ends = [end for end in (kind.end_seconds, duration) if end is not None]
        self._end = min(ends, default=None)
        self.num_sent = 0

    def next_time(self) -> float | None:
        """Of the next arrival that does not depend on an answer."""
        return self.within(next(self._times, None))

    def within(self, at: float | None) -> float | None:
        if at is None or (self._end is not None and at >= self._end):
            return None
        if self.kind.num_requests is not None and self.num_sent >= self.kind.num_requests:
            return None
        return at

    def think_seconds(self) -> float | None:
        """Until a user who has had an answer sends again; None where answers bring no requests."""
        if isinstance(self.kind.arrivals, arrivals.Users):
            return self.kind.arrivals.think_seconds.draw(self._thoughts)
        return None

    def make(self, number: int, at: float) -> Request:
        kind = self.kind
        output = distributions.whole(kind.output_tokens, self._outputs)
        max_tokens = output if kind.max_tokens is None else distributions.whole(kind.max_tokens, self._limits)
        tenant = f"{kind.name}-{self.num_sent % kind.tenants}"
        self.num_sent += 1
        prompt = distributions.whole(kind.prompt_tokens, self._prompts)
        return Request(kind, number, prompt, output, max_tokens, tenant, at)


class Senders:
    """All of them, as one queue of what is sent next."""

    def __init__(self, load: workload.Workload, seed: int) -> None:
        self._events: list[_Event] = []
        self._orders = itertools.count()
        self._numbers = itertools.count()
        self._senders = {kind.name: _Sender(kind, seed, load.duration_seconds) for kind in load.classes}
        for sender in self._senders.values():
            if isinstance(sender.kind.arrivals, arrivals.Users):
                for _ in range(sender.kind.arrivals.num):
                    self._push_new(sender, sender.next_time())
            else:
                self._push_new(sender, sender.next_time())

    @property
    def next_at(self) -> float:
        """When somebody sends again; `NEVER` when nobody does before an answer."""
        return self._events[0].at if self._events else NEVER

    def due(self, now: float) -> Iterator[tuple[Request, float]]:
        """What was sent up to `now`, in order, with the moment at which it was sent."""
        while self._events and self._events[0].at <= now:
            event = heapq.heappop(self._events)
            request = event.request
            if request is None:
                sender = event.sender
                if sender.within(event.at) is None:
                    continue  # other users have sent the last ones meanwhile
                request = sender.make(next(self._numbers), event.at)
                if not isinstance(sender.kind.arrivals, arrivals.Users):
                    self._push_new(sender, sender.next_time())
            request.num_tries += 1
            yield request, event.at

    def over(self, request: Request, now: float, *, refused: bool, retry_after_seconds: float, useless: bool) -> bool:
        """A try is over. `refused`: told to come back later, in so many seconds; `useless`: no other try can help.
        True when its client comes back with it; else a user may send something new."""
        sender, kind = self._senders[request.kind.name], request.kind
        if refused and not useless and request.num_tries <= kind.retries.most:
            at = now + kind.retries.wait_seconds(request.num_tries, retry_after_seconds)
            self._push(at, sender, request)
            return True
        think = sender.think_seconds()
        if think is not None:
            if refused:  # at once it would be refused again, and a virtual clock would never move
                think = max(think, retry_after_seconds, overload.LEAST_RETRY_AFTER_SECONDS)
            self._push_new(sender, sender.within(now + think))
        return False

    def _push_new(self, sender: _Sender, at: float | None) -> None:
        if at is not None:
            self._push(at, sender, None)

    def _push(self, at: float, sender: _Sender, request: Request | None) -> None:
        heapq.heappush(self._events, _Event(at, next(self._orders), sender, request))
