"""Kinds that are somebody else's: is the cluster's API server able to store them, and what is there of them.

kopf resolves kinds once, at its start, so these are followed by watches of our own. A kind that is absent costs one
small request now and then; one that appears is listed and watched from then on, without a restart. Their watches are
no matter of liveness: an operator that cannot follow a PodMonitor still keeps its services.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from tidemark_operator import errors
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import cache as cache_
from tidemark_operator.cluster.kubernetes import kinds, resync

_log = logging.getLogger(__name__)


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Metadata


class _Stream:
    """One kind in one namespace (empty: in all)."""

    def __init__(self, kind: kinds.Kind, namespace: str) -> None:
        self.kind = kind
        self.namespace = namespace
        self.lack: interface.Lack | None = interface.Lack("NotKnownYet", f"{kind.name}: nobody has looked yet")
        self.version = ""
        """What a watch goes on from; empty: a list is needed first."""


class OptionalKinds:
    """All of `kinds.OPTIONAL` in some namespaces; `("",)`: in all."""

    def __init__(
        self,
        api: api_.Api,
        cache: cache_.Cache,
        lists: resync.Resync,
        namespaces: Sequence[str],
        *,
        settings: settings_.KubernetesSettings,
        clock: clock_.Clock,
    ) -> None:
        self._api = api
        self._cache = cache
        self._lists = lists
        self._settings = settings
        self._clock = clock
        self._streams = {
            (kind.name, namespace): _Stream(kind, namespace) for kind in kinds.OPTIONAL for namespace in namespaces
        }

    def lacks(self, kind: str, namespace: str) -> interface.Lack | None:
        """Why the kind cannot be used there; None: it can."""
        stream = self._streams.get((kind, namespace)) or self._streams[kind, ""]
        return stream.lack

    async def look(self) -> None:
        """Before the first pass: which are there, and their objects. Raises `errors.ClusterError`."""
        for stream in self._streams.values():
            await self._begin(stream)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for stream in self._streams.values():
                group.create_task(self._follow(stream))

    async def _follow(self, stream: _Stream) -> None:
        """Look, list and watch, for ever. What goes wrong is told and tried again."""
        while True:
            try:
                if not stream.version:
                    await self._begin(stream)
                if stream.lack is None:
                    await self._watch(stream)
            except (errors.Conflict, errors.NotFound):
                stream.version = ""  # too old to go on from, or the kind is gone: the next look tells
            except errors.Refused as error:
                self._gone(stream, _not_permitted(stream.kind, error))
            except errors.ClusterError as error:
                _log.warning("following %s failed, trying again: %s", stream.kind.plural, error)
            pause = self._settings.optional_kinds_seconds if stream.lack else self._settings.relist_delay_seconds
            await self._clock.sleep(pause)

    async def _begin(self, stream: _Stream) -> None:
        kind = stream.kind
        if kind.plural not in await self._api.resources(f"/apis/{kind.api_version}"):
            message = f"this cluster has no kind {kind.name} of {kind.api_version}"
            return self._gone(stream, interface.Lack("NotInstalled", message))
        try:
            stream.version = str(await self._lists.compare_kind(kind, stream.namespace))
        except errors.NotFound:
            return None  # it went meanwhile; the next look tells
        except errors.Refused as error:
            return self._gone(stream, _not_permitted(kind, error))
        if stream.lack is not None:
            _log.info("following %s of %s", kind.plural, kind.api_version)
        stream.lack = None
        return None

    async def _watch(self, stream: _Stream) -> None:
        """Until the API server ends it."""
        async for change in self._api.watch(stream.kind, stream.namespace, stream.version):
            if change.type == "BOOKMARK":
                stream.version = msgspec.json.decode(change.object, type=_Versioned).metadata.resource_version
                continue
            document: interface.Object = msgspec.json.decode(change.object)
            stream.version = document["metadata"]["resourceVersion"]
            if change.type == interface.Change.DELETED:
                self._cache.remove(interface.key_of(document), cache_.version_of(document))
            else:
                self._cache.put(document)

    def _gone(self, stream: _Stream, lack: interface.Lack) -> None:
        """Nothing of it is known any more."""
        stream.version = ""
        if stream.lack is None:
            _log.info("no longer following %s: %s", stream.kind.plural, lack.message)
        stream.lack = lack
        for key, entry in self._cache.entries(stream.kind.name, stream.namespace):
            self._cache.remove(key, entry.version)


def _not_permitted(kind: kinds.Kind, error: errors.Refused) -> interface.Lack:
    return interface.Lack("NotPermitted", f"{kind.name} of {kind.api_version}: {error}")
