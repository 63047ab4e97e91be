"""What is counted of each service and stands on no object: rollbacks, and restarts of engines.

Counted since this process began: what came before is in another process's series. A pod that is first heard of with
restarts behind it adds none of them, and nobody knows whether they were counted already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tidemark_operator import names
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import cache as cache_

Service = tuple[str, str]
"""Namespace and name."""


class Counts(NamedTuple):
    """Of one service."""

    rollbacks: int
    restarts: int


class ServiceCounts:
    """Hears of every change of the cache; a service that is gone is forgotten, and so are its pods (B091)."""

    def __init__(self, cache: cache_.Cache) -> None:
        self._rollbacks: Counter[Service] = Counter()
        self._restarts: Counter[Service] = Counter()
        self._pods: dict[interface.Key, _Seen] = {}
        cache.listen(self._changed)

    def rolled_back(self, key: interface.Key) -> None:
        """A revision of this service failed and was replaced."""
        self._rollbacks[key.namespace, key.name] += 1

    def of(self, namespace: str, name: str) -> Counts:
        """0 for a service of which nothing was counted, so that its first one is a rise (B087)."""
        return Counts(self._rollbacks[namespace, name], self._restarts[namespace, name])

    def _changed(self, change: interface.Change, key: interface.Key, body: bytes) -> None:
        if key.kind == "Pod":
            self._pod_changed(change, key, body)
        elif key.kind == names.KIND and change is interface.Change.DELETED:
            self._rollbacks.pop((key.namespace, key.name), None)
            self._restarts.pop((key.namespace, key.name), None)

    def _pod_changed(self, change: interface.Change, key: interface.Key, body: bytes) -> None:
        before = self._pods.pop(key, None)
        if change is interface.Change.DELETED:
            return
        pod = msgspec.json.decode(body, type=_Pod)
        now = self._pods[key] = _Seen(pod.metadata.uid, _restarts(pod.status.container_statuses))
        service = pod.metadata.labels.get(names.SERVICE_LABEL)
        if service and before is not None and before.uid == now.uid and now.restarts > before.restarts:
            self._restarts[key.namespace, service] += now.restarts - before.restarts


class _Seen(NamedTuple):
    uid: str
    restarts: int


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    restart_count: int = 0


class _PodStatus(msgspec.Struct, rename="camel"):
    container_statuses: list[_Container] = []


class _Metadata(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] = {}


class _Pod(msgspec.Struct):
    metadata: _Metadata
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


def _restarts(containers: Iterable[_Container]) -> int:
    return sum(container.restart_count for container in containers if container.name == names.CONTAINER)
