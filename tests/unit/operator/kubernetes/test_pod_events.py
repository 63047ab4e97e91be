"""Warnings about a pod: the latest first, read seldom, and never in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemark_operator import errors, settings
from tidemark_operator.cluster.kubernetes import pod_events

POD = {"metadata": {"name": "p", "namespace": "team", "uid": "u"}}


def put(api: Any, made: Callable[..., dict[str, Any]], name: str, reason: str, **more: Any) -> None:
    api.put(made("Event", name, 1, service=None, reason=reason, note=f"about {name}", **more))


def asked(api: Any, clock: Any) -> pod_events.PodEvents:
    return pod_events.PodEvents(api, settings.KubernetesSettings(pod_events_seconds=10), clock)


async def test_the_latest_comes_first_whichever_way_its_time_is_told(
    api: Any, clock: Any, made: Callable[..., dict[str, Any]]
) -> None:
    put(api, made, "a", "First", eventTime="2026-01-01T00:00:01.000000Z")
    put(api, made, "b", "Third", deprecatedLastTimestamp="2026-01-01T00:00:03Z")
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:04.000000Z"}
    put(api, made, "c", "Fourth", eventTime="2026-01-01T00:00:00.000000Z", series=series)
    put(api, made, "d", "Second", eventTime=None, deprecatedLastTimestamp="2026-01-01T00:00:02Z")
    said = await asked(api, clock).complaints(POD)
    assert [item.reason for item in said] == ["Fourth", "Third", "Second", "First"]
    assert said[0].message == "about c"


async def test_it_is_read_once_in_ten_seconds_for_this_pod_alone(
    api: Any, clock: Any, made: Callable[..., dict[str, Any]]
) -> None:
    events = asked(api, clock)
    put(api, made, "a", "R")
    for _ in range(3):
        assert len(await events.complaints(POD)) == 1
    assert api.calls == [("list", "Event team regarding.uid=u,type=Warning")]
    await clock.advance(11)
    await events.complaints(POD)
    assert len(api.calls) == 2


async def test_where_events_may_not_be_read_there_are_none(api: Any, clock: Any) -> None:
    api.fails = [errors.Refused("not permitted")]
    assert await asked(api, clock).complaints(POD) == []


async def test_an_api_server_that_does_not_answer_is_an_error(api: Any, clock: Any) -> None:
    api.fails = [errors.Unavailable("list: timeout")]
    with pytest.raises(errors.Unavailable):
        await asked(api, clock).complaints(POD)
