"""The ASGI application: routes, the key gate, and error translation. Nothing in between buffers a stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from starlette import applications, exceptions, middleware, requests, routing
from starlette import responses as starlette_responses

from tidemark_runtime import config, errors
from tidemark_runtime.contract import http
from tidemark_runtime.engine import client
from tidemark_runtime.server import (
    admin,
    auth,
    bodies,
    chat,
    completions,
    console,
    context,
    counters,
    draining,
    endpoint,
    health,
    keys,
    metrics,
    models,
    request_id,
    responses,
    status,
    tls,
    tokenize,
)
from tidemark_runtime.text import text_model

CLIENT_CLOSED_STATUS = 499
"""Nobody reads it; it is what proxies log for this."""


def create_app(
    engine: client.Engine | None,
    text: text_model.TextModel | None,
    parsed: config.EngineConfig,
    *,
    model_name: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> applications.Starlette:
    """The whole server. Engine and text may be None and come later (`app.state.shared`), while they load.

    Raises `ConfigError` when a file with keys, tokens or a certificate cannot be used.
    """
    shared = create_context(parsed, model_name=model_name, clock=clock)
    if engine is not None:
        attach(shared, engine)
    shared.text = text
    return build(shared)


def create_context(
    parsed: config.EngineConfig, *, model_name: str | None = None, clock: Callable[[], float] = time.monotonic
) -> context.Context:
    """What routes share, without an engine yet. Raises `ConfigError`."""
    server = parsed.server
    files = _Files(clock)
    api_keys = files.keys("server.apiKeysFile", server.api_keys_file)
    admin_tokens = files.keys("server.adminTokenFile", server.admin_token_file, attributes=False)
    certificate = files.certificate(server.tls_cert_file, server.tls_key_file)
    files.check()
    return context.Context(
        config=parsed,
        metrics=counters.ServerMetrics(),
        keys=api_keys,
        admin_tokens=admin_tokens,
        certificate=certificate,
        model_name=model_name or context.served_name(parsed),
        clock=clock,
    )


class _Files:
    """Opens the files that may change while we run; every problem of all of them is said at once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._problems: list[errors.Problem] = []

    def keys(self, setting: str, path: str | None, *, attributes: bool = True) -> keys.KeyFile | None:
        if path is None:
            return None
        try:
            return keys.KeyFile(Path(path), self._clock, setting, attributes=attributes)
        except errors.ConfigError as error:
            self._problems += error.problems
            return None

    def certificate(self, cert_path: str | None, key_path: str | None) -> tls.Certificate | None:
        if cert_path is None or key_path is None:
            return None
        try:
            return tls.Certificate(Path(cert_path), Path(key_path), self._clock)
        except errors.ConfigError as error:
            self._problems += error.problems
            return None

    def check(self) -> None:
        """Raises `ConfigError`."""
        if self._problems:
            raise errors.ConfigError(self._problems)


def attach(shared: context.Context, engine: client.Engine) -> None:
    """Let the server use `engine` from now on."""
    shared.engine = engine
    engine.observe(shared.metrics.step)


def build(shared: context.Context) -> applications.Starlette:
    """Routes over a context."""
    probes, names = health.Health(shared), models.Models(shared)
    get, post = ["GET"], ["POST"]
    routes = [
        routing.Route(http.LIVE_PATH, probes.live, methods=get),
        routing.Route(http.READY_PATH, probes.ready, methods=get),
        routing.Route(http.STATUS_PATH, status.Status(shared).get, methods=get),
        routing.Route(http.METRICS_PATH, metrics.Metrics(shared).get, methods=get),
        *console.Console(shared).routes(),
        routing.Route(http.ADMIN_CONFIG_PATH, admin.AdminConfig(shared).serve, methods=["GET", "PUT"]),
        routing.Route(http.MODELS_PATH, names.index, methods=get),
        routing.Route(http.MODELS_PATH + "/{name:path}", names.get, methods=get),
        routing.Route(http.TOKENIZE_PATH, tokenize.Tokenize(shared).post, methods=post),
        routing.Route(http.CHAT_PATH, endpoint.Endpoint(shared, chat.ChatDialect()), methods=post),
        routing.Route(http.COMPLETIONS_PATH, endpoint.Endpoint(shared, completions.CompletionDialect()), methods=post),
    ]
    app = applications.Starlette(
        routes=routes,
        middleware=[
            middleware.Middleware(request_id.RequestId),
            middleware.Middleware(draining.Draining, shared=shared),
            middleware.Middleware(auth.Gate, shared=shared),
        ],
        exception_handlers={
            errors.TidemarkError: responses.on_error,
            exceptions.HTTPException: responses.on_error,
            bodies.ClientGone: _on_client_gone,
            Exception: responses.on_error,
        },
    )
    app.state.shared = shared
    return app


async def _on_client_gone(_: requests.Request, __: Exception) -> starlette_responses.Response:
    return starlette_responses.Response(status_code=CLIENT_CLOSED_STATUS)
