"""The path both generation endpoints share: read, check, submit, then one answer or a stream, and one outcome.

Errors before the first token are HTTP errors. After it, one `data: {"error": ...}` event ends the stream; there is
no `[DONE]` then. Nothing is sent before the first token, so a request that waits in vain still gets its 429.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from starlette import requests, types
from starlette.datastructures import Headers

from tidemark_runtime import errors
from tidemark_runtime.contract import http
from tidemark_runtime.server import (
    auth,
    bodies,
    choice,
    connection,
    context,
    degrading,
    generation,
    outcomes,
    responses,
    standing,
    wanted,
)
from tidemark_runtime.server.wire import common

_log = logging.getLogger(__name__)

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
"""The last one asks nginx, too, to pass each event on at once."""


class Reply(Protocol):
    """One answer in the making, in the words of one endpoint."""

    def opening(self) -> Iterable[Any]:
        """Chunks before the first token's."""
        ...

    def chunks(self, delta: choice.Delta) -> Iterable[Any]:
        """The chunks for what is new; none when there is nothing to show."""
        ...

    def closing(self, usage: common.Usage) -> Any:
        """The chunk with the usage and no choices."""
        ...

    def whole(self, deltas: Sequence[choice.Delta], usage: common.Usage) -> Any:
        """The answer in one piece, from one joined delta a choice."""
        ...


class Dialect(Protocol):
    """What distinguishes one endpoint from the other."""

    def want(self, body: Mapping[str, Any], serving: context.Serving) -> wanted.Wanted:
        """Runs in a thread for large bodies. Raises `RequestError`."""
        ...

    def reply(self, shared: context.Context, serving: context.Serving, work: generation.Generation) -> Reply: ...


class Endpoint:
    """ASGI application of one generation endpoint."""

    def __init__(self, shared: context.Context, dialect: Dialect) -> None:
        self._shared = shared
        self._dialect = dialect

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        arrival = self._shared.clock()
        sender = _Sender(scope, receive, send)
        key_name = auth.key_of(scope).name
        outcome = "failed"
        try:
            outcome = await self._serve(sender, arrival)
        except bodies.ClientGone as gone:
            outcome = outcomes.label(gone)[0]
        except Exception as error:
            outcome, reason = outcomes.label(error)
            if reason is not None:
                self._shared.metrics.rejected(reason)
            if not sender.started:
                raise
            if isinstance(error, MemoryError):
                self._shared.metrics.out_of_memory()
            if outcome == "failed":
                _log.error("stream broke off path=%s", scope["path"], exc_info=error)
            await sender.end_with_error(error)
        finally:
            seconds = self._shared.clock() - arrival
            self._shared.metrics.request(outcome, seconds, key_name)
            _log.debug(
                "request ended path=%s outcome=%s seconds=%.3f key=%s", scope["path"], outcome, seconds, key_name
            )

    async def _serve(self, sender: _Sender, arrival: float) -> str:
        shared = self._shared
        shared.serving()
        request = requests.Request(sender.scope, sender.receive)
        limits = shared.config.server
        body = await bodies.read(request, limits.max_body, limits.body_seconds)
        async with connection.watch(sender.receive) as client:
            serving = shared.serving()
            asked = await bodies.offload(shared.pool, len(body), lambda: self._want(body, serving))
            client.check()
            shared.serving()
            who = self._who(sender.scope, asked)
            # Nothing is awaited from here to the submission, so that what is counted now is what is here then.
            given = degrading.apply(asked, who, shared.present, serving.engine.stats, shared.config)
            sender.say(who, given.note)
            if given.note is not None:
                shared.metrics.degraded()
            async with generation.Generation(shared, serving, given.asked, who, arrival) as work:
                client.on_gone = lambda: work.cancel(bodies.ClientGone())
                reply = self._dialect.reply(shared, serving, work)
                await (_stream if asked.stream else _answer)(sender, work, reply)
                return _good_outcome(work)

    def _who(self, scope: types.Scope, asked: wanted.Wanted) -> standing.Standing:
        """Raises `InvalidRequest`, `NotAllowed`."""
        who = standing.read(Headers(scope=scope), asked.service_tier, auth.key_of(scope))
        responses.note_priority(scope, who.priority)
        if who.is_retry:
            self._shared.metrics.retry()
        return who

    def _want(self, body: bytes, serving: context.Serving) -> wanted.Wanted:
        parsed = bodies.parse(body)
        model = parsed.get("model")
        if model is not None and model != self._shared.model_name:
            if not isinstance(model, str):
                raise errors.InvalidRequest("model: expected a text.", param="model")
            message = f"This server has no model {model[:80]!r}. It serves {self._shared.model_name!r}."
            raise errors.UnknownModel(message, param="model")
        return self._dialect.want(parsed, serving)


class _Sender:
    """The response side of one request: knows whether headers have gone out."""

    def __init__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.started = False
        self.headers: dict[str, str] = {}
        """Of a good answer, whole or streamed."""

    def say(self, who: standing.Standing, degraded: str | None) -> None:
        """What the request got, for the answer's headers."""
        self.headers[http.PRIORITY_HEADER] = str(who.priority)
        if degraded is not None:
            self.headers[http.DEGRADED_HEADER] = degraded

    async def start_stream(self) -> None:
        self.started = True
        own = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await self.send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *own]})

    async def write(self, data: bytes) -> None:
        """Waits while the client's connection is full; other requests go on meanwhile."""
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": False})

    async def end_with_error(self, error: Exception) -> None:
        await self.end(common.event(responses.describe(error)[1]))


async def _stream(sender: _Sender, work: generation.Generation, reply: Reply) -> None:
    deltas = await work.next()
    await sender.start_stream()
    pending = b"".join(common.event(chunk) for chunk in reply.opening())
    while True:
        pending += b"".join(common.event(chunk) for delta in deltas for chunk in reply.chunks(delta))
        if work.finished:
            break
        if pending:
            await sender.write(pending)
        pending = b""
        deltas = await work.next()
    if work.asked.include_usage:
        pending += common.event(reply.closing(_usage(work)))
    await sender.end(pending + common.DONE_EVENT)


async def _answer(sender: _Sender, work: generation.Generation, reply: Reply) -> None:
    joined = [choice.Delta(each.index) for each in work.choices]
    while not work.finished:
        for delta in await work.next():
            target = joined[delta.index]
            target.text += delta.text
            target.entries += delta.entries
            target.finish = delta.finish
    response = responses.json(reply.whole(joined, _usage(work)), headers=sender.headers)
    await response(sender.scope, sender.receive, sender.send)


def _usage(work: generation.Generation) -> common.Usage:
    return common.usage(work.asked.num_prompt_tokens, work.num_completion_tokens, work.num_cached_tokens)


def _good_outcome(work: generation.Generation) -> str:
    return "length" if any(each.finish == "length" for each in work.choices) else "stop"
