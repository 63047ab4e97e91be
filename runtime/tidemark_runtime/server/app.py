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
    auth,
    bodies,
    chat,
    completions,
    context,
    counters,
    endpoint,
    health,
    keys,
    metrics,
    models,
    request_id,
    responses,
    status,
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

    Raises `ConfigError` when the key file cannot be used.
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
    path = parsed.server.api_keys_file
    key_file = keys.KeyFile(Path(path), clock) if path is not None else None
    return context.Context(
        config=parsed,
        metrics=counters.ServerMetrics(),
        keys=key_file,
        model_name=model_name or context.served_name(parsed),
        clock=clock,
    )


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
        routing.Route(http.MODELS_PATH, names.index, methods=get),
        routing.Route(http.MODELS_PATH + "/{name:path}", names.get, methods=get),
        routing.Route(http.TOKENIZE_PATH, tokenize.Tokenize(shared).post, methods=post),
        routing.Route(http.CHAT_PATH, endpoint.Endpoint(shared, chat.ChatDialect()), methods=post),
        routing.Route(http.COMPLETIONS_PATH, endpoint.Endpoint(shared, completions.CompletionDialect()), methods=post),
    ]
    app = applications.Starlette(
        routes=routes,
        middleware=[middleware.Middleware(request_id.RequestId), middleware.Middleware(auth.Gate, shared=shared)],
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
