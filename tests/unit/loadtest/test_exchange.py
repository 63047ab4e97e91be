"""One request: whatever a server sends becomes one outcome, with the moments of its pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
import virtual_loop

from tidemark_runtime.loadtest import exchange

WIRE = exchange.Wire("/v1/chat/completions", b"{}", {})
WORD = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4,'
    b'"prompt_tokens_details":{"cached_tokens":3}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


class Pieces(httpx.AsyncByteStream):
    """A piece a second; an exception is raised in its place."""

    def __init__(self, pieces: Sequence[bytes | Exception]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            await asyncio.sleep(1)
            if isinstance(piece, Exception):
                raise piece
            yield piece


def asked(answer: httpx.Response | Exception, timeout: float = 60.0) -> exchange.Exchange:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask() -> exchange.Exchange:
        found = exchange.Exchange()
        async with httpx.AsyncClient(base_url="http://made", transport=httpx.MockTransport(handle)) as http:
            loop = asyncio.get_running_loop()
            await exchange.ask(http, WIRE, loop.time, found, timeout_seconds=timeout)
        return found

    return virtual_loop.run(ask())


def stream(*pieces: bytes | Exception) -> httpx.Response:
    return httpx.Response(200, stream=Pieces(pieces))


def test_a_whole_stream() -> None:
    found = asked(stream(b": hello\n\n", WORD, WORD + WORD, END, USAGE, DONE))
    assert found.outcome is exchange.Outcome.OK
    assert list(found.chunk_times) == [2.0, 3.0, 3.0]
    assert (found.sent, found.first, found.ended) == (0.0, 2.0, 6.0)
    assert (found.prompt_tokens, found.num_output_tokens, found.cached_tokens) == (5, 4, 3)
    assert (found.finish, found.text) == ("stop", "aaa")


def test_lines_that_networks_cut_anywhere_and_ends_with_carriage_returns() -> None:
    whole = (WORD + END + DONE).replace(b"\n", b"\r\n")
    found = asked(stream(*(whole[at : at + 7] for at in range(0, len(whole), 7))))
    assert found.outcome is exchange.Outcome.OK
    assert len(found.chunk_times) == 1


def test_without_usage_events_are_counted() -> None:
    found = asked(stream(WORD, WORD, END, DONE))
    assert found.output_tokens is None
    assert found.num_output_tokens == 2


def test_completions_speak_in_texts() -> None:
    found = asked(stream(b'data: {"choices":[{"text":"b","finish_reason":null}]}\n\n', END))
    assert found.text == "b"


def test_an_answer_of_tokens_that_are_no_text_has_its_first_token_at_its_end() -> None:
    found = asked(stream(END, DONE))
    assert found.outcome is exchange.Outcome.OK
    assert found.first == found.ended == 2.0


@pytest.mark.parametrize(
    ("answer", "outcome", "code"),
    [
        (stream(WORD), exchange.Outcome.BROKEN, "no_finish_reason"),
        (stream(WORD, DONE), exchange.Outcome.BROKEN, "no_finish_reason"),
        (stream(), exchange.Outcome.BROKEN, "no_finish_reason"),
        (
            stream(WORD, b'data: {"error":{"message":"x","code":"engine_dead"}}\n\n'),
            exchange.Outcome.BROKEN,
            "engine_dead",
        ),
        (stream(WORD, b'data: {"error":"x"}\n\n'), exchange.Outcome.BROKEN, "error_in_stream"),
        (stream(WORD, b"data: {nonsense\n\n"), exchange.Outcome.BROKEN, "not_json"),
        (stream(WORD, httpx.ReadError("reset")), exchange.Outcome.BROKEN, "connection_lost"),
        (stream(WORD, httpx.RemoteProtocolError("closed")), exchange.Outcome.BROKEN, "connection_lost"),
        (stream(b"x" * (1 << 20) + b"y"), exchange.Outcome.BROKEN, "endless_line"),
        (httpx.ConnectError("refused"), exchange.Outcome.UNREACHABLE, "ConnectError"),
        (OSError(24, "Too many open files"), exchange.Outcome.UNREACHABLE, "OSError"),
        (httpx.ReadTimeout("slow"), exchange.Outcome.TIMEOUT, "timeout"),
        (stream(*[WORD] * 99), exchange.Outcome.TIMEOUT, "timeout"),
        (httpx.Response(500, text="<html>oops"), exchange.Outcome.ERROR, "http_500"),
        (httpx.Response(302, headers={"location": "http://elsewhere"}), exchange.Outcome.ERROR, "http_302"),
        (
            httpx.Response(400, json={"error": {"code": None, "type": "bad", "message": "m"}}),
            exchange.Outcome.ERROR,
            "bad",
        ),
        (httpx.Response(429, json={"error": {"code": "queue_full"}}), exchange.Outcome.REFUSED, "queue_full"),
        (httpx.Response(429, content=b"\xff"), exchange.Outcome.REFUSED, "http_429"),
    ],
    ids=str,
)
def test_each_bad_end_is_one_outcome(answer: httpx.Response | Exception, outcome: exchange.Outcome, code: str) -> None:
    found = asked(answer, timeout=30)
    assert (found.outcome, found.code) == (outcome, code)
    assert found.ended is not None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "8", "retry-after-ms": "7500"}, 7.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-3"}, 0.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert asked(httpx.Response(429, headers=headers)).retry_after_seconds == seconds
