"""Clients that keep an engine's memory above a line: they stream, send again, and stop when told."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

from tidemark_runtime.contract import http

REQUEST_SECONDS = 300.0
_PAUSE_SECONDS = 0.5
"""After an answer that is no stream."""
_TOKENS = range(1000, 40_000)
"""Ordinary words of the small model's vocabulary; chosen at random, since a prefix cache would save the pages."""
LOW, USUAL = -1, 0


@dataclass(frozen=True)
class Shape:
    """So many clients that send such requests; every other one says that it is less important."""

    clients: int
    prompt_tokens: int
    output_tokens: int

    def __str__(self) -> str:
        return f"{self.clients} clients, {self.prompt_tokens} + {self.output_tokens} tokens"


@dataclass
class Load:
    """What came of the requests: HTTP status -> how many; 0: the connection failed."""

    counts: Counter[int] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def running(url: str, model: str, shape: Shape) -> Iterator[Load]:
    """From here to the end of the block; open streams are then closed, as by clients that go away."""
    load = Load()
    threads = [
        threading.Thread(target=_send, args=(load, url, model, shape, number), daemon=True)
        for number in range(shape.clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load._stop.set()
        for thread in threads:
            thread.join(REQUEST_SECONDS)


def _send(load: Load, url: str, model: str, shape: Shape, number: int) -> None:
    draws = random.Random(number)
    headers = {http.PRIORITY_HEADER: str(LOW if number % 2 else USUAL)}
    with httpx.Client(timeout=REQUEST_SECONDS, trust_env=False, verify=False) as client:
        while not load._stop.is_set():
            body = {
                "model": model,
                "prompt": draws.choices(_TOKENS, k=shape.prompt_tokens),
                "max_tokens": shape.output_tokens,
                "ignore_eos": True,
                "stream": True,
            }
            load.counts[_stream(load, client, f"{url}{http.COMPLETIONS_PATH}", body, headers)] += 1


def _stream(load: Load, client: httpx.Client, url: str, body: object, headers: dict[str, str]) -> int:
    try:
        with client.stream("POST", url, json=body, headers=headers) as answer:
            for _ in answer.iter_lines():
                if load._stop.is_set():
                    break
            status = answer.status_code
    except httpx.HTTPError:
        status = 0
    if status != 200:
        load._stop.wait(_PAUSE_SECONDS)
    return status
