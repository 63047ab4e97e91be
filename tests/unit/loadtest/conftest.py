"""A made server with OpenAI's API on a virtual clock, without sockets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tidemark_runtime.loadtest import target

TEMPLATE_TOKENS = 7
LONG_WORD = 11
"""Words from so many letters on are two tokens here."""


@dataclass
class MadeServer:
    """So many places; a token takes a fixed time; who finds no place waits, or is refused when too many do."""

    places: int = 4
    first_seconds: float = 0.1
    token_seconds: float = 0.02
    most_waiting: int = 10_000
    retry_after: str = "3"
    counts_tokens: bool = True
    says_usage: bool = True
    takes_ignore_eos: bool = True
    is_ours: bool = True
    key: str | None = None
    breaks: Callable[[int], str] = lambda number: ""
    """By the number of the request: how its stream ends early; empty: it does not."""
    answers: Callable[[str, int], str] = lambda prompt, running: "word"
    """The words of an answer, by the prompt and by how many run beside it."""
    on_request: Callable[[int], None] = lambda number: None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[httpx.Headers] = field(default_factory=list)
    running: int = 0
    waiting: int = 0
    waits: list[float] = field(default_factory=list)
    _places: asyncio.Semaphore | None = None

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/metrics" and self.is_ours:
            return httpx.Response(200, text=self._metrics())
        if path == "/status" and self.is_ours:
            return httpx.Response(200, json=self._status())
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return _error(401, "invalid_api_key", "no such key")
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "made"}]})
        if path == "/v1/tokenize" and self.counts_tokens:
            return httpx.Response(200, json={"count": self._count(json.loads(request.content))})
        if path in ("/v1/chat/completions", "/v1/completions"):
            return await self._generate(request)
        return _error(404, "not_found", "no such page")

    def _count(self, body: dict[str, Any]) -> int:
        text = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        extra = TEMPLATE_TOKENS if "messages" in body else int(body.get("add_special_tokens", True))
        return extra + sum(1 + (len(word) >= LONG_WORD) for word in text.split())

    async def _generate(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if "ignore_eos" in body and not self.takes_ignore_eos:
            return _error(400, "unknown_field", "ignore_eos is not known")
        usage = {"prompt_tokens": self._count(body), "completion_tokens": body["max_tokens"]}
        if not body.get("stream"):
            await asyncio.sleep(self.first_seconds)
            return httpx.Response(200, json={"choices": [], **({"usage": usage} if self.says_usage else {})})
        number = len(self.bodies)
        self.bodies.append(body)
        self.headers.append(request.headers)
        self.on_request(number)
        if self.waiting >= self.most_waiting:
            return _error(429, "queue_full", "too much", {"retry-after": self.retry_after})
        return httpx.Response(200, stream=_Stream(self._events(body, usage, number)))

    async def _events(self, body: dict[str, Any], usage: dict[str, int], number: int) -> AsyncIterator[bytes]:
        began = asyncio.get_running_loop().time()
        self._places = self._places or asyncio.Semaphore(self.places)
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        self.waits.append(asyncio.get_running_loop().time() - began)
        try:
            how = self.breaks(number)
            prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
            text = self.answers(prompt, self.running)
            yield _event({"choices": [{"delta": {"role": "assistant"}}]})
            await asyncio.sleep(self.first_seconds)
            for index in range(body["max_tokens"]):
                if index:
                    await asyncio.sleep(self.token_seconds)
                if index == 2 and how == "lost":
                    raise httpx.ReadError("connection reset")
                if index == 2 and how == "error":
                    yield _event({"error": {"message": "worker died", "code": "engine_dead"}})
                    return
                if index == 2 and how == "short":
                    return
                yield _event({"choices": [{"delta": {"content": f" {text}"}}]})
            yield _event({"choices": [{"delta": {}, "finish_reason": "length"}]})
            if self.says_usage and body.get("stream_options"):
                yield _event({"choices": [], "usage": usage})
            yield b"data: [DONE]\n\n"
        finally:
            self.running -= 1
            self._places.release()

    def _metrics(self) -> str:
        lines = [
            f'tidemark_queue_wait_seconds_bucket{{le="{bound}"}} {sum(wait <= float(bound) for wait in self.waits)}'
            for bound in ("0.1", "1.0", "10.0", "+Inf")
        ]
        lines.append(f"tidemark_queue_wait_seconds_count {len(self.waits)}")
        lines.append(f"tidemark_queue_wait_seconds_sum {sum(self.waits)}")
        lines.append('tidemark_preemptions_total{mode="swap"} 0')
        return "\n".join(["# HELP x y", *lines])

    def _status(self) -> dict[str, Any]:
        return {
            "version": "9.9",
            "state": "ready",
            "message": "fine",
            "model": {"name": "made", "source": "made"},
            "config": {"hash": "0"},
            "queue": {"running": self.running, "waiting": self.waiting},
            "memory": {"usageRatio": self.running / self.places},
        }


class _Stream(httpx.AsyncByteStream):
    def __init__(self, events: AsyncIterator[bytes]) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._events:
            yield event

    async def aclose(self) -> None:
        await self._events.aclose()  # type: ignore[attr-defined]


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": message}}, headers=headers)


@pytest.fixture
def server() -> MadeServer:
    return MadeServer()


@pytest.fixture
def open_http(server: MadeServer) -> Callable[[], httpx.AsyncClient]:
    return lambda: target.open_http("http://made", ssl.create_default_context(), 60.0, httpx.MockTransport(server))
