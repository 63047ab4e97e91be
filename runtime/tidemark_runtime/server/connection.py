"""Knowing that the client has left, while we generate for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from starlette import types

from tidemark_runtime.server import bodies


class Client:
    """The other end of one request whose body has been read."""

    def __init__(self) -> None:
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        """Called once, at the moment the connection closes."""

    def check(self) -> None:
        """Raises `ClientGone` when there is nobody left to work for."""
        if self.gone:
            raise bodies.ClientGone


@contextlib.asynccontextmanager
async def watch(receive: types.Receive) -> AsyncIterator[Client]:
    """Listens for `http.disconnect` until the block ends. `receive` must not be read elsewhere meanwhile."""
    client = Client()
    listener = asyncio.create_task(_listen(receive, client))
    try:
        yield client
    finally:
        listener.cancel()


async def _listen(receive: types.Receive, client: Client) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    client.gone = True
    if client.on_gone is not None:
        client.on_gone()
