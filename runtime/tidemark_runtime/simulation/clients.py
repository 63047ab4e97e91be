"""Those who send: open and closed loops, and clients that come back after a refusal. Deterministic by seed.

Each class draws from random streams of its own, one for each of its concerns; so a class that is added, or a policy
that serves requests in another order, changes nobody else's arrivals and lengths (common random numbers).
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemark_runtime.core import overload, sampling
from tidemark_runtime.engine import messages
from tidemark_runtime.simulation import arrivals, distributions, workload
from tidemark_runtime.worker import simulated

_SHARED_SEED = (1 << 20) - 1
"""Of the first class's shared prompt; the next ones count down. Requests count up from 0."""

NEVER = math.inf
"""The moment of an event that does not come."""

RETRIED = frozenset({messages.FinishReason.REJECTED, messages.FinishReason.TIMEOUT, messages.FinishReason.DEADLINE})
"""Ends that are 429 on the wire when no token was sent."""
NEVER_RETRIED = frozenset({messages.RejectReason.NEVER_FITS, messages.RejectReason.CONTEXT_LENGTH})
"""And those among them that are 400: to come back is useless."""


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

    @property
    def stop_token(self) -> int | None:
        """Stands where its true length ends; None where `max_tokens` is as long."""
        if self.num_output_tokens >= self.max_tokens:
            return None
        return simulated.token_at(self.number, self.num_prompt_tokens + self.num_output_tokens - 1)


@dataclass(order=True, slots=True)
class _Event:
    at: float
    order: int
    sender: _Sender = field(compare=False)
    request: Request | None = field(compare=False)
    """None: a new request of the sender. Else: its next try."""


class _Sender:
    """One class: its arrivals and its lengths."""

    def __init__(self, kind: workload.RequestClass, seed: int, shared_seed: int, duration: float | None) -> None:
        self.kind = kind
        self.shared_seed = shared_seed
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


class Clients:
    """All senders, as one queue of what is sent next."""

    def __init__(self, load: workload.Workload, seed: int) -> None:
        self._events: list[_Event] = []
        self._orders = itertools.count()
        self._numbers = itertools.count()
        self._senders = {
            kind.name: _Sender(kind, seed, _SHARED_SEED - index, load.duration_seconds)
            for index, kind in enumerate(load.classes)
        }
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

    def message(self, request: Request) -> messages.EngineRequest:
        """What the engine is told of this try: the one place that knows."""
        kind, stop = request.kind, request.stop_token
        params = sampling.SamplingParams(
            max_tokens=request.max_tokens,
            temperature=0.0,
            seed=request.number,
            stop_token_ids=() if stop is None else (stop,),
        )
        shared_seed = self._senders[kind.name].shared_seed
        return messages.EngineRequest(
            id=f"{kind.name}-{request.number}-{request.num_tries}",
            token_ids=simulated.prompt(request.number, request.num_prompt_tokens, kind.shared_tokens, shared_seed),
            params=params,
            deadline_seconds=kind.deadline_seconds,
            priority=kind.priority,
            tenant=request.tenant,
            is_retry=kind.are_retries or (request.num_tries > 1 and kind.retries.marked),
        )

    def ended(self, request: Request, output: messages.SequenceOutput, now: float, num_tokens: int) -> bool:
        """A try is over. True when its client comes back with it; else a user may send something new."""
        sender, kind = self._senders[request.kind.name], request.kind
        refused = output.finish in RETRIED and not num_tokens
        if refused and output.reject not in NEVER_RETRIED and request.num_tries <= kind.retries.most:
            at = now + kind.retries.wait_seconds(request.num_tries, output.retry_after_seconds)
            self._push(at, sender, request)
            return True
        think = sender.think_seconds()
        if think is not None:
            if refused:  # at once it would be refused again, and the clock would never move
                think = max(think, output.retry_after_seconds, overload.LEAST_RETRY_AFTER_SECONDS)
            self._push_new(sender, sender.within(now + think))
        return False

    def _push_new(self, sender: _Sender, at: float | None) -> None:
        if at is not None:
            self._push(at, sender, None)

    def _push(self, at: float, sender: _Sender, request: Request | None) -> None:
        heapq.heappush(self._events, _Event(at, next(self._orders), sender, request))
