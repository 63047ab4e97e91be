"""What wakes the queue: every change of an InferenceService, and of anything that belongs to one."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Any, Protocol

from tidemark_operator import errors, names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.reconcile import children, evaluations, queue

WATCHED_KINDS = (names.KIND, *children.KINDS, "Pod", evaluations.JOB)

_log = logging.getLogger(__name__)


class Work(Protocol):
    """What a pass is: `reconciler.Reconciler`, or something around it that measures."""

    async def run(self, key: interface.Key) -> float | None: ...


class Loop:
    """Watches and the queue together."""

    def __init__(
        self,
        cluster: interface.Cluster,
        work: Work,
        namespace: str,
        *,
        settings: settings_.QueueSettings,
        clock: clock_.Clock,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.queue: queue.WorkQueue[interface.Key] = queue.WorkQueue(
            work.run, _log_failure, settings=settings, clock=clock, rng=random.Random()
        )

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run())
            for kind in WATCHED_KINDS:
                group.create_task(self._watch(kind))

    async def _watch(self, kind: str) -> None:
        async for event in self._cluster.watch(kind, self._namespace):
            key = woken_by(event.object)
            if key is not None:
                self.queue.add(key)


def woken_by(obj: Mapping[str, Any]) -> interface.Key | None:
    """The InferenceService that a changed object concerns, or None."""
    key = interface.key_of(obj)
    if key.kind == names.KIND:
        return key
    service = (obj["metadata"].get("labels") or {}).get(names.SERVICE_LABEL)
    return interface.Key(names.KIND, key.namespace, service) if service else None


def _log_failure(key: interface.Key, failure: BaseException, retry_seconds: float) -> None:
    """A cluster that did not do what was asked is told in a sentence; other faults with where they came from."""
    if isinstance(failure, errors.ClusterError):
        _log.warning("reconcile failed: key=%s retry_seconds=%.1f error=%s", key, retry_seconds, failure)
    else:
        _log.error("reconcile failed: key=%s retry_seconds=%.1f", key, retry_seconds, exc_info=failure)
