"""The engine's list of sequences for the console: asked when somebody looks, once a second for all who do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemark_runtime import errors
from tidemark_runtime.contract import console
from tidemark_runtime.engine import client, messages
from tidemark_runtime.server import context

LEAST_SECONDS = 0.9
"""Between two questions. The page asks once a second, and a little early must not mean a second late."""
WAIT_SECONDS = 0.4
"""For an answer. In a long step the engine answers late, and the page gets what is known."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An answer, and when it came."""

    answer: messages.SequenceList
    keys: Mapping[str, str]
    """Of each client request that was here then: the name of its API key. A request may have ended since."""
    at: float
    """By the server's clock."""
    unix_time: float


class Listing:
    """The last answer. While nobody calls `latest`, the engine is not asked."""

    def __init__(
        self,
        shared: context.Context,
        *,
        wait_seconds: float = WAIT_SECONDS,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._shared = shared
        self._unix_time = unix_time
        self._wait_seconds = wait_seconds
        self._last: Listed | None = None
        self._asked_at = -LEAST_SECONDS
        self._asking: asyncio.Task[None] | None = None

    async def latest(self) -> Listed | None:
        """What the engine said last, newer than a second where it is not in the middle of a step; None before."""
        engine, now = self._shared.engine, self._shared.clock()
        is_asking = self._asking is not None and not self._asking.done()
        may_ask = engine is not None and engine.ready is not None and engine.failure is None
        if engine is not None and may_ask and not is_asking and now - self._asked_at >= LEAST_SECONDS:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(engine))
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=self._wait_seconds)
        return self._last

    async def _ask(self, engine: client.Engine) -> None:
        try:
            answer = await engine.sequences(console.MOST_REQUESTS)
        except errors.EngineDead:
            return  # the state says so; what was known last stays
        keys = {work.id: work.who.key_name for work in self._shared.generations}
        self._last = Listed(answer, keys, self._shared.clock(), self._unix_time())
