"""Reads one HTTP answer whole, and no longer and no more than was said: httpx' own timeout is for each piece, and a
server that sends a byte a second, or never ends, would hold a command forever."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    content: bytes
    location: str
    """Where a redirection leads; empty for any other answer."""

    @property
    def start(self) -> str:
        """Its beginning, to be shown in an error."""
        return self.content[:80].decode("utf-8", errors="replace").strip()


class Broken(Exception):
    """It began to answer in HTTP, and the answer could not be read to its end; the message says why and what to do."""


def read(
    client: httpx.Client,
    method: str,
    url: str,
    *,
    seconds: float,
    most_bytes: int,
    params: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Within `seconds` from now. `params` go into the address, `form` into the body. Raises `Broken`; what httpx raises
    before the answer begins goes through."""
    end = clock() + seconds
    with client.stream(method, url, params=params, data=form) as answer:
        found = bytearray()
        try:
            for piece in answer.iter_bytes():
                found += piece
                if len(found) > most_bytes:
                    raise Broken(f"its answer is longer than {most_bytes >> 20} MiB. Is it the right address?")
                if clock() > end:
                    raise Broken(f"its answer was not complete within {seconds:g} s. It is overloaded: ask for less")
        except httpx.TimeoutException as error:
            raise Broken(f"its answer stopped half-way, for {seconds:g} s. It is overloaded: try again") from error
        except httpx.DecodingError as error:
            raise Broken(f"its answer cannot be unpacked: {error}. Is there a proxy that changes it?") from error
        except httpx.HTTPError as error:
            raise Broken(f"its answer broke off: {error}. It ended, or a proxy ended it: try again") from error
        location = answer.headers.get("location", "") if answer.is_redirect else ""
        return Answer(answer.status_code, bytes(found), location)
