"""The HTTP/1.1 connection: uvicorn's on httptools, with what it leaves open closed.

- What a connection makes us keep before a request (or more of its body) can be handed on is bounded; uvicorn
  collects headers without end.
- Whatever is wrong with the HTTP itself is answered as JSON, like every other error.
- An offer to upgrade (`Upgrade: h2c`, which Java's client sends with every POST) is declined by serving the request
  as it is; httptools drops the body of a request with such an offer.
- A client that has sent its next request early still counts as gone when it goes; uvicorn then listens to nobody.
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http import httptools_impl

from tidemark_runtime.server.wire import common

MAX_HEAD_BYTES = 64 * 1024
"""Of request line and headers together, as h11 and nginx allow; up to one read of the socket more may pass."""

_UPGRADE_HEADERS = frozenset({b"upgrade", b"http2-settings"})
_INVALID = "This is not a valid HTTP/1.1 request."
_TOO_LARGE = f"Request line and headers may have at most {MAX_HEAD_BYTES} bytes."


class Protocol(httptools_impl.HttpToolsProtocol):
    """One connection."""

    _unused_bytes = 0
    """Received since the parser last had something to hand on."""
    _handed_on = False
    _early = b""
    """Received while an earlier request of this connection is unanswered; not parsed yet."""
    _cycles: tuple[httptools_impl.RequestResponseCycle, ...] = ()
    """Requests without a complete response."""

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.pipeline or self._early:
            self._early += data
            if len(self._early) > MAX_HEAD_BYTES:
                self.flow.pause_reading()
            return
        self._handed_on = False
        self._feed(data)
        self._unused_bytes = 0 if self._handed_on else self._unused_bytes + len(data)
        if self._unused_bytes > MAX_HEAD_BYTES:
            self._refuse(431, _TOO_LARGE)
        elif self.pipeline:
            self.flow.resume_reading()  # uvicorn stops here, and so would not hear that the client leaves

    def on_headers_complete(self) -> None:
        self._handed_on = True
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            waiting = [cycle for cycle in self._cycles if not cycle.response_complete]
            self._cycles = (*waiting, self.cycle)

    def on_body(self, body: bytes) -> None:
        self._handed_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._handed_on = True
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._early and not self.pipeline and not self.transport.is_closing():
            early, self._early = self._early, b""
            self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":
                self._refuse(400, _INVALID)
            else:
                rest = data[offer.args[0] :]
                head = self._head_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                self._feed(head + rest)
        except httptools.HttpParserError:
            self._refuse(400, _INVALID)

    def _head_without_upgrade(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [method + b" " + self.url + b" HTTP/" + version]
        for name, value in self.headers:
            if name == b"connection":
                kept = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in kept if token.lower() not in _UPGRADE_HEADERS)
            if name not in _UPGRADE_HEADERS and value:
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, status: int, message: str) -> None:
        """Answer and close. The rest of what the client sends is not read."""
        if self.transport.is_closing():
            return
        self.logger.info("refused a connection's input status=%d reason=%s", status, message)
        body = common.encode(common.ErrorBody(common.ErrorDetail(message, "invalid_request_error")))
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(httptools_impl.STATUS_LINE[status] + head + body)
        self.transport.close()
