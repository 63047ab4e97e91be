"""Kinds that a cluster may not have: found, followed, lost and found again, without many requests."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from tidemark_operator import errors, settings
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import activity as activity_
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import cache as cache_
from tidemark_operator.cluster.kubernetes import kinds, optional_kinds, resync

Made = Callable[..., dict[str, Any]]
MONITOR = interface.Key("PodMonitor", "team", "chat")
SETTINGS = settings.KubernetesSettings(optional_kinds_seconds=30, relist_delay_seconds=2)


class Watches:
    """Those methods of `api.Api` that the fixture's fake has not."""

    def __init__(self, fake: Any) -> None:
        self.fake = fake
        self.page = fake.page
        self.known: set[str] = set()
        """Plural names."""
        self.opened: list[tuple[str, str, str]] = []
        self.lines: dict[str, asyncio.Queue[api_.WatchedChange | errors.ClusterError | None]] = {}

    async def resources(self, path: str) -> frozenset[str]:
        self.fake._called("resources", path)
        return frozenset(self.known)

    async def watch(self, kind: kinds.Kind, namespace: str, version: str) -> AsyncIterator[api_.WatchedChange]:
        self.opened.append((kind.name, namespace, version))
        if kind.plural not in self.known:
            raise errors.NotFound("the server could not find the requested resource")
        queue = self.lines.setdefault(kind.name, asyncio.Queue())
        while (line := await queue.get()) is not None:
            if isinstance(line, errors.ClusterError):
                raise line
            yield line

    def say(self, kind: str, type_: str, document: Any) -> None:
        line = api_.WatchedChange(type_, msgspec.Raw(msgspec.json.encode(document)))
        self.lines.setdefault(kind, asyncio.Queue()).put_nowait(line)

    def end(self, kind: str, how: errors.ClusterError | None = None) -> None:
        self.lines.setdefault(kind, asyncio.Queue()).put_nowait(how)


class Followed:
    """The part under test and what it works on."""

    def __init__(self, fake: Any, clock: Any, namespaces: tuple[str, ...] = ("",)) -> None:
        self.fake, self.clock, self.cache = fake, clock, cache_.Cache()
        self.api: Any = Watches(fake)
        activity = activity_.Activity([kind.name for kind in kinds.WATCHED], namespaces, clock)
        lists = resync.Resync(
            self.api, self.cache, activity, namespaces, settings=SETTINGS, clock=clock, rng=random.Random(1)
        )
        self.kinds = optional_kinds.OptionalKinds(
            self.api, self.cache, lists, namespaces, settings=SETTINGS, clock=clock
        )

    def reason(self, kind: str = "PodMonitor", namespace: str = "team") -> str:
        lack = self.kinds.lacks(kind, namespace)
        return lack.reason if lack else ""


@pytest.fixture
def followed(api: Any, clock: Any) -> Followed:
    return Followed(api, clock)


@contextlib.asynccontextmanager
async def running(followed: Followed) -> AsyncIterator[None]:
    await followed.kinds.look()
    task = asyncio.create_task(followed.kinds.run())
    await followed.clock.settle()
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_before_anybody_looked_nothing_is_known(followed: Followed) -> None:
    assert followed.reason() == "NotKnownYet"


async def test_what_is_there_is_known_before_the_first_pass(followed: Followed, made: Made) -> None:
    followed.api.known = {"podmonitors"}
    followed.fake.put(made("PodMonitor", "chat", 0))
    await followed.kinds.look()
    assert (followed.reason(), followed.reason("PrometheusRule")) == ("", "NotInstalled")
    assert followed.cache.get(MONITOR)


async def test_a_kind_that_is_absent_costs_one_small_request_now_and_then(followed: Followed) -> None:
    async with running(followed):
        followed.fake.calls.clear()
        await followed.clock.advance(299)
    assert len(followed.fake.calls) <= 10 * len(kinds.OPTIONAL)
    assert {verb for verb, _ in followed.fake.calls} == {"resources"}
    assert followed.api.opened == []


