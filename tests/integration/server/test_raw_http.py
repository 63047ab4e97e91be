"""Bytes on a socket that no well-behaved client sends, and some that well-behaved ones do."""

from __future__ import annotations

import asyncio
import contextlib
import json
from urllib.parse import urlsplit

import pytest

BODY = b'{"prompt": "Hi"}'


def post(body: bytes = BODY, *headers: bytes) -> bytes:
    lines = [b"POST /v1/completions HTTP/1.1", b"Host: x", *headers, b"Content-Length: %d" % len(body), b"", body]
    return b"\r\n".join(lines)


@pytest.fixture
async def connection(scripted_url):
    reader, writer = await asyncio.open_connection(urlsplit(scripted_url).hostname, urlsplit(scripted_url).port)
    yield reader, writer
    writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict]:
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:-2])
        body = await reader.readexactly(int(fields["content-length"]))
    return int(head.split()[1]), json.loads(body)


INVALID = {
    "an unknown method": b"FOO / HTTP/1.1\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a negative length": b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "a length and chunks": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "a bad chunk": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "a bad URL": b"GET http://[::1/x HTTP/1.1\r\n\r\n",
    "a tunnel": b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("sent", INVALID.values(), ids=INVALID)
async def test_broken_http_is_answered_in_json(connection, sent):
    reader, writer = connection
    writer.write(sent)
    status, body = await answer(reader)
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert await reader.read() == b"", "the connection is closed"


FLOODS = {
    "headers": (b"GET /status HTTP/1.1\r\n", b"name: " + b"v" * 994 + b"\r\n"),
    "one header": (b"GET /status HTTP/1.1\r\nname: ", b"v" * 1000),
    "the path": (b"GET /", b"a" * 1000),
    "a chunk's extension": (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"e" * 1000),
    "trailers": (
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
        b"name: " + b"v" * 994 + b"\r\n",
    ),
}


@pytest.mark.parametrize(("start", "more"), FLOODS.values(), ids=FLOODS)
async def test_a_head_without_end_is_cut_off(connection, start, more):
    reader, writer = connection
    writer.write(start)
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 50_000_000:
            writer.write(more * 64)
            await writer.drain()
            await asyncio.sleep(0)
            sent += 64 * len(more)
    assert sent < 10_000_000, "cut off after what the sockets buffer, and not much more"
    assert reader.exception() is not None or b"431" in await reader.read(100)


async def test_a_head_of_the_size_limit_is_served(connection):
    reader, writer = connection
    writer.write(post(BODY, *[b"name: " + b"v" * 990] * 60))
    assert (await answer(reader))[0] == 200


@pytest.mark.parametrize("where", ["together", "one byte at a time"])
async def test_an_offer_to_upgrade_is_declined_and_the_request_served(connection, where):
    """As Java's HttpClient sends it by default."""
    reader, writer = connection
    offer = [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk"]
    sent = post(BODY, *offer)
    for part in [sent] if where == "together" else [sent[place : place + 1] for place in range(len(sent))]:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    status, body = await answer(reader)
    assert (status, body["choices"][0]["text"]) == (200, "Hello, world!")
    writer.write(post())
    assert (await answer(reader))[0] == 200, "the connection goes on"


@pytest.mark.parametrize("where", ["together", "apart", "in the middle"])
async def test_requests_sent_ahead_are_answered_in_turn(connection, where):
    reader, writer = connection
    bodies = [b'{"prompt": "Hi", "max_tokens": %d}' % count for count in (1, 2, 3, 4)]
    sent = b"".join(post(body) for body in bodies)
    cuts = {"together": [0], "apart": [0, len(sent) // 4, len(sent) // 2], "in the middle": [0, len(sent) // 4 - 5]}
    for start, end in zip(cuts[where], [*cuts[where][1:], len(sent)], strict=True):
        writer.write(sent[start:end])
        await writer.drain()
        await asyncio.sleep(0.01)
    answers = [await answer(reader) for _ in bodies]
    assert [body["usage"]["completion_tokens"] for _, body in answers] == [1, 2, 3, 4]


@pytest.mark.parametrize("where", ["together", "apart"])
async def test_b011_a_client_that_sent_its_next_request_early_is_noticed_when_it_goes(connection, engine, where):
    engine.pause_after = 3
    _, writer = connection
    writer.write(post() * (2 if where == "together" else 1))
    while engine.num_running != 1:
        await asyncio.sleep(0.001)
    if where == "apart":
        writer.write(post())
        await writer.drain()
        await asyncio.sleep(0.05)
    writer.close()
    async with asyncio.timeout(60):
        while engine.num_running:
            await asyncio.sleep(0.001)


async def test_half_a_request_is_nobodys_request(connection, scripted_url, engine):
    _, writer = connection
    writer.write(post()[:-3])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    reader, writer = await asyncio.open_connection(urlsplit(scripted_url).hostname, urlsplit(scripted_url).port)
    writer.write(post())
    assert (await answer(reader))[0] == 200
    assert len(engine.aborted) == 0
    writer.close()
