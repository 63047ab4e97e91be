from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from tidemark_operator import errors, settings
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import activity as activity_
from tidemark_operator.cluster.kubernetes import cache as cache_
from tidemark_operator.cluster.kubernetes import kinds, resync

Made = Callable[..., dict[str, Any]]
POD = interface.Key("Pod", "team", "x")


class Watched:
    """A resync and what it works on."""

    def __init__(self, api: Any, clock: Any) -> None:
        self.api, self.clock = api, clock
        self.cache = cache_.Cache()
        self.activity = activity_.Activity([kind.name for kind in kinds.WATCHED], ("",), clock)
        self.resync = resync.Resync(
            api,
            self.cache,
            self.activity,
            ("",),
            settings=settings.KubernetesSettings(resync_seconds=100, resync_jitter_ratio=0.2, relist_delay_seconds=2),
            clock=clock,
            rng=random.Random(1),
        )


@pytest.fixture
def watched(api: Any, clock: Any) -> Watched:
    return Watched(api, clock)


@contextlib.asynccontextmanager
async def running(watched: Watched) -> Any:
    task = asyncio.create_task(watched.resync.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_object_that_vanished_unseen_is_dropped_and_told(watched: Watched, made: Made) -> None:
    heard: list[str] = []
    watched.cache.listen(lambda change, key, _: heard.append(f"{change} {key}"))
    watched.cache.put(made("Pod", "x", 7))
    await watched.resync.compare()
    assert watched.cache.get(POD) is None
    assert heard == ["ADDED Pod team/x", "DELETED Pod team/x"]


async def test_an_object_newer_than_the_list_stays(watched: Watched, made: Made) -> None:
    watched.cache.put(made("Pod", "x", 101))  # the list is of version 100
    await watched.resync.compare()
    assert watched.cache.get(POD) is not None


async def test_what_no_watch_told_is_found_with_its_kind(watched: Watched, made: Made) -> None:
    watched.api.put(made("Pod", "x", 0))
    watched.api.put(made("Pod", "foreign", 0, service=None))
    await watched.resync.compare()
    found = watched.cache.get(POD)
    assert found is not None
    assert (found["apiVersion"], found["kind"]) == ("v1", "Pod")
    assert len(watched.cache) == 1


async def test_a_list_in_pages_is_compared_as_a_whole(watched: Watched, made: Made) -> None:
    watched.api.page_size = 2
    for number in range(5):
        watched.cache.put(watched.api.put(made("Pod", f"x{number}", 0)))
    watched.cache.put(made("Pod", "x", 7))
    await watched.resync.compare({"Pod"})
    assert watched.cache.counts() == {"Pod": 5}


async def test_it_only_reads(watched: Watched, made: Made) -> None:
    watched.api.put(made("Pod", "x", 0))
    await watched.resync.compare()
    assert {verb for verb, _ in watched.api.calls} == {"list"}


async def test_it_runs_now_and_then_with_jitter(watched: Watched, clock: Any) -> None:
    async with running(watched):
        await clock.advance(99)
        assert watched.api.calls == []
        await clock.advance(22)
        assert len(watched.api.calls) == len(kinds.WATCHED)
        await clock.advance(70)
        assert len(watched.api.calls) == len(kinds.WATCHED)


async def test_a_watch_that_began_anew_is_compared_soon(watched: Watched, clock: Any) -> None:
    async with running(watched):
        watched.resync.relisted("Pod")
        await clock.advance(1)
        assert watched.api.calls == []
        await clock.advance(2)
        assert watched.api.calls == [("list", "Pod ")]


async def test_a_comparison_that_fails_is_made_again(watched: Watched, clock: Any, made: Made) -> None:
    watched.cache.put(made("Pod", "x", 7))
    watched.api.fails = [errors.Unavailable("away"), errors.Unavailable("away")]
    async with running(watched):
        watched.resync.relisted("Pod")
        await clock.advance(30)
    assert watched.cache.get(POD) is None
    assert len(watched.api.calls) == 3


async def test_a_list_proves_that_the_api_server_can_be_reached(watched: Watched, clock: Any) -> None:
    await clock.advance(50)
    await watched.resync.compare({"Pod"})
    assert watched.activity.ages()["Pod"] == 0
    assert watched.activity.ages()["Service"] == 50
