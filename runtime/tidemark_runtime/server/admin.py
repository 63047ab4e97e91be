"""`GET` and `PUT /admin/config`: the configuration in force, and a new one without a restart. `auth` keeps the door."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from starlette import exceptions, requests
from starlette import responses as starlette_responses

from tidemark_runtime import errors
from tidemark_runtime.contract import admin, documents
from tidemark_runtime.server import bodies, context, live_config, responses

MAX_DOCUMENT_BYTES = 256 * 1024
"""A whole configuration has about two thousand."""

JSON_TYPE = "application/json"
CONTENT_TYPES = (JSON_TYPE, "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
"""application/yaml is the registered one (RFC 9512); those behind it are older and still sent."""


class AdminConfig:
    """The route."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared
        self._live = live_config.LiveConfig(shared)

    async def serve(self, request: requests.Request) -> starlette_responses.Response:
        if request.method != "PUT":
            return responses.json(self._live.in_force())
        try:
            return responses.json(await self._live.put(await self._document(request)))
        except errors.ConfigError as error:
            return self._refused(400, _invalid(error))
        except errors.RestartRequired as error:
            return self._refused(409, _restart_required(error))

    async def _document(self, request: requests.Request) -> Mapping[str, Any]:
        """Raises `ConfigError`, `BodyTooLarge`, `BodyTooSlow`, `HTTPException` 415."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in CONTENT_TYPES:
            known = ", ".join(CONTENT_TYPES)
            raise exceptions.HTTPException(415, f"Content-Type: got {kind[:80]!r}, expected one of {known}.")
        body = await bodies.read(request, MAX_DOCUMENT_BYTES, self._shared.config.server.body_seconds)
        # Always in the thread: PyYAML takes a hundred times as long as JSON.
        return await bodies.offload(self._shared.pool, bodies.LARGE_BODY_BYTES + 1, lambda: parse(body, kind))

    def _refused(self, status: int, refusal: admin.Refusal) -> starlette_responses.Response:
        self._shared.metrics.config_reload("rejected")
        body = admin.ConfigRefused(refusal, self._shared.config_hash, self._shared.generation)
        return responses.json(body, status)


def parse(body: bytes, content_type: str) -> Mapping[str, Any]:
    """The document as a mapping. Raises `ConfigError`."""
    expected = "a mapping of sections such as {scheduler: {maxQueuedRequests: 64}}"
    remedy = "Send the whole configuration; {} means every setting's default."
    if content_type == JSON_TYPE:
        return _parse_json(body, expected)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise errors.ConfigError([errors.Problem("body", content_type, expected, f"It says: {error}")]) from error
    document = documents.read_yaml(text, "body", content_type, expected)
    if not isinstance(document, dict):
        raise errors.ConfigError([errors.Problem("body", document, expected, remedy)])
    return document


def _parse_json(body: bytes, expected: str) -> Mapping[str, Any]:
    try:
        document = bodies.parse(body)
    except errors.InvalidRequest as error:
        if error.param:
            seen = errors.Seen("what JSON cannot hold")
            problem = errors.Problem(error.param, seen, "a finite number, or text", f"It says: {error}")
        else:
            problem = errors.Problem("body", JSON_TYPE, expected, f"It says: {error}")
        raise errors.ConfigError([problem]) from error
    documents.check_json(body)
    return document


def _invalid(error: errors.ConfigError) -> admin.Refusal:
    shorten = reprlib.Repr()
    shorten.maxstring = shorten.maxother = 200
    problems = [
        admin.ConfigProblem(
            responses.printable(each.key),
            responses.printable(shorten.repr(each.seen)),
            responses.printable(each.expected),
            responses.printable(each.remedy),
        )
        for each in error.problems
    ]
    sentences = [f"{each.key}: got {each.seen}, expected {each.expected}. {each.remedy}".strip() for each in problems]
    message = f"{len(problems)} problems: {' '.join(sentences)}" if len(problems) > 1 else sentences[0]
    return admin.Refusal(message, "invalid_request_error", "config_invalid", problems=problems)


def _restart_required(error: errors.RestartRequired) -> admin.Refusal:
    changes = [admin.RestartChange(key, running, wanted) for key, (running, wanted) in error.changes.items()]
    return admin.Refusal(str(error), error.kind, "restart_required", changes=changes)
