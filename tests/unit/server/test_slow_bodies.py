"""A body that does not come is not waited for without end; the clock is the loop's own, which jumps."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
import virtual_loop

from tidemark_runtime import config
from tidemark_runtime.server import app as server_app

SERVER = config.ServerConfig(body_seconds=30.0)
BODY = json.dumps({"prompt": [65]}).encode()


def spoken(make_app, exchange_class, seconds_apart: float, path: str):
    """The exchange with a client that sends a byte of `BODY` each so many seconds, and the seconds it took."""

    class Slow(exchange_class):
        async def _receive(self):
            self.num_receives += 1
            if not self._parts:
                return await super()._receive()
            await asyncio.sleep(seconds_apart)
            return {"type": "http.request", "body": self._parts.pop(0), "more_body": bool(self._parts)}

    async def run():
        client = Slow(make_app(), path, b"", {"content-type": "application/json"})
        client._parts = [bytes([each]) for each in BODY]
        await client.task
        return client, asyncio.get_running_loop().time()

    return virtual_loop.run(run())


@pytest.fixture
def make_app(fakes, settings):
    return lambda: server_app.create_app(
        fakes.FakeEngine(), fakes.ByteText(), dataclasses.replace(settings, server=SERVER)
    )


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/tokenize"])
def test_a_body_that_takes_too_long_is_answered_408_and_the_connection_closes(make_app, exchange, path):
    client, seconds = spoken(make_app, exchange, 4.0, path)
    assert client.status == 408
    error = json.loads(client.body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "body_timeout")
    assert error["message"] == ("The request body must be here in 30 seconds (server.bodySeconds), 7 bytes of it came.")
    assert (b"connection", b"close") in client.sent[0]["headers"]
    assert seconds == pytest.approx(32.0)  # what it still sends is thrown away for two seconds


def test_a_body_that_is_in_time_is_served(make_app, exchange):
    client, seconds = spoken(make_app, exchange, 29.0 / len(BODY), "/v1/completions")
    assert client.status == 200
    assert seconds < 30.0
