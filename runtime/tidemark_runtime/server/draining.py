"""Going away without losing a request: what still arrives is served, and each answer closes its connection."""

from __future__ import annotations

from starlette import types

from tidemark_runtime.contract import http
from tidemark_runtime.server import context

_CLOSE = (b"connection", b"close")


class Draining:
    """ASGI middleware: counts what is being served and, after SIGTERM, adds `Connection: close` to every answer.

    A client with kept connections so opens its next one elsewhere, instead of sending into one that is about to end.
    """

    def __init__(self, app: types.ASGIApp, shared: context.Context) -> None:
        self._app = app
        self._shared = shared

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_and_close(message: types.Message) -> None:
            if message["type"] == "http.response.start" and self._shared.draining:
                headers = [pair for pair in message.get("headers", ()) if pair[0] != _CLOSE[0]]
                message["headers"] = [*headers, _CLOSE]
            await send(message)

        counts = scope["path"] not in http.OPEN_PATHS
        self._shared.num_active += counts
        try:
            await self._app(scope, receive, send_and_close)
        finally:
            self._shared.num_active -= counts
