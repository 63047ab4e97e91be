"""`GET /`: the console page, its files, and the data it asks for once a second. It reads and never changes anything.

The files are in `console_page/`: no framework, no build step, nothing from elsewhere. They are read once, at the start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from importlib import resources

from starlette import requests, routing
from starlette import responses as starlette_responses

from tidemark_runtime.contract import http
from tidemark_runtime.server import console_data, console_listing, context, responses, status

PAGE_FILE = "index.html"
_TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only this server's own files, nothing inline, in no frame: whatever a model or a client wrote, it is never run."""
HEADERS: Mapping[str, str] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Console:
    """The routes."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared
        self._version = status.version()
        self._listing = console_listing.Listing(shared)
        self._files = {name: _File(name) for name in (PAGE_FILE, *http.CONSOLE_FILES)}

    def routes(self) -> Iterator[routing.Route]:
        yield routing.Route(http.CONSOLE_PATH, self._files[PAGE_FILE].get, methods=["GET"])
        yield routing.Route(http.CONSOLE_DATA_PATH, self.data, methods=["GET"])
        for name in http.CONSOLE_FILES:
            yield routing.Route(http.CONSOLE_PREFIX + name, self._files[name].get, methods=["GET"])

    async def data(self, _: requests.Request) -> starlette_responses.Response:
        """Answers within half a second, also while the engine is in a long step, or gone."""
        document = console_data.build(self._shared, self._version, await self._listing.latest())
        return responses.json(document, headers={**HEADERS, "cache-control": "no-store"})


class _File:
    """One file, and the name of its content, so that a browser that has it need not get it again."""

    def __init__(self, name: str) -> None:
        self._body = resources.files("tidemark_runtime.server").joinpath("console_page", name).read_bytes()
        self._headers = {
            **HEADERS,
            "content-type": _TYPES[name.rpartition(".")[2]],
            "cache-control": "no-cache",
            "etag": f'"{hashlib.sha256(self._body).hexdigest()[:16]}"',
        }

    async def get(self, request: requests.Request) -> starlette_responses.Response:
        if request.headers.get("if-none-match") == self._headers["etag"]:
            return starlette_responses.Response(status_code=304, headers=self._headers)
        return starlette_responses.Response(self._body, headers=self._headers)
