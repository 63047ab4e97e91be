"""`/health/live`, `/health/ready`, `/metrics` and the runbooks of `tidemark operator`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import prometheus_client
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tidemark_operator import errors
from tidemark_operator.monitoring import runbooks
from tidemark_operator.monitoring.rules.model import Language
from tidemark_runtime.contract import http


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer to a probe."""

    good: bool
    words: str


@dataclass(frozen=True, slots=True)
class Probes:
    """What is asked at every probe. That there is an answer at all proves that the event loop turns."""

    live: Callable[[], Verdict]
    ready: Callable[[], Verdict]
    metrics: Callable[[], bytes]


def application(probes: Probes) -> Starlette:
    async def live(_: Request) -> Response:
        return _answer(probes.live())

    async def ready(_: Request) -> Response:
        return _answer(probes.ready())

    async def metrics(_: Request) -> Response:
        return Response(probes.metrics(), headers={"content-type": prometheus_client.CONTENT_TYPE_LATEST})

    return Starlette(
        routes=[
            Route(http.LIVE_PATH, live),
            Route(http.READY_PATH, ready),
            Route(http.METRICS_PATH, metrics),
            Route(f"{runbooks.PATH}/{{language}}/{{name}}", runbook),
        ]
    )


async def runbook(request: Request) -> Response:
    """What an alert's `runbook_url` leads to, also where nobody reaches the internet."""
    language, name = request.path_params["language"], request.path_params["name"].removesuffix(".md")
    text = runbooks.text(name, Language(language)) if language in set(Language) else None
    if text is None:
        listed = "\n".join(f"{runbooks.PATH}/{each}/{alert}.md" for each in Language for alert in runbooks.names(each))
        return PlainTextResponse(f"no such runbook; there are:\n{listed}\n", status_code=404)
    return Response(text, media_type="text/markdown; charset=utf-8")


def listen(address: str) -> socket.socket:
    """A listening socket at `HOST:PORT`. Raises `errors.ManifestFileError` for a wrong address and
    `errors.Unavailable` when it cannot be had."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdigit() and int(port) < 65_536):
        raise errors.ManifestFileError(f"--listen: got {address!r}, expected HOST:PORT, for example 0.0.0.0:8080")
    host = host.strip("[]") or "0.0.0.0"
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
    except OSError as error:
        listener.close()
        raise errors.Unavailable(
            f"--listen: cannot listen at {address}: {error.strerror}. Choose another with --listen HOST:PORT"
        ) from error
    listener.listen()
    return listener


async def serve(listener: socket.socket, app: Starlette) -> None:
    """Until cancelled."""
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_keep_alive=65)
    await _Server(config).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Leaves signals to the operator, which finishes its passes before it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _answer(verdict: Verdict) -> Response:
    return PlainTextResponse(f"{verdict.words}\n", status_code=200 if verdict.good else 503)