async def test_a_kind_that_appears_is_used_without_a_restart(followed: Followed, made: Made) -> None:
    async with running(followed):
        followed.api.known = {"podmonitors", "prometheusrules"}
        followed.fake.put(made("PodMonitor", "chat", 0))
        await followed.clock.advance(31)
        assert followed.reason() == followed.reason("PrometheusRule") == ""
        assert followed.reason("GrafanaDashboard") == "NotInstalled"
        assert followed.cache.get(MONITOR)


async def test_changes_are_heard_at_once_and_the_next_watch_goes_on_from_there(followed: Followed, made: Made) -> None:
    followed.api.known = {"podmonitors"}
    async with running(followed):
        followed.api.say("PodMonitor", "ADDED", made("PodMonitor", "chat", 120))
        await followed.clock.settle()
        assert followed.cache.get(MONITOR)
        followed.api.say("PodMonitor", "DELETED", made("PodMonitor", "chat", 121))
        followed.api.say("PodMonitor", "BOOKMARK", {"metadata": {"resourceVersion": "150"}})
        followed.api.end("PodMonitor")
        await followed.clock.advance(3)
        assert followed.cache.get(MONITOR) is None
    assert followed.api.opened == [("PodMonitor", "", "100"), ("PodMonitor", "", "150")]
    assert len([call for call in followed.fake.calls if call[0] == "list"]) == 1


async def test_what_is_too_old_to_go_on_from_is_listed_anew(followed: Followed, made: Made) -> None:
    followed.api.known = {"podmonitors"}
    async with running(followed):
        followed.cache.put(made("PodMonitor", "gone", 99))
        followed.api.end("PodMonitor", errors.Conflict("too old resource version"))
        await followed.clock.advance(3)
        assert followed.reason() == ""
        assert followed.cache.counts()["PodMonitor"] == 0
    assert len(followed.api.opened) == 2


async def test_a_kind_that_is_taken_away_is_forgotten_and_found_again(followed: Followed, made: Made) -> None:
    followed.api.known = {"podmonitors"}
    heard: list[str] = []
    async with running(followed):
        followed.api.say("PodMonitor", "ADDED", made("PodMonitor", "chat", 120))
        await followed.clock.settle()
        followed.cache.listen(lambda change, key, _: heard.append(f"{change} {key}"))
        followed.api.known = set()
        followed.api.end("PodMonitor")
        await followed.clock.advance(10)
        assert followed.reason() == "NotInstalled"
        assert heard == ["DELETED PodMonitor team/chat"], "its service is woken"
        followed.api.known = {"podmonitors"}
        await followed.clock.advance(31)
        assert followed.reason() == ""


async def test_what_may_not_be_listed_is_told(followed: Followed) -> None:
    followed.api.known = {"podmonitors"}
    followed.fake.fails = []
    refused = errors.Refused("not permitted: list podmonitors")

    async def page(*_: Any, **__: Any) -> api_.Page:
        raise refused

    followed.api.page = page
    await followed.kinds.look()
    lack = followed.kinds.lacks("PodMonitor", "team")
    assert lack is not None
    assert (lack.reason, str(refused) in lack.message) == ("NotPermitted", True)


async def test_an_api_server_that_is_away_changes_nothing_that_is_known(followed: Followed, made: Made) -> None:
    followed.api.known = {"podmonitors"}
    followed.fake.put(made("PodMonitor", "chat", 0))
    async with running(followed):
        for _ in range(5):
            followed.api.end("PodMonitor", errors.Unavailable("away"))
        await followed.clock.advance(60)
        assert followed.reason() == ""
        assert followed.cache.get(MONITOR)
    assert len(followed.api.opened) == 6


async def test_each_namespace_has_its_own_answer(api: Any, clock: Any) -> None:
    followed = Followed(api, clock, ("a", "b"))
    followed.api.known = {"podmonitors"}

    async def page(kind: kinds.Kind, namespace: str, **_: Any) -> api_.Page:
        if namespace == "b":
            raise errors.Refused("not permitted")
        return api_.Page([], "7", "")

    followed.api.page = page
    await followed.kinds.look()
    assert (followed.reason(namespace="a"), followed.reason(namespace="b")) == ("", "NotPermitted")
