"""Events of the operator: the same again raises a count, nobody is flooded, and nothing waits for an event.

`record` never blocks and never raises. What a full queue or a rate does not allow is dropped and counted.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark_operator import errors, names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import kinds

REPORTING_CONTROLLER = f"{names.GROUP}/operator"

_MAX_NOTE_BYTES = 1000
"""The API server takes 1024 at most."""

_IDENTITY = ("name", "namespace", "uid", "resourceVersion")

_log = logging.getLogger(__name__)


class Bucket:
    """Tokens that come back with time."""

    def __init__(self, burst: int, per_second: float, now: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._tokens = float(burst)
        self._at = now

    def take(self, now: float) -> bool:
        """One token, if there is one."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass(slots=True)
class Remembered:
    """One event, and how often it happened."""

    about: Mapping[str, Any]
    type_: str
    reason: str
    note: str
    name: str
    first: datetime.datetime
    last: datetime.datetime
    since: float
    """Monotonic time of the first."""
    count: int = 1
    written: bool = False
    queued: bool = field(default=False)


class Recorder:
    """Remembers what was said; `run` writes it."""

    def __init__(
        self,
        api: api_.Api,
        identity: str,
        *,
        settings: settings_.RecorderSettings,
        clock: clock_.Clock,
        dropped: Callable[[str], None],
    ) -> None:
        self._api = api
        self._identity = identity
        self._settings = settings
        self._clock = clock
        self._dropped = dropped
        self._remembered: OrderedDict[tuple[str, str, str], Remembered] = OrderedDict()
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._bucket = Bucket(settings.burst, settings.per_second, clock.monotonic())
        self._queue: asyncio.Queue[Remembered] = asyncio.Queue(settings.queue)

    def record(self, about: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        """Say something about an object. `type_`: Normal or Warning."""
        uid = about["metadata"].get("uid", "")
        note = _shortened(message)
        event = self._recall(uid, reason, note)
        if event is None:
            event = self._remember(about, type_, reason, note)
        else:
            event.count += 1
            event.last = self._clock.now()
        if not event.queued:
            self._enqueue(uid, event)

    async def run(self) -> None:
        """Write what was recorded, until cancelled. An event that cannot be written is dropped and counted."""
        while True:
            event = await self._queue.get()
            event.queued = False
            try:
                await self._write(event)
            except errors.ClusterError as error:
                self._dropped("refused" if isinstance(error, errors.Refused) else "failed")
                _log.info("event not recorded: reason=%s error=%s", event.reason, error)

    async def _write(self, event: Remembered) -> None:
        kind, namespace = kinds.TABLE["Event"], event.about["metadata"]["namespace"]
        if event.written:
            series = {"count": event.count, "lastObservedTime": _micro(event.last)}
            try:
                await self._api.merge(kind, namespace, event.name, {"series": series})
                return
            except errors.NotFound:
                event.written = False  # the API server has forgotten it already
        await self._api.create(kind, namespace, _manifest(event, namespace, self._identity))
        event.written = True

    def _recall(self, uid: str, reason: str, note: str) -> Remembered | None:
        event = self._remembered.get((uid, reason, note))
        if event is None or self._clock.monotonic() - event.since > self._settings.forget_seconds:
            return None
        self._remembered.move_to_end((uid, reason, note))
        return event

    def _remember(self, about: Mapping[str, Any], type_: str, reason: str, note: str) -> Remembered:
        now, uid = self._clock.now(), about["metadata"].get("uid", "")
        digest = hashlib.sha256(f"{uid} {reason} {note} {now.timestamp()} {self._identity}".encode()).hexdigest()
        event = Remembered(
            about={
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "metadata": {name: about["metadata"].get(name, "") for name in _IDENTITY},
            },
            type_=type_,
            reason=reason,
            note=note,
            name=f"{about['metadata']['name']}.{digest[:16]}",
            first=now,
            last=now,
            since=self._clock.monotonic(),
        )
        self._remembered[(uid, reason, note)] = event
        self._remembered.move_to_end((uid, reason, note))
        while len(self._remembered) > self._settings.remembered:
            self._remembered.popitem(last=False)
        return event

    def _enqueue(self, uid: str, event: Remembered) -> None:
        now = self._clock.monotonic()
        bucket = self._buckets.pop(uid, None) or Bucket(
            self._settings.object_burst, self._settings.object_per_second, now
        )
        self._buckets[uid] = bucket
        while len(self._buckets) > self._settings.remembered:
            self._buckets.popitem(last=False)
        if not (bucket.take(now) and self._bucket.take(now)):
            self._dropped("rate")
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._dropped("queue")
        else:
            event.queued = True


def _manifest(event: Remembered, namespace: str, identity: str) -> dict[str, Any]:
    metadata = event.about["metadata"]
    made: dict[str, Any] = {
        "apiVersion": kinds.TABLE["Event"].api_version,
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": namespace},
        "eventTime": _micro(event.first),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": identity[:128],
        "action": "Reconcile",
        "reason": event.reason,
        "note": event.note,
        "type": event.type_,
        "regarding": {
            "apiVersion": event.about["apiVersion"],
            "kind": event.about["kind"],
            **metadata,
        },
    }
    if event.count > 1:
        made["series"] = {"count": event.count, "lastObservedTime": _micro(event.last)}
    return made


def _shortened(message: str) -> str:
    raw = message.encode()
    return message if len(raw) <= _MAX_NOTE_BYTES else raw[:_MAX_NOTE_BYTES].decode(errors="ignore") + "…"


def _micro(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
