"""Warnings about a pod, read from the API server when somebody asks, and at no other time."""

from __future__ import annotations

import msgspec

from tidemark_operator import errors
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import kinds


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: str | None = None


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    """Of events.k8s.io/v1; what a recorder of the older kind wrote comes under `deprecated` names."""

    reason: str = ""
    note: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    series: _Series | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)

    @property
    def last_seen(self) -> str:
        """RFC 3339 in UTC, which sorts as text."""
        observed = self.series.last_observed_time if self.series else None
        times = (observed, self.deprecated_last_timestamp, self.event_time, self.metadata.creation_timestamp)
        return max(time or "" for time in times)


class PodEvents:
    """Asks the API server, and remembers for a while what it said."""

    def __init__(self, api: api_.Api, settings: settings_.KubernetesSettings, clock: clock_.Clock) -> None:
        self._api = api
        self._seconds = settings.pod_events_seconds
        self._clock = clock
        self._known: dict[str, tuple[float, list[interface.Complaint]]] = {}
        """By uid of the pod."""

    async def complaints(self, pod: interface.Object) -> list[interface.Complaint]:
        """The latest first. Empty, too, where events may not be read. Raises other `errors.ClusterError`."""
        metadata, now = pod["metadata"], self._clock.monotonic()
        self._known = {uid: known for uid, known in self._known.items() if now - known[0] < self._seconds}
        uid = str(metadata["uid"])
        if uid not in self._known:
            self._known[uid] = (now, await self._read(str(metadata["namespace"]), uid))
        return self._known[uid][1]

    async def _read(self, namespace: str, uid: str) -> list[interface.Complaint]:
        try:
            page = await self._api.page(kinds.TABLE["Event"], namespace, fields=f"regarding.uid={uid},type=Warning")
        except errors.Refused:
            return []
        found = [msgspec.json.decode(raw, type=_Event) for raw in page.items]
        found.sort(key=lambda event: event.last_seen, reverse=True)
        return [interface.Complaint(event.reason, event.note) for event in found]
