"""Who may use the API: one middleware, before anything of the request is read."""

from __future__ import annotations

from starlette import types
from starlette.datastructures import Headers

from tidemark_runtime import errors
from tidemark_runtime.contract import http
from tidemark_runtime.server import context, responses


class Gate:
    """ASGI middleware: every path but the open ones needs a key, and is refused before its body is read."""

    def __init__(self, app: types.ASGIApp, shared: context.Context) -> None:
        self._app = app
        self._shared = shared

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        keys = self._shared.keys
        if scope["type"] != "http" or keys is None or scope["path"] in http.OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and keys.allows(_as_utf8(key.strip())):
            await self._app(scope, receive, send)
            return
        self._shared.metrics.rejected("unauthorized")
        message = "Incorrect API key." if key else "No API key. Send it as `Authorization: Bearer KEY`."
        await responses.refusal(errors.Unauthorized(message))(scope, receive, send)


def _as_utf8(value: str) -> str:
    """Header values arrive as latin-1; the key file, and every client with such a key, speaks UTF-8."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")
