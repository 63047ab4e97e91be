"""Compares the cache with lists: finds what no watch told, above all objects that vanished while none was connected.

kopf lists again after a gap and hands on what is there, but says nothing about what is not there any more. So the cache
is compared once all watches stand, again shortly after a watch had to begin anew, and now and then anyway. Reads only.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from tidemark_operator import errors
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import activity as activity_
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import cache as cache_
from tidemark_operator.cluster.kubernetes import kinds

_log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_TURN = 50
"""Objects after which others get a turn."""


class Resync:
    """All watched kinds in some namespaces; `("",)`: in all."""

    def __init__(
        self,
        api: api_.Api,
        cache: cache_.Cache,
        activity: activity_.Activity,
        namespaces: Sequence[str],
        *,
        settings: settings_.KubernetesSettings,
        clock: clock_.Clock,
        rng: random.Random,
    ) -> None:
        self._api = api
        self._cache = cache
        self._activity = activity
        self._namespaces = tuple(namespaces)
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._relisted: set[str] = set()
        self._wake = asyncio.Event()

    def relisted(self, kind: str) -> None:
        """A watch of this kind began anew with a list; compare soon."""
        self._relisted.add(kind)
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. A comparison that fails is told and made again."""
        next_full = self._clock.monotonic() + self._period()
        while True:
            await clock_.wait(self._clock, self._wake, next_full - self._clock.monotonic())
            full = self._clock.monotonic() >= next_full
            if not full:
                await self._clock.sleep(self._settings.relist_delay_seconds)
            self._wake.clear()
            due = {kind.name for kind in kinds.WATCHED} if full else set(self._relisted)
            self._relisted.clear()
            if full:
                next_full = self._clock.monotonic() + self._period()
            try:
                await self.compare(due)
            except errors.ClusterError as error:
                _log.warning("comparing with the API server failed, trying again: %s", error)
                self._relisted |= due
                await self._clock.sleep(self._settings.relist_delay_seconds)
                self._wake.set()

    async def compare(self, names: set[str] | None = None) -> None:
        """Bring the cache up to the lists of some kinds, or of all. Raises `errors.ClusterError`."""
        for kind in kinds.WATCHED:
            if names is None or kind.name in names:
                for namespace in self._namespaces:
                    await self.compare_kind(kind, namespace)

    async def compare_kind(self, kind: kinds.Kind, namespace: str) -> int:
        """One kind in one namespace (empty: in all); the version of the list. Raises `errors.ClusterError`."""
        seen: set[interface.Key] = set()
        version, after = 0, ""
        while True:
            page = await self._api.page(kind, namespace, after=after, selector=kind.selector)
            version = version or int(page.resource_version or 0)
            for number, raw in enumerate(page.items):
                document = _decode(raw)
                document.setdefault("apiVersion", kind.api_version)  # items of a list do not repeat these two
                document.setdefault("kind", kind.name)
                seen.add(self._cache.put(document))
                if number % _TURN == 0:
                    await asyncio.sleep(0)
            after = page.next
            if not after:
                break
        self._activity.worked(kind.name, namespace)
        self._drop_vanished(kind, namespace, seen, version)
        return version

    def _drop_vanished(self, kind: kinds.Kind, namespace: str, seen: set[interface.Key], version: int) -> None:
        """An object that is newer than the list proves nothing by not being in it."""
        for key, entry in self._cache.entries(kind.name, namespace):
            if key not in seen and entry.version <= version:
                _log.info("%s vanished unseen", key)
                self._cache.remove(key, version)

    def _period(self) -> float:
        return self._settings.resync_seconds * (1 + self._settings.resync_jitter_ratio * self._rng.random())
