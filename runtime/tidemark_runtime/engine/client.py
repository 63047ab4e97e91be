"""The engine as the HTTP process sees it. Imports no torch: the engine itself is another process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tidemark_runtime.engine import messages


class Engine(Protocol):
    """What the server asks of an engine; `EngineClient` is the real one, tests write their own."""

    @property
    def ready(self) -> messages.EngineReady | None:
        """None while loading."""
        ...

    @property
    def progress(self) -> messages.LoadProgress | None:
        """The last word from loading."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the engine is gone; None while it lives. Set once, never cleared."""
        ...

    @property
    def stats(self) -> messages.EngineStats: ...

    @property
    def progress_age_seconds(self) -> float:
        """Seconds since the engine last finished a step or said that it is idle; 0 while loading."""
        ...

    def observe(self, observer: Callable[[messages.EngineStats], None]) -> None:
        """Call `observer` with every stats message."""
        ...

    def submit(
        self, requests: Sequence[messages.EngineRequest]
    ) -> dict[str, asyncio.Queue[messages.SequenceOutput]]:
        """Hand over requests that stand or fall together; one queue each, whose last item has `finish`.

        Raises `EngineDead`. If the engine dies later, each queue gets a FAILED output.
        """
        ...

    def abort(self, ids: Sequence[str]) -> None:
        """Free what these requests hold, within a step. Unknown and finished ids are ignored; idempotent."""
        ...

    async def drain(self, timeout_seconds: float) -> bool:
        """Refuse new requests, wait until the running ones have ended; False when time ran out."""
        ...

    async def close(self) -> None:
        """End the engine process; returns when it is gone."""
        ...
