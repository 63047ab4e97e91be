"""What is known of the objects of watched kinds, as compact JSON. Plain data: no waiting, no I/O.

Three things tell of an object: a watch, a list, and the answer to a write of our own. They may arrive in any order, so
the newest `resourceVersion` wins: a watch event that is older than the answer to our write changes nothing, and what
was deleted does not come back by a list that was slow. (Versions of one kind are numbers that only grow; Kubernetes
promises since 1.35 that clients may compare them.)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tidemark_operator import names
from tidemark_operator.cluster import interface

_MAX_GRAVES = 10_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

Listener = Callable[[interface.Change, interface.Key, bytes], None]
"""Told of every change, with the object as JSON."""


_PACK_BYTES = 4096
_PACKED_FIRST = b"x"
"""What zlib's output begins with; an object's JSON begins with a brace."""


class Entry(NamedTuple):
    """One object."""

    stored: bytes
    """`body`, compressed where it is large: rules and dashboards of a thousand services are 10 MB and not 100."""
    version: int
    uid: str
    service: str | None
    """Value of `names.SERVICE_LABEL`."""

    @property
    def body(self) -> bytes:
        """JSON without managedFields."""
        return zlib.decompress(self.stored) if self.stored.startswith(_PACKED_FIRST) else self.stored


class Cache:
    """Objects by kind, and those of one service found without looking at any other."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[interface.Key, Entry]] = {}
        self._services: dict[tuple[str, str], set[interface.Key]] = {}
        self._graves: dict[interface.Key, int] = {}
        self._listeners: list[Listener] = []

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def counts(self) -> dict[str, int]:
        """Objects by kind."""
        return {kind: len(entries) for kind, entries in self._kinds.items()}

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every change from now on. Returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, key: interface.Key) -> interface.Object | None:
        """A copy of its own for the caller."""
        entry = self._kinds.get(key.kind, {}).get(key)
        return _decode(entry.body) if entry else None

    def entry(self, key: interface.Key) -> Entry | None:
        return self._kinds.get(key.kind, {}).get(key)

    def list(self, kind: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[interface.Object]:
        """Copies, ordered by namespace and name. `namespace` empty: of all."""
        wanted = dict(labels or {})
        found = []
        for key in sorted(self._candidates(kind, namespace, wanted.pop(names.SERVICE_LABEL, None))):
            document = _decode(self._kinds[kind][key].body)
            present = document["metadata"].get("labels") or {}
            if all(present.get(name) == value for name, value in wanted.items()):
                found.append(document)
        return found

    def entries(self, kind: str, namespace: str = "") -> Iterator[tuple[interface.Key, Entry]]:
        """As they are at the moment of the call."""
        for key, entry in list(self._kinds.get(kind, {}).items()):
            if not namespace or key.namespace == namespace:
                yield key, entry

    def put(self, document: interface.Object) -> interface.Key:
        """Take over a state of an object, unless a newer one is known."""
        document = _without_managed_fields(document)
        key = interface.key_of(document)
        metadata = document["metadata"]
        version = _version(metadata)
        before = self.entry(key)
        if version <= max(before.version if before else -1, self._graves.get(key, -1)):
            return key
        service = (metadata.get("labels") or {}).get(names.SERVICE_LABEL)
        entry = Entry(_stored(_encode(document)), version, metadata.get("uid", ""), service)
        self._kinds.setdefault(key.kind, {})[key] = entry
        self._graves.pop(key, None)
        self._index(key, before, entry)
        self._tell(interface.Change.MODIFIED if before else interface.Change.ADDED, key, entry)
        return key

    def remove(self, key: interface.Key, version: int) -> None:
        """The object was deleted at `version`; a newer one of the same name stays."""
        before = self.entry(key)
        if before and before.version > version:
            return
        self._bury(key, version)
        if before:
            del self._kinds[key.kind][key]
            self._index(key, before, None)
            self._tell(interface.Change.DELETED, key, before)

    def _candidates(self, kind: str, namespace: str, service: str | None) -> Iterator[interface.Key]:
        if service is not None and namespace:
            return (key for key in self._services.get((namespace, service), ()) if key.kind == kind)
        return (key for key, entry in self.entries(kind, namespace) if service in (None, entry.service))

    def _index(self, key: interface.Key, before: Entry | None, after: Entry | None) -> None:
        if before and before.service and (after is None or after.service != before.service):
            group = self._services.get((key.namespace, before.service), set())
            group.discard(key)
            if not group:
                self._services.pop((key.namespace, before.service), None)
        if after and after.service:
            self._services.setdefault((key.namespace, after.service), set()).add(key)

    def _bury(self, key: interface.Key, version: int) -> None:
        """Remember a deletion, the latest ones only: a message that is late by ten thousand deletions is not told."""
        self._graves.pop(key, None)
        self._graves[key] = version
        if len(self._graves) > _MAX_GRAVES:
            del self._graves[next(iter(self._graves))]

    def _tell(self, change: interface.Change, key: interface.Key, entry: Entry) -> None:
        for listener in list(self._listeners):
            listener(change, key, entry.body)


def _stored(body: bytes) -> bytes:
    return zlib.compress(body, 1) if len(body) > _PACK_BYTES else body


def version_of(document: Mapping[str, Any]) -> int:
    """Of an object, or of a list."""
    return _version(document["metadata"])


def _version(metadata: Mapping[str, Any]) -> int:
    return int(metadata.get("resourceVersion") or 0)


def _without_managed_fields(document: interface.Object) -> interface.Object:
    """They are half of many objects, and nothing here reads them."""
    metadata = document["metadata"]
    if "managedFields" not in metadata:
        return document
    return {**document, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
