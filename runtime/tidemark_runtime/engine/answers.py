"""Questions that the engine answers with one message each: who waits for which answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Answers(Generic[Answer]):
    """Of one kind of question."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._num_asked = 0

    async def ask(self, send: Callable[[int], None]) -> Answer:
        """`send` the question with its number, and wait for the answer. Raises what `fail` is given."""
        self._num_asked += 1
        number = self._num_asked
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            send(number)
            return await future
        finally:
            del self._waiting[number]

    def take(self, number: int, answer: Answer) -> None:
        """The answer to question `number` has come; nobody may wait for it any more."""
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self, error: Exception) -> None:
        """No answer will come to any."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
