"""An event loop whose clock jumps to the next thing that is due, so that minutes pass in milliseconds, exactly."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Value = TypeVar("Value")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Only for what waits for nothing but the clock: no sockets, no threads."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self._loop.now += timeout
        return ready


def run(work: Coroutine[Any, Any, Value]) -> Value:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
