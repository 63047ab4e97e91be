"""Who may use the API, and who /admin: one middleware, before anything of the request is read."""

from __future__ import annotations

from starlette import types
from starlette.datastructures import Headers

from tidemark_runtime import errors
from tidemark_runtime.contract import http
from tidemark_runtime.server import context, key_lines, responses

_SCOPE_KEY = "tidemark.key"


class NoAdmin(errors.RequestError):
    """No token file is set, so there is no /admin."""

    status = 404
    kind = "not_found_error"
    code = "admin_disabled"


class Gate:
    """ASGI middleware: every path but the open ones needs a key, and is refused before its body is read. What comes
    after it asks `key_of` whose the request is.

    Below /admin it is an admin token instead, and where no token file is set, there is nothing.
    """

    def __init__(self, app: types.ASGIApp, shared: context.Context) -> None:
        self._app = app
        self._shared = shared

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else responses.refusal(refusal))(scope, receive, send)

    def _refusal(self, scope: types.Scope) -> errors.RequestError | None:
        path = scope["path"]
        if f"{path}/".startswith(http.ADMIN_PREFIX):
            return self._admin_refusal(scope)
        keys = self._shared.keys
        if keys is None or path in http.OPEN_PATHS:
            return None
        key = _bearer(scope)
        known = keys.find(key) if key is not None else None
        if known is not None and not self._has_ended(known):
            scope[_SCOPE_KEY] = known
            return None
        self._shared.metrics.rejected("unauthorized")
        if known is not None:
            return errors.Unauthorized(
                f"This API key has ended: its last day was {known.until}, by UTC. Ask who runs this server for a new "
                "one, or for a later `until` in its line of the key file."
            )
        return errors.Unauthorized(
            "No API key. Send it as `Authorization: Bearer KEY`." if key is None else "Incorrect API key."
        )

    def _has_ended(self, key: key_lines.Key) -> bool:
        return key.ends_at is not None and self._shared.unix_time() >= key.ends_at

    def _admin_refusal(self, scope: types.Scope) -> errors.RequestError | None:
        tokens = self._shared.admin_tokens
        if tokens is None:
            return NoAdmin(
                "This server has no /admin. To enable it, start it with --admin-token-file FILE "
                "(server.adminTokenFile), a file that holds the token."
            )
        token = _bearer(scope)
        if token is not None and tokens.allows(token):
            return None
        return errors.Unauthorized(
            "No admin token. Send it as `Authorization: Bearer TOKEN`; an API key does not open /admin."
            if token is None
            else "Incorrect admin token. An API key does not open /admin.",
            code="invalid_admin_token",
        )


def key_of(scope: types.Scope) -> key_lines.Key:
    """Whose key opened the gate for this request."""
    key: key_lines.Key = scope.get(_SCOPE_KEY, key_lines.ANYONE)
    return key


def _bearer(scope: types.Scope) -> str | None:
    """What follows `Bearer`; None where there is nothing."""
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    return _as_utf8(key.strip()) if scheme.lower() == "bearer" and key.strip() else None


def _as_utf8(value: str) -> str:
    """Header values arrive as latin-1; the key file, and every client with such a key, speaks UTF-8."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")
