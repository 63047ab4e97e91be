"""The local cluster's objects, in memory, with the rules of an API server that the reconcile loop relies on.

Versions and generations count as in Kubernetes, apply removes what its manager no longer sets, owners take their
dependents with them, and a Pod that is deleted stays, marked, until the kubelet says that its process is gone.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tidemark_operator import errors
from tidemark_operator.cluster import interface

GRACEFUL_KINDS = frozenset({"Pod"})
"""Kinds whose deletion is finished by `remove`."""

_MAPS_OF_METADATA = ("labels", "annotations")


def utc_now() -> datetime.datetime:
    """The wall clock; tests pass their own."""
    return datetime.datetime.now(datetime.UTC)


def timestamp(moment: datetime.datetime) -> str:
    """As Kubernetes writes times: RFC 3339, seconds, UTC."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Single-threaded: used from one event loop, never across an await."""

    def __init__(
        self,
        now: Callable[[], datetime.datetime] = utc_now,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._now = now
        self._new_uid = new_uid
        self._objects: dict[interface.Key, interface.Object] = {}
        self._applied: dict[interface.Key, dict[str, set[tuple[str, str]]]] = {}
        self._version = 0
        self._watchers: list[tuple[str, asyncio.Queue[interface.WatchEvent]]] = []

    @property
    def version(self) -> int:
        """Number of writes so far: an idle cluster does not count on."""
        return self._version

    def get(self, key: interface.Key) -> interface.Object | None:
        return copy.deepcopy(self._objects.get(key))

    def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[interface.Object]:
        """Objects of a kind that carry all `labels`, ordered by namespace and name."""
        found = [
            obj
            for key, obj in sorted(self._objects.items())
            if key.kind == kind and namespace in (None, key.namespace) and _carries(obj, labels or {})
        ]
        return copy.deepcopy(found)

    def apply(self, manifest: Mapping[str, Any], manager: str) -> interface.Object:
        """Create or update. Labels and annotations are kept by manager, everything else is the manifest's.

        Raises `Conflict` when the object is being deleted.
        """
        key = interface.key_of(manifest)
        current = self._objects.get(key)
        if current is not None and "deletionTimestamp" in current["metadata"]:
            raise errors.Conflict(f"{key} is being deleted; it can be applied again once it is gone")
        managed = self._applied.setdefault(key, {})
        dropped = managed.get(manager, set()) - _managed_keys(manifest)
        managed[manager] = _managed_keys(manifest)
        wanted = _merge(current, manifest, dropped)
        if current is None:
            return self._create(key, wanted)
        if wanted == current:
            return copy.deepcopy(current)
        if "generation" in current["metadata"] and wanted.get("spec") != current.get("spec"):
            wanted["metadata"]["generation"] = current["metadata"]["generation"] + 1
        return self._write(key, wanted, interface.Change.MODIFIED)

    def patch_status(self, key: interface.Key, status: Mapping[str, Any]) -> interface.Object | None:
        """Replace the status; nothing is written when it is the same. None: no such object."""
        current = self._objects.get(key)
        if current is None:
            return None
        if current.get("status") == status:
            return copy.deepcopy(current)
        return self._write(key, {**current, "status": copy.deepcopy(dict(status))}, interface.Change.MODIFIED)

    def delete(self, key: interface.Key) -> None:
        """Begin to delete; dependents go along. No such object: nothing happens."""
        current = self._objects.get(key)
        if current is None or "deletionTimestamp" in current["metadata"]:
            return
        if key.kind in GRACEFUL_KINDS:
            marked = copy.deepcopy(current)
            marked["metadata"]["deletionTimestamp"] = timestamp(self._now())
            self._write(key, marked, interface.Change.MODIFIED)
        else:
            self.remove(key)

    def remove(self, key: interface.Key) -> None:
        """Take the object out at once, then delete its dependents."""
        gone = self._objects.pop(key, None)
        self._applied.pop(key, None)
        if gone is None:
            return
        self._version += 1
        self._publish(interface.WatchEvent(interface.Change.DELETED, gone))
        uid = gone["metadata"]["uid"]
        for dependent in [key for key, obj in self._objects.items() if _owned_by(obj, uid)]:
            self.delete(dependent)

    async def watch(self, kind: str) -> AsyncIterator[interface.WatchEvent]:
        """Every object as ADDED, then every change."""
        queue: asyncio.Queue[interface.WatchEvent] = asyncio.Queue()
        for obj in self.list(kind):
            queue.put_nowait(interface.WatchEvent(interface.Change.ADDED, obj))
        entry = (kind, queue)
        self._watchers.append(entry)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(entry)

    def _create(self, key: interface.Key, obj: interface.Object) -> interface.Object:
        if orphaned := [uid for uid in _owner_uids(obj) if not self._exists(uid)]:
            raise errors.Conflict(f"{key} names an owner that is gone (uid {orphaned[0]})")
        metadata = obj["metadata"]
        metadata.update(namespace=key.namespace, uid=self._new_uid(), creationTimestamp=timestamp(self._now()))
        if "spec" in obj:
            metadata["generation"] = 1
        return self._write(key, obj, interface.Change.ADDED)

    def _write(self, key: interface.Key, obj: interface.Object, change: interface.Change) -> interface.Object:
        self._version += 1
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self._version)}
        self._objects[key] = obj
        self._publish(interface.WatchEvent(change, obj))
        return copy.deepcopy(obj)

    def _publish(self, event: interface.WatchEvent) -> None:
        for kind, queue in self._watchers:
            if kind == event.object["kind"]:
                queue.put_nowait(interface.WatchEvent(event.change, copy.deepcopy(event.object)))

    def _exists(self, uid: str) -> bool:
        return any(obj["metadata"]["uid"] == uid for obj in self._objects.values())


def _merge(
    current: Mapping[str, Any] | None, manifest: Mapping[str, Any], dropped: set[tuple[str, str]]
) -> interface.Object:
    """`manifest` over `current`: server-set metadata, status, and other managers' labels and annotations stay."""
    wanted = copy.deepcopy({name: value for name, value in manifest.items() if name != "status"})
    metadata = copy.deepcopy(dict(current["metadata"])) if current else {}
    metadata.pop("ownerReferences", None)
    for name, value in wanted["metadata"].items():
        if name in _MAPS_OF_METADATA:
            metadata[name] = {**metadata.get(name, {}), **(value or {})}
        elif name not in ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"):
            metadata[name] = value
    for name, entry in dropped:
        metadata.get(name, {}).pop(entry, None)
    wanted["metadata"] = metadata
    if current and "status" in current:
        wanted["status"] = current["status"]
    return wanted


def _managed_keys(manifest: Mapping[str, Any]) -> set[tuple[str, str]]:
    metadata = manifest["metadata"]
    return {(name, entry) for name in _MAPS_OF_METADATA for entry in metadata.get(name) or {}}


def _carries(obj: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    own = obj["metadata"].get("labels") or {}
    return all(own.get(name) == value for name, value in labels.items())


def _owner_uids(obj: Mapping[str, Any]) -> list[str]:
    return [reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()]


def _owned_by(obj: Mapping[str, Any], uid: str) -> bool:
    return uid in _owner_uids(obj)
