"""The socket of a running `tidemark up`: HTTP over a unix socket that only this user may open.

GET /v1/service    everything `tidemark status` shows
PUT /v1/service    a new manifest, as JSON; what `tidemark apply` sends
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tidemark_operator import errors

SERVICE_PATH = "/v1/service"

Overview = Callable[[], Awaitable[dict[str, Any]]]
Submit = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class _Server(uvicorn.Server):
    """Leaves signals to `tidemark up`, which drains before it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def application(overview: Overview, submit: Submit) -> Starlette:
    """`submit` may raise `OperatorError`: it is answered 422 with its text."""

    async def show(_: Request) -> JSONResponse:
        return JSONResponse(await overview())

    async def change(request: Request) -> JSONResponse:
        try:
            document = await request.json()
        except ValueError:
            return JSONResponse({"message": "the body is not JSON"}, status_code=400)
        try:
            return JSONResponse(await submit(document))
        except errors.OperatorError as error:
            return JSONResponse({"message": str(error)}, status_code=422)

    return Starlette(routes=[Route(SERVICE_PATH, show, methods=["GET"]), Route(SERVICE_PATH, change, methods=["PUT"])])


async def serve(path: Path, app: Starlette) -> None:
    """Until cancelled."""
    with bind(path) as listener:
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
        await _Server(config).serve(sockets=[listener])


def bind(path: Path) -> socket.socket:
    """A listening socket that only this user may connect to, from the first moment on."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    finally:
        os.umask(before)
    listener.listen()
    return listener
