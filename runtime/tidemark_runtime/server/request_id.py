"""Every answer carries `x-request-id`: the client's own when it sent a plain one, else one of ours."""

from __future__ import annotations

import re
import uuid

from starlette import types
from starlette.datastructures import Headers

from tidemark_runtime.contract import http

_PLAIN = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""Anything else is not repeated: it could break logs."""

_HEADER = http.REQUEST_ID_HEADER.encode()


class RequestId:
    """ASGI middleware; touches nothing but the response's headers."""

    def __init__(self, app: types.ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(http.REQUEST_ID_HEADER, "")
        value = (given if _PLAIN.fullmatch(given) else uuid.uuid4().hex).encode()

        async def send_with_id(message: types.Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (_HEADER, value)]
            await send(message)

        await self._app(scope, receive, send_with_id)
