"""JSON answers, and the one translation of exceptions into OpenAI's error shape."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import Any, overload

from starlette import exceptions, requests, types
from starlette import responses as starlette_responses

from tidemark_runtime import errors
from tidemark_runtime.contract import http
from tidemark_runtime.server import context, degrading
from tidemark_runtime.server.wire import common

_log = logging.getLogger(__name__)

LINGER_SECONDS = 2.0
"""Long enough for tens of megabytes on a local network, short enough to bound what a hostile client can hold."""
DRAIN_RETRY_SECONDS = 5
"""A pod that drains is replaced in about that time."""
CONFIRM_RETRY_SECONDS = 2
"""A step of a long prompt on a slow processor takes seconds."""
_PRIORITY_KEY = "tidemark.priority"
"""In the scope of a request."""


def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> starlette_responses.Response:
    """`value` (a msgspec struct or plain data) as JSON."""
    return starlette_responses.Response(common.encode(value), status, headers, media_type="application/json")


def describe(error: Exception) -> tuple[int, common.ErrorBody, dict[str, str]]:
    """Status, body and extra headers for any exception. Unknown ones say nothing of their insides."""
    headers: dict[str, str] = {}
    if isinstance(error, errors.RequestError):
        status, kind, code, param = error.status, error.kind, error.code, error.param
        if isinstance(error, errors.Overloaded):
            headers |= _retry_after(error.retry_after_seconds)
        if isinstance(error, degrading.TooMany):
            headers[http.DEGRADED_HEADER] = error.note
        if isinstance(error, errors.Unauthorized):
            headers["www-authenticate"] = "Bearer"
    elif isinstance(error, errors.Draining | context.Loading):
        status, kind, param = 503, "server_error", None
        code = "draining" if isinstance(error, errors.Draining) else "loading"
        headers |= _retry_after(DRAIN_RETRY_SECONDS)
    elif isinstance(error, errors.NotConfirmed):
        status, kind, code, param = 503, "server_error", "config_not_confirmed", None
        headers |= _retry_after(CONFIRM_RETRY_SECONDS)
    elif isinstance(error, errors.EngineDead):
        status, kind, code, param = 503, "server_error", "engine_dead", None
    elif isinstance(error, errors.EngineError):
        status, kind, code, param = 500, "server_error", "engine_failed", None
    elif isinstance(error, exceptions.HTTPException):
        status, kind, code, param = error.status_code, "invalid_request_error", None, None
        headers.update(error.headers or {})
    else:
        detail = common.ErrorDetail("The server failed. Its log says why.", "server_error", None, "internal_error")
        return 500, common.ErrorBody(detail), headers
    message = error.detail if isinstance(error, exceptions.HTTPException) else str(error)
    return status, common.ErrorBody(common.ErrorDetail(_short(message, 2000), kind, _short(param, 200), code)), headers


def _retry_after(seconds: float) -> dict[str, str]:
    """Rounded up, so that nobody comes too early. OpenAI's clients prefer the milliseconds."""
    return {"retry-after": str(math.ceil(seconds)), "retry-after-ms": str(math.ceil(seconds * 1000))}


class Refusal(starlette_responses.Response):
    """An error sent before the body was read: answered at once, then the connection closes.

    What the client is still sending is thrown away for a short while first. Closing at once would make the kernel
    reset the connection, and the reset often destroys the answer before the client has read it.
    """

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        headers = [*self.raw_headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while (await receive()).get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def refusal(error: errors.RequestError) -> Refusal:
    """The answer to a request whose body was not, or not wholly, read."""
    status, body, headers = describe(error)
    return Refusal(common.encode(body), status, headers, media_type="application/json")


def note_priority(scope: types.Scope, priority: int) -> None:
    """What the request was worth is known from here on, and an error answer says it, too."""
    scope[_PRIORITY_KEY] = priority


async def on_error(request: requests.Request, error: Exception) -> starlette_responses.Response:
    """Starlette's exception handler for everything."""
    if isinstance(error, errors.BodyTooLarge | errors.BodyTooSlow):
        return refusal(error)
    if isinstance(error, MemoryError):
        request.app.state.shared.metrics.out_of_memory()
    status, body, headers = describe(error)
    priority = request.scope.get(_PRIORITY_KEY)
    if priority is not None:
        headers[http.PRIORITY_HEADER] = str(priority)
    if isinstance(error, errors.EngineError) and status == 500:
        _log.error("request failed path=%s reason=%s", request.url.path, error)
    return json(body, status, headers)


@overload
def _short(text: str, limit: int) -> str: ...
@overload
def _short(text: None, limit: int) -> None: ...
def _short(text: str | None, limit: int) -> str | None:
    """Printable, and not longer than `limit`: messages quote names that clients make up, of any length."""
    if text is None:
        return None
    return printable(text if len(text) <= limit else text[: limit - 3] + "...")


def printable(text: str) -> str:
    """Text that JSON can hold whatever the client sent: half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
