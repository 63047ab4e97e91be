"""One request over HTTP: sent, its stream read, and when each piece came. Never raises for what a server does."""

from __future__ import annotations

import asyncio
import ssl
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import httpx
import msgspec

Clock = Callable[[], float]
"""Seconds from a beginning that all times of a level share."""


class Outcome(StrEnum):
    """How a try ended."""

    OK = "ok"
    """200, and a whole stream."""
    REFUSED = "refused"
    """429."""
    ERROR = "error"
    """Another status than 200."""
    BROKEN = "broken"
    """200, then an error in the stream, or an end without a reason to end."""
    TIMEOUT = "timeout"
    """Not over within `--timeout`."""
    UNREACHABLE = "unreachable"
    """No connection, or one that closed before an answer."""
    CUT = "cut"
    """By us, when a level was over; not counted among the outcomes."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What is sent."""

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class Exchange:
    """One try. Times in seconds of the level's clock; `sent` is when the request left, not when it was due."""

    sent: float | None = None
    ended: float | None = None
    """None while it is under way."""
    chunk_times: array[float] = field(default_factory=lambda: array("d"))
    """When each event with text came. A server may put several tokens into one."""
    outcome: Outcome = Outcome.CUT
    status: int = 0
    code: str = ""
    """The error's own, such as `queue_full`; where it has none, its status or the client's error."""
    message: str = ""
    retry_after_seconds: float | None = None
    prompt_tokens: int | None = None
    """As the server counts them; None where it does not say."""
    output_tokens: int | None = None
    cached_tokens: int = 0
    finish: str = ""
    texts: list[str] = field(default_factory=list)

    @property
    def num_output_tokens(self) -> int:
        """By the server's count; where it does not say, so many events came."""
        return len(self.chunk_times) if self.output_tokens is None else self.output_tokens

    @property
    def first(self) -> float | None:
        """When the first token came."""
        if self.chunk_times:
            return self.chunk_times[0]
        # Tokens that are no text, or half a character: all that can be seen of them is the end.
        return self.ended if self.outcome is Outcome.OK else None

    @property
    def text(self) -> str:
        return "".join(self.texts)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """OpenAI's, as far as it matters here."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _CachedTokens | None = None


class _ErrorDetail(msgspec.Struct):
    message: str = ""
    code: str | int | None = None
    type: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: _ErrorDetail | str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _ErrorDetail | str | None = None
    message: str = ""


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_MAX_ERROR_BYTES = 65_536
_MAX_LINE_BYTES = 1 << 20


async def ask(http: httpx.AsyncClient, wire: Wire, clock: Clock, into: Exchange, *, timeout_seconds: float) -> None:
    """Send `wire` and write what comes into `into`. Raises nothing but `CancelledError`."""
    try:
        async with asyncio.timeout(timeout_seconds):
            await _ask(http, wire, clock, into)
    except (TimeoutError, httpx.TimeoutException):
        into.outcome, into.code = Outcome.TIMEOUT, "timeout"
    except (httpx.HTTPError, ssl.SSLError, OSError) as error:
        began = into.status == 200
        into.outcome = Outcome.BROKEN if began else Outcome.UNREACHABLE
        into.code = "connection_lost" if began else type(error).__name__
        into.message = str(error)
    except msgspec.DecodeError as error:
        into.outcome, into.code, into.message = Outcome.BROKEN, "not_json", str(error)
    finally:
        into.ended = clock()


async def _ask(http: httpx.AsyncClient, wire: Wire, clock: Clock, into: Exchange) -> None:
    into.sent = clock()
    async with http.stream("POST", wire.path, content=wire.body, headers=wire.headers) as response:
        into.status = response.status_code
        if response.status_code != 200:
            await _take_error(response, into)
            return
        rest = b""
        async for piece in response.aiter_bytes():
            now = clock()
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                _take_line(line, now, into)
            if into.outcome is Outcome.BROKEN:
                return
            if len(rest) > _MAX_LINE_BYTES:
                into.outcome, into.code = Outcome.BROKEN, "endless_line"
                return
    if into.finish:
        into.outcome = Outcome.OK
    else:
        into.outcome, into.code = Outcome.BROKEN, "no_finish_reason"


def _take_line(line: bytes, now: float, into: Exchange) -> None:
    """One line of an event stream; those that are no data are comments, names or empty."""
    if not line.startswith(b"data:"):
        return
    data = line[5:].strip()
    if data == b"[DONE]" or not data:
        return
    chunk = _decode_chunk(data)
    if chunk.error is not None:
        into.outcome = Outcome.BROKEN
        into.code, into.message = _error_words(chunk.error, "error_in_stream")
        return
    if chunk.usage is not None:
        take_usage(chunk.usage, into)
    for choice in chunk.choices:
        text = choice.text
        if choice.delta is not None:
            text = choice.delta.content or choice.delta.reasoning_content
        if text:
            into.chunk_times.append(now)
            into.texts.append(text)
        if choice.finish_reason:
            into.finish = choice.finish_reason


def take_usage(usage: Usage, into: Exchange) -> None:
    into.prompt_tokens, into.output_tokens = usage.prompt_tokens, usage.completion_tokens
    details = usage.prompt_tokens_details
    into.cached_tokens = (details.cached_tokens or 0) if details is not None else 0


async def _take_error(response: httpx.Response, into: Exchange) -> None:
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_ERROR_BYTES:
            break
    into.outcome = Outcome.REFUSED if response.status_code == 429 else Outcome.ERROR
    into.code, into.message = read_error(body, response.status_code)
    into.retry_after_seconds = retry_after(response.headers)


def read_error(body: bytes, status: int) -> tuple[str, str]:
    """Code and message of an error answer; the status where it has no code."""
    fallback = f"http_{status}"
    try:
        answer = msgspec.json.decode(body, type=_ErrorAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return fallback, body[:200].decode("utf-8", "replace").strip()
    if answer.error is None:
        return fallback, answer.message
    return _error_words(answer.error, fallback)


def _error_words(error: _ErrorDetail | str, fallback: str) -> tuple[str, str]:
    if isinstance(error, str):
        return fallback, error
    return str(error.code or error.type or fallback), error.message


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds; None where the answer does not say, or names a date."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * scale)
        except (KeyError, ValueError):
            continue
    return None
