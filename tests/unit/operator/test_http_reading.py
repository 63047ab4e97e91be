"""One answer in bounded time and memory, whatever the server does."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tidemark_operator import http_reading
from tidemark_operator.commands import inspect_engines, profile_reader

URL = "http://engine:8000"
ME = "me:secret"


class Pieces(httpx.SyncByteStream):
    """A body that never ends, or fails."""

    def __init__(self, piece: bytes, error: Exception | None = None) -> None:
        self.piece, self.error = piece, error

    def __iter__(self) -> Iterator[bytes]:
        yield self.piece
        if self.error is not None:
            raise self.error
        while True:
            yield self.piece


def read(answer: httpx.Response, clock: Iterator[float] | None = None) -> http_reading.Answer:
    client = httpx.Client(transport=httpx.MockTransport(lambda _: answer))
    times = iter(range(10_000)) if clock is None else clock
    return http_reading.read(client, "GET", URL, seconds=130.0, most_bytes=8 << 20, clock=lambda: float(next(times)))


def test_a_whole_answer() -> None:
    assert read(httpx.Response(200, content=b"abc")) == http_reading.Answer(200, b"abc", "")
    assert read(httpx.Response(302, headers={"location": "http://other/"})).location == "http://other/"


def test_a_byte_a_second_is_not_read_forever() -> None:
    """httpx' own timeout begins anew with each byte."""
    with pytest.raises(http_reading.Broken, match=r"not complete within 130 s"):
        read(httpx.Response(200, stream=Pieces(b" ")))


def test_an_answer_without_end_does_not_fill_the_memory() -> None:
    with pytest.raises(http_reading.Broken, match=r"longer than 8 MiB"):
        read(httpx.Response(200, stream=Pieces(bytes(1 << 20))))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ReadTimeout("slow"), "half-way"),
        (httpx.RemoteProtocolError("peer closed connection"), "broke off"),
        (httpx.DecodingError("incorrect header check"), "unpacked"),
    ],
)
def test_an_answer_that_breaks_off(error: Exception, words: str) -> None:
    with pytest.raises(http_reading.Broken, match=words):
        read(httpx.Response(200, stream=Pieces(b"x", error)))


def test_an_engines_address_is_shown_without_a_password() -> None:
    assert profile_reader.shown(f"http://{ME}@engine:8000/v1?x=1") == URL
    service = inspect_engines.of_url(f"http://{ME}@127.0.0.1:1/v1", None)
    assert (service.url, service.engines[0].name) == ("http://127.0.0.1:1", "127.0.0.1:1")
    assert "secret" not in service.engines[0].why_not
    with pytest.raises(profile_reader.NotAnEngine) as caught:
        profile_reader.Engine(f"ftp://{ME}@engine")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://[::1", "", "foo", "http://h:99999"])
def test_what_is_no_address_is_our_own_error(url: str) -> None:
    with pytest.raises(profile_reader.NotAnEngine, match="expected http://HOST:PORT"):
        inspect_engines.of_url(url, None)
