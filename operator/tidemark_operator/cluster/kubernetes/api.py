"""Requests of the API server about objects, and its answers in our exceptions. Messages say what the server said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from tidemark_operator import errors, names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import connection as connection_
from tidemark_operator.cluster.kubernetes import kinds

_MERGE = "application/merge-patch+json"
_TRIES = 3
"""How often a request that the API server was too busy for is made."""


class Invalid(errors.Refused):
    """The object would not be valid (422); not a matter of permission."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    items: list[msgspec.Raw]
    resource_version: str
    next: str
    """Asks for the next part; empty: this was the last."""


class WatchedChange(msgspec.Struct):
    """One line of a watch."""

    type: str
    """A word of `interface.Change`, or BOOKMARK."""
    object: msgspec.Raw


class Api:
    """Every method raises `errors.ClusterError`."""

    def __init__(self, connection: connection_.Connection, settings: settings_.KubernetesSettings) -> None:
        self._connection = connection
        self._settings = settings

    async def get(self, key: interface.Key) -> bytes | None:
        """The object as JSON, or None."""
        kind = kinds.TABLE[key.kind]
        try:
            return await self._ask("GET", "get", kind, kind.path(key.namespace, key.name))
        except errors.NotFound:
            return None

    async def page(
        self,
        kind: kinds.Kind,
        namespace: str,
        *,
        after: str = "",
        selector: str | None = None,
        fields: str | None = None,
        cached: bool = True,
    ) -> Page:
        """A part of the objects of a kind; `namespace` empty: of all. `selector`: of labels; `fields`: of fields.
        `cached`: the API server may answer from memory, slightly late."""
        query = {"limit": str(self._settings.list_page)}
        if selector:
            query["labelSelector"] = selector
        if fields:
            query["fieldSelector"] = fields
        if after:
            query["continue"] = after
        elif cached:
            query["resourceVersion"] = "0"
        body = await self._ask(
            "GET", "list", kind, kind.path(namespace), query=query, seconds=self._settings.list_seconds
        )
        found = msgspec.json.decode(body, type=_List)
        return Page(found.items or [], found.metadata.resource_version, found.metadata.next or "")

    async def apply(self, manifest: Mapping[str, Any]) -> bytes:
        """Server-side apply of the whole intent, forced; the object as it is now."""
        key = interface.key_of(manifest)
        kind = kinds.TABLE[key.kind]
        return await self._ask(
            "PATCH",
            "patch",
            kind,
            kind.path(key.namespace, key.name),
            query={"fieldManager": names.FIELD_MANAGER, "force": "true"},
            body=manifest,
            content_type=connection_.APPLY,
        )

    async def patch_status(self, key: interface.Key, status: Mapping[str, Any]) -> bytes | None:
        """Server-side apply of the whole status and nothing else: what we set before and leave out now is removed, and
        no spec or metadata can be touched. None: the object is gone."""
        kind = kinds.TABLE[key.kind]
        intent = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": status,
        }
        try:
            return await self._ask(
                "PATCH",
                "patch",
                kind,
                kind.path(key.namespace, key.name, "status"),
                query={"fieldManager": names.FIELD_MANAGER, "force": "true"},
                body=intent,
                content_type=connection_.APPLY,
            )
        except errors.NotFound:
            return None

    async def create(self, kind: kinds.Kind, namespace: str, body: Mapping[str, Any]) -> bytes:
        return await self._ask("POST", "create", kind, kind.path(namespace), body=body)

    async def replace(self, kind: kinds.Kind, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        """Raises `errors.Conflict` when `metadata.resourceVersion` of `body` is not the latest."""
        return await self._ask("PUT", "update", kind, kind.path(namespace, name), body=body)

    async def merge(self, kind: kinds.Kind, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        return await self._ask("PATCH", "patch", kind, kind.path(namespace, name), body=body, content_type=_MERGE)

    async def delete(self, key: interface.Key) -> None:
        """Begin to delete; dependents follow by themselves. What is gone is no error."""
        kind = kinds.TABLE[key.kind]
        try:
            await self._ask(
                "DELETE",
                "delete",
                kind,
                kind.path(key.namespace, key.name),
                body={"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"},
            )
        except errors.NotFound:
            return

    async def watch(self, kind: kinds.Kind, namespace: str, version: str) -> AsyncIterator[WatchedChange]:
        """Every change since `version`, bookmarks included, until the server ends the answer. Raises `Conflict` when
        the server no longer knows what happened since then, `NotFound` when the kind is gone."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(self._settings.watch_seconds),
        }
        if kind.selector:
            query["labelSelector"] = kind.selector
        path = kind.path(namespace)
        what = f"{kind.plural}.{kind.group} ({path})"
        async with self._connection.streaming(path, query, self._settings.watch_inactivity_seconds) as response:
            if response.status != 200:
                raise _translate(response.status, await response.read(), "watch", what)
            async for line in _lines(response.content):
                change = msgspec.json.decode(line, type=WatchedChange)
                if change.type == "ERROR":
                    code = msgspec.json.decode(change.object, type=_Status).code
                    raise _translate(code, bytes(change.object), "watch", what)
                yield change

    async def resources(self, path: str) -> frozenset[str]:
        """Plural names of the kinds of a group and version; none where the API server does not know it."""
        status, body = await self._connection.request("GET", path)
        if status == 404:
            return frozenset()
        if status != 200:
            raise _translate(status, body, "get", path)
        return frozenset(item.name for item in msgspec.json.decode(body, type=_ResourceList).resources)

    async def exists(self, path: str) -> bool:
        """Whether the API server knows a path, such as a group and version."""
        status, body = await self._connection.request("GET", path)
        if status not in (200, 404):
            raise _translate(status, body, "get", path)
        return status == 200

    async def _ask(
        self,
        method: str,
        verb: str,
        kind: kinds.Kind,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> bytes:
        for left in reversed(range(_TRIES)):
            status, answer = await self._connection.request(
                method, path, query=query, body=body, content_type=content_type, seconds=seconds
            )
            if status < 400:
                break
            if status != 429 or not left:
                raise _translate(status, answer, verb, f"{kind.plural}{'.' if kind.group else ''}{kind.group} ({path})")
            await asyncio.sleep(_wait_seconds(answer))
        return answer


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] = []


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    next: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Of any length: aiohttp's own reader of lines gives up at 128 KiB, and an object may be larger."""
    pieces: list[bytes] = []
    async for chunk in content.iter_any():
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            pieces.append(piece)
            line = b"".join(pieces)
            pieces.clear()
            if line.strip():
                yield line
        pieces.append(rest)


def _translate(status: int, body: bytes, verb: str, what: str) -> errors.ClusterError:
    said = _status(body)
    message = said.message or body[:200].decode(errors="replace").strip() or f"HTTP {status}"
    if status == 404:
        return errors.NotFound(message)
    if status in (409, 410, 412):
        return errors.Conflict(message)
    if status == 401:
        return errors.Refused(f"the API server does not accept our credentials ({verb} {what}): {message}")
    if status == 403 and "forbidden" in message.lower():
        return errors.Refused(f"not permitted: {verb} {what}. {message}")
    if status == 429 or status >= 500:
        return errors.Unavailable(f"{verb} {what}: {message}")
    return Invalid(message) if status == 422 else errors.Refused(message)


def _wait_seconds(body: bytes) -> float:
    details = _status(body).details
    return min(5.0, float(details.retry_after_seconds) if details else 1.0) or 1.0


def _status(body: bytes) -> _Status:
    try:
        return msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Status()
