"""Events are counted, not repeated, and forgotten in time."""

from __future__ import annotations

from typing import Any

from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster.local import event_log, store

ABOUT: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"}}


def test_the_same_event_raises_the_count() -> None:
    objects = store.Store()
    log = event_log.EventLog(objects, 10, clock_.SystemClock())
    for _ in range(3):
        log.record(ABOUT, "Warning", "BackOff", "again")
    log.record(ABOUT, "Warning", "BackOff", "another")
    counts = {event["message"]: event["count"] for event in objects.list("Event")}
    assert counts == {"again": 3, "another": 1}
    assert objects.list("Event")[0]["involvedObject"] == {"kind": "Pod", **ABOUT["metadata"]}


def test_only_the_latest_are_kept() -> None:
    objects = store.Store()
    log = event_log.EventLog(objects, 3, clock_.SystemClock())
    for message in ("a", "b", "c", "a", "d"):
        log.record(ABOUT, "Normal", "R", message)
    assert sorted(event["message"] for event in objects.list("Event")) == ["a", "c", "d"]
