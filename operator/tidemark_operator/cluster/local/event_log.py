"""Events of the local cluster: repeated ones are counted, old ones forgotten."""

from __future__ import annotations

import hashlib
from typing import Any

from tidemark_operator import names
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import store


class EventLog:
    """Writes Event objects (core/v1) into the store; at most `max_events`, the latest."""

    def __init__(self, objects: store.Store, max_events: int, clock: clock_.Clock) -> None:
        self._objects = objects
        self._max_events = max_events
        self._clock = clock

    def record(self, about: interface.Object, type_: str, reason: str, message: str) -> None:
        """The same type, reason and message about the same object raise the count of the event that is there."""
        metadata = about["metadata"]
        identity = "\0".join((metadata.get("uid", ""), type_, reason, message))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        key = interface.Key("Event", metadata.get("namespace", "default"), f"{metadata['name']}.{digest}")
        now = store.timestamp(self._clock.now())
        before = self._objects.get(key)
        self._objects.apply(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": key.name, "namespace": key.namespace},
                "involvedObject": _reference(about),
                "type": type_,
                "reason": reason,
                "message": message,
                "count": before["count"] + 1 if before else 1,
                "firstTimestamp": before["firstTimestamp"] if before else now,
                "lastTimestamp": now,
                "reportingComponent": names.FIELD_MANAGER,
            },
            names.FIELD_MANAGER,
        )
        self._forget()

    def complaints(self, uid: str) -> list[interface.Complaint]:
        """Warnings about the object, the latest first."""
        found = [
            event
            for event in self._objects.list("Event")
            if event["involvedObject"]["uid"] == uid and event["type"] == "Warning"
        ]
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]), reverse=True)
        return [interface.Complaint(event["reason"], event["message"]) for event in found]

    def _forget(self) -> None:
        events = self._objects.list("Event")
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        for event in events[: max(0, len(events) - self._max_events)]:
            self._objects.remove(interface.key_of(event))


def _reference(about: interface.Object) -> dict[str, Any]:
    metadata = about["metadata"]
    return {
        "kind": about["kind"],
        "namespace": metadata.get("namespace", "default"),
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
    }
