"""A webhook receiver of Alertmanager: everything it is sent, with when."""

from __future__ import annotations

import contextlib
import http.server
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Note:
    """One alert of one message."""

    at: float
    """When it came, Unix seconds."""
    is_firing: bool
    receiver: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def alert(self) -> str:
        return self.labels["alertname"]


@dataclass
class Inbox:
    """Messages in the order in which they came."""

    url: str = ""
    _notes: list[Note] = field(default_factory=list)

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._notes)

    def first(self, alert: str, *, is_firing: bool) -> Note | None:
        """The first message about an alert."""
        return next((note for note in self.notes if note.alert == alert and note.is_firing == is_firing), None)

    def take(self, body: bytes) -> None:
        """One message, as Alertmanager's webhook sends it (version 4)."""
        message, now = json.loads(body), time.time()
        for alert in message["alerts"]:
            is_firing = alert["status"] == "firing"
            self._notes.append(Note(now, is_firing, message["receiver"], alert["labels"], alert["annotations"]))


@contextlib.contextmanager
def listening() -> Iterator[Inbox]:
    """At a free port of 127.0.0.1."""
    inbox = Inbox()

    def post(handler: http.server.BaseHTTPRequestHandler) -> bytes:
        inbox.take(handler.rfile.read(int(handler.headers["content-length"])))
        return b""

    with serving(post=post) as url:
        inbox.url = url
        yield inbox


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed leave connections open: no news. What an answer raises is."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


Answer = Callable[[http.server.BaseHTTPRequestHandler], bytes]


@contextlib.contextmanager
def serving(get: Answer | None = None, post: Answer | None = None) -> Iterator[str]:
    """A small HTTP server; its URL. What an answer returns is plain text."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(get)

        def do_POST(self) -> None:
            self._answer(post)

        def _answer(self, answer: Answer | None) -> None:
            body = answer(self) if answer is not None else b""
            self.send_response(200 if answer is not None else 405)
            self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a scrape twice a second."""

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
