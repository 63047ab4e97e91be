from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tidemark_operator import names
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import cache as cache_
from tidemark_operator.cluster.kubernetes import subscription

Made = Callable[..., dict[str, Any]]
KEY = interface.Key("Deployment", "team", "chat")


@pytest.fixture
def cache() -> cache_.Cache:
    return cache_.Cache()


def test_a_copy_is_the_callers_own(cache: cache_.Cache, made: Made) -> None:
    cache.put(made("Deployment", "chat", 5, spec={"replicas": 1}))
    first = cache.get(KEY)
    assert first is not None
    first["spec"]["replicas"] = 9
    assert cache.get(KEY) == made("Deployment", "chat", 5, spec={"replicas": 1})


def test_managed_fields_are_not_kept(cache: cache_.Cache, made: Made) -> None:
    document = made("Deployment", "chat", 5)
    document["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    cache.put(document)
    found = cache.get(KEY)
    assert found is not None
    assert "managedFields" not in found["metadata"]
    assert "managedFields" in document["metadata"]


def test_a_late_event_does_not_undo_the_answer_to_a_newer_write(cache: cache_.Cache, made: Made) -> None:
    cache.put(made("Deployment", "chat", 7, spec={"replicas": 2}))
    cache.put(made("Deployment", "chat", 6, spec={"replicas": 1}))
    assert cache.get(KEY) == made("Deployment", "chat", 7, spec={"replicas": 2})


def test_versions_are_compared_as_numbers(cache: cache_.Cache, made: Made) -> None:
    cache.put(made("Deployment", "chat", 9))
    cache.put(made("Deployment", "chat", 10, spec={"replicas": 3}))
    assert cache.get(KEY) == made("Deployment", "chat", 10, spec={"replicas": 3})


def test_what_was_deleted_does_not_come_back_by_a_slow_list(cache: cache_.Cache, made: Made) -> None:
    cache.put(made("Deployment", "chat", 5))
    cache.remove(KEY, 8)
    cache.put(made("Deployment", "chat", 5))
    assert cache.get(KEY) is None
    cache.put(made("Deployment", "chat", 9, uid="another"))
    assert cache.get(KEY) is not None


def test_a_late_deletion_leaves_the_object_made_after_it(cache: cache_.Cache, made: Made) -> None:
    cache.put(made("Deployment", "chat", 9, uid="another"))
    cache.remove(KEY, 8)
    assert cache.get(KEY) is not None


def test_a_service_finds_its_own_and_no_other(cache: cache_.Cache, made: Made) -> None:
    for number, service in enumerate(("chat", "chat-2", "code")):
        for kind in ("Pod", "Deployment"):
            cache.put(made(kind, f"{service}-x", 10 + number, service=service))
    cache.put(made("Pod", "chat-x", 20, namespace="other"))
    found = cache.list("Pod", "team", names.selector("chat"))
    assert [item["metadata"]["name"] for item in found] == ["chat-x"]
    assert len(cache.list("Pod", "", names.selector("chat"))) == 2
    assert len(cache.list("Pod", "team")) == 3


def test_an_object_that_changes_its_label_changes_its_service(cache: cache_.Cache, made: Made) -> None:
    cache.put(made("Pod", "x", 1, service="chat"))
    cache.put(made("Pod", "x", 2, service="code"))
    assert cache.list("Pod", "team", names.selector("chat")) == []
    assert len(cache.list("Pod", "team", names.selector("code"))) == 1
    cache.remove(interface.Key("Pod", "team", "x"), 3)
    assert cache.list("Pod", "team", names.selector("code")) == []
    assert len(cache) == 0


def test_other_labels_select_too(cache: cache_.Cache, made: Made) -> None:
    document = made("Pod", "x", 1)
    document["metadata"]["labels"]["color"] = "blue"
    cache.put(document)
    assert len(cache.list("Pod", "team", {"color": "blue"})) == 1
    assert cache.list("Pod", "team", {"color": "red"}) == []
    assert cache.list("Pod", "team", {**names.selector("chat"), "color": "red"}) == []


def test_listeners_hear_each_change_once(cache: cache_.Cache, made: Made) -> None:
    heard: list[tuple[str, str]] = []
    end = cache.listen(lambda change, key, _: heard.append((change, key.name)))
    cache.put(made("Pod", "x", 1))
    cache.put(made("Pod", "x", 1))
    cache.put(made("Pod", "x", 2))
    cache.remove(interface.Key("Pod", "team", "x"), 3)
    cache.remove(interface.Key("Pod", "team", "x"), 3)
    end()
    cache.put(made("Pod", "y", 4))
    assert heard == [("ADDED", "x"), ("MODIFIED", "x"), ("DELETED", "x")]


def test_finding_the_children_of_one_service_looks_at_no_other(cache: cache_.Cache, made: Made) -> None:
    """O(children): the same number of objects is decoded however many services there are."""
    for number in range(300):
        cache.put(made("Pod", f"pod-{number}", number + 1, service=f"service-{number}"))
    looked_at = list(cache._candidates("Pod", "team", "service-7"))
    assert [key.name for key in looked_at] == ["pod-7"]


async def test_a_reader_gets_what_is_there_and_then_the_changes(cache: cache_.Cache, made: Made) -> None:
    cache.put(made("Pod", "old", 1))
    cache.put(made("Pod", "elsewhere", 1, namespace="other"))
    events = subscription.Subscription(cache, "Pod", "team").events()
    assert await _next(events) == ("ADDED", "old")
    cache.put(made("Pod", "new", 2))
    cache.put(made("Service", "new", 2))
    assert await _next(events) == ("ADDED", "new")
    cache.remove(interface.Key("Pod", "team", "old"), 3)
    assert await _next(events) == ("DELETED", "old")
    await events.aclose()  # type: ignore[attr-defined]
    assert cache._listeners == []


async def test_a_slow_reader_gets_only_the_latest_state(cache: cache_.Cache, made: Made) -> None:
    events = subscription.Subscription(cache, "Pod", "").events()
    first = asyncio.ensure_future(anext(events))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    for version in range(1, 1000):
        cache.put(made("Pod", "busy", version))
    cache.put(made("Pod", "quiet", 1000))
    assert (await first).object["metadata"]["resourceVersion"] == "999"
    assert await _next(events) == ("ADDED", "quiet")


async def _next(events: Any) -> tuple[str, str]:
    event = await anext(events)
    return event.change, event.object["metadata"]["name"]


def test_a_large_object_takes_little_memory_and_comes_back_whole(made: Made) -> None:
    """Rules and dashboards, of every service."""
    cache = cache_.Cache()
    heard: list[bytes] = []
    cache.listen(lambda *change: heard.append(change[2]))
    document = made("ConfigMap", "large", 7, data={"text": "a line that is like others\n" * 2000})
    key = cache.put(document)
    entry = cache.entry(key)
    assert entry is not None
    assert len(entry.stored) < len(entry.body) / 20
    assert json.loads(entry.body) == json.loads(heard[0]) == cache.get(key) == document
