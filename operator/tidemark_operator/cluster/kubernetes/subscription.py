"""One reader of the cache's changes. However slow the reader is, an object waits for it once, in its latest state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import cache as cache_

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_TURN = 50
"""Events after which others get a turn."""


class Subscription:
    """Changes of one kind in one namespace (empty: in all)."""

    def __init__(self, cache: cache_.Cache, kind: str, namespace: str) -> None:
        self._cache = cache
        self._kind = kind
        self._namespace = namespace
        self._waiting: dict[interface.Key, tuple[interface.Change, bytes]] = {}
        self._wake = asyncio.Event()

    async def events(self) -> AsyncIterator[interface.WatchEvent]:
        """What is there as ADDED, then every change, until the caller stops."""
        end: Callable[[], None] = self._cache.listen(self._changed)
        try:
            for key, entry in self._cache.entries(self._kind, self._namespace):
                self._waiting.setdefault(key, (interface.Change.ADDED, entry.body))
            self._wake.set()
            while True:
                await self._wake.wait()
                self._wake.clear()
                given = 0
                while self._waiting:
                    change, body = self._waiting.pop(next(iter(self._waiting)))
                    yield interface.WatchEvent(change, _decode(body))
                    given += 1
                    if given % _TURN == 0:
                        await asyncio.sleep(0)
        finally:
            end()

    def _changed(self, change: interface.Change, key: interface.Key, body: bytes) -> None:
        if key.kind != self._kind or (self._namespace and key.namespace != self._namespace):
            return
        before = self._waiting.pop(key, None)
        if before and before[0] is interface.Change.ADDED and change is interface.Change.MODIFIED:
            change = interface.Change.ADDED
        self._waiting[key] = (change, body)
        self._wake.set()
