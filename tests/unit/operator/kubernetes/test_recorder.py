from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tidemark_operator import errors, names, settings
from tidemark_operator.cluster.kubernetes import recorder as recorder_

Made = Callable[..., dict[str, Any]]


class Recording:
    def __init__(self, api: Any, clock: Any, **limits: Any) -> None:
        self.dropped: Counter[str] = Counter()
        self.api, self.clock = api, clock
        self.recorder = recorder_.Recorder(
            api,
            "pod-1_abc",
            settings=settings.RecorderSettings(**limits),
            clock=clock,
            dropped=lambda reason: self.dropped.update([reason]),
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        return [item for key, item in self.api.objects.items() if key.kind == "Event"]

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        task = asyncio.create_task(self.recorder.run())
        yield
        await self.clock.settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def about(made: Made) -> dict[str, Any]:
    return made(names.KIND, "chat", 7)


async def test_an_event_says_who_what_and_about_whom(api: Any, clock: Any, about: dict[str, Any]) -> None:
    recording = Recording(api, clock)
    async with recording.running():
        recording.recorder.record(about, "Warning", "EngineFailed", "the model is missing")
    (event,) = recording.events
    assert event["metadata"]["name"].startswith("chat.")
    assert event["regarding"] == {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "namespace": "team",
        "name": "chat",
        "uid": f"uid-{names.KIND}-chat",
        "resourceVersion": "7",
    }
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "EngineFailed", "the model is missing")
    assert event["reportingController"] == f"{names.GROUP}/operator"
    assert event["reportingInstance"] == "pod-1_abc"
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert "series" not in event


async def test_the_same_again_raises_the_count(api: Any, clock: Any, about: dict[str, Any]) -> None:
    recording = Recording(api, clock)
    async with recording.running():
        for _ in range(3):
            recording.recorder.record(about, "Normal", "Ready", "serving")
            await clock.advance(1)
    (event,) = recording.events
    assert event["series"] == {"count": 3, "lastObservedTime": "2026-01-01T00:00:02.000000Z"}


async def test_other_words_are_another_event(api: Any, clock: Any, about: dict[str, Any]) -> None:
    recording = Recording(api, clock)
    async with recording.running():
        recording.recorder.record(about, "Normal", "Ready", "one")
        recording.recorder.record(about, "Normal", "Ready", "two")
    assert len(recording.events) == 2


async def test_repetitions_before_the_first_is_written_are_written_with_it(
    api: Any, clock: Any, about: dict[str, Any]
) -> None:
    recording = Recording(api, clock)
    for _ in range(5):
        recording.recorder.record(about, "Normal", "Ready", "serving")
    async with recording.running():
        pass
    assert [verb for verb, _ in api.calls] == ["create"]
    assert recording.events[0]["series"]["count"] == 5


async def test_one_object_cannot_flood(api: Any, clock: Any, about: dict[str, Any], made: Made) -> None:
    recording = Recording(api, clock, object_burst=3, object_per_second=0.1)
    async with recording.running():
        for number in range(10):
            recording.recorder.record(about, "Normal", "Ready", f"{number}")
        recording.recorder.record(made(names.KIND, "code", 8), "Normal", "Ready", "of another")
    assert len(recording.events) == 4
    assert recording.dropped == {"rate": 7}
    await clock.advance(10)
    async with recording.running():
        recording.recorder.record(about, "Normal", "Ready", "later")
    assert len(recording.events) == 5


async def test_all_together_cannot_flood(api: Any, clock: Any, made: Made) -> None:
    recording = Recording(api, clock, burst=4, per_second=1)
    async with recording.running():
        for number in range(10):
            recording.recorder.record(made(names.KIND, f"s{number}", 8), "Normal", "Ready", "x")
    assert len(recording.events) == 4
    assert recording.dropped == {"rate": 6}


async def test_a_full_queue_drops_and_never_blocks(api: Any, clock: Any, about: dict[str, Any]) -> None:
    recording = Recording(api, clock, queue=2)
    for number in range(5):
        recording.recorder.record(about, "Normal", "Ready", f"{number}")
    assert recording.dropped == {"queue": 3}


async def test_an_event_that_cannot_be_written_is_counted_and_the_next_one_written(
    api: Any, clock: Any, about: dict[str, Any]
) -> None:
    api.fails = [errors.Refused("forbidden"), errors.Unavailable("away")]
    recording = Recording(api, clock)
    async with recording.running():
        for number in range(3):
            recording.recorder.record(about, "Normal", "Ready", f"{number}")
    assert recording.dropped == {"refused": 1, "failed": 1}
    assert len(recording.events) == 1


async def test_an_event_the_api_server_has_forgotten_is_made_anew(api: Any, clock: Any, about: dict[str, Any]) -> None:
    recording = Recording(api, clock)
    async with recording.running():
        recording.recorder.record(about, "Normal", "Ready", "serving")
        await clock.settle()
        api.objects.clear()
        recording.recorder.record(about, "Normal", "Ready", "serving")
    assert [verb for verb, _ in api.calls] == ["create", "patch", "create"]
    assert recording.events[0]["series"]["count"] == 2


async def test_after_an_hour_the_same_is_a_new_event(api: Any, clock: Any, about: dict[str, Any]) -> None:
    recording = Recording(api, clock, forget_seconds=3000)
    async with recording.running():
        recording.recorder.record(about, "Normal", "Ready", "serving")
        await clock.advance(3001)
        recording.recorder.record(about, "Normal", "Ready", "serving")
    assert len(recording.events) == 2


async def test_memory_is_bounded(api: Any, clock: Any, made: Made) -> None:
    recording = Recording(api, clock, remembered=10)
    for number in range(100):
        recording.recorder.record(made(names.KIND, f"s{number}", 8), "Normal", "Ready", "x")
    assert len(recording.recorder._remembered) == 10
    assert len(recording.recorder._buckets) == 10


async def test_a_long_message_is_cut_to_what_the_api_server_takes(api: Any, clock: Any, about: dict[str, Any]) -> None:
    recording = Recording(api, clock)
    async with recording.running():
        recording.recorder.record(about, "Normal", "Ready", "é" * 2000)
    assert len(recording.events[0]["note"].encode()) <= 1024
