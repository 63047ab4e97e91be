"""`tidemark profile` against servers: a real engine's, one that loads, one that is somebody else's, none."""

from __future__ import annotations

import asyncio
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import live
import pytest

from tidemark_operator import cli

pytestmark = pytest.mark.slow

CERTIFICATES = Path(__file__).parents[2] / "support" / "certificates"


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    assert cli.run(["profile", *arguments]) == code
    shown = capsys.readouterr()
    return shown.out if code == 0 else shown.err


async def test_a_scripted_engine(scripted_url, engine, fakes, capsys: pytest.CaptureFixture[str]) -> None:
    engine.ready = fakes.ready(planned_bytes={"weights": 900, "kv": 2560}, memory_limit_bytes=10_000)
    found = json.loads(await asyncio.to_thread(told, capsys, scripted_url, "-o", "json", code=0))
    assert {row["part"]: (row["plannedBytes"], row["measuredBytes"]) for row in found["parts"]} == {
        "weights": (900, 1000),
        "kv": (2560, 2560),
    }
    assert found["misses"] == {"weights": pytest.approx(1000 / 900)}
    assert found["freeBytes"] == 10_000 - 3560
    assert found["load"]["places"] == 64


async def test_an_engine_that_loads(scripted_url, engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.ready = None
    words = await asyncio.to_thread(told, capsys, scripted_url, code=1)
    assert "the engine is " in words
    assert "Ask again when it is ready" in words


async def test_https_is_not_spoken_here(scripted_url, capsys: pytest.CaptureFixture[str]) -> None:
    words = await asyncio.to_thread(told, capsys, scripted_url.replace("http:", "https:"), code=1)
    assert "does not speak HTTPS" in words
    assert "Write http://" in words


class _Other(http.server.BaseHTTPRequestHandler):
    """Answers 200 with a page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>it works</html>")

    def log_message(self, *_: object) -> None:
        """Quiet."""


def served(certificate: str | None) -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Other)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / f"{certificate}.crt", CERTIFICATES / f"{certificate}.key")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def other() -> Iterator[str]:
    yield from served(None)


@pytest.fixture
def other_with_tls() -> Iterator[str]:
    yield from served("one")


def test_a_certificate_is_trusted_or_not(other_with_tls: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "its certificate is not trusted here" in told(capsys, other_with_tls, code=1)
    trusting = ["--ca-file", str(CERTIFICATES / "one.crt")]
    assert "is no status of a Tidemark engine" in told(capsys, other_with_tls, *trusting, code=1)
    assert "Does it speak HTTPS? Then write https://" in told(capsys, other_with_tls.replace("https:", "http:"), code=1)
    wrong = ["--ca-file", str(CERTIFICATES / "gone.crt")]
    assert "expected certificates in PEM" in told(capsys, other_with_tls, *wrong, code=1)


def test_somebody_else(other: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is no status of a Tidemark engine" in told(capsys, other, code=1)


def test_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    words = told(capsys, f"http://127.0.0.1:{live.free_port()}", code=1)
    assert "cannot connect" in words
    assert "Does the engine run, and is this its port?" in words
