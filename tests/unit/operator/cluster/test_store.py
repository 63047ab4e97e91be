"""The local object store keeps an API server's rules."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark_operator import errors
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import store


def thing(kind: str = "Deployment", name: str = "a", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", **parts.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **({"spec": {"size": 1}} | parts)}


def owned_by(obj: dict[str, Any]) -> dict[str, Any]:
    return {"ownerReferences": [{"uid": obj["metadata"]["uid"], "controller": True}]}


def key(kind: str = "Deployment", name: str = "a") -> interface.Key:
    return interface.Key(kind, "default", name)


def test_a_new_object_gets_what_a_server_gives() -> None:
    made = store.Store().apply(thing(), "m")
    assert made["metadata"]["generation"] == 1
    assert {"uid", "resourceVersion", "creationTimestamp"} <= made["metadata"].keys()


def test_the_same_manifest_again_writes_nothing() -> None:
    objects = store.Store()
    first = objects.apply(thing(metadata={"labels": {"x": "1"}}), "m")
    version = objects.version
    assert objects.apply(thing(metadata={"labels": {"x": "1"}}), "m") == first
    assert objects.version == version


def test_generation_counts_changes_of_the_spec_only_b069() -> None:
    objects = store.Store()
    objects.apply(thing(), "m")
    relabelled = objects.apply(thing(metadata={"labels": {"x": "1"}}), "m")
    assert relabelled["metadata"]["generation"] == 1
    objects.patch_status(key(), {"replicas": 1})
    changed = objects.apply(thing(spec={"size": 2}), "m")
    assert changed["metadata"]["generation"] == 2
    assert changed["status"] == {"replicas": 1}
    assert changed["metadata"]["uid"] == relabelled["metadata"]["uid"]


def test_what_a_manager_leaves_out_is_removed_and_what_others_set_stays() -> None:
    objects = store.Store()
    objects.apply(thing(metadata={"labels": {"mine": "1", "old": "1"}}), "me")
    objects.apply(thing(metadata={"labels": {"theirs": "1"}}), "them")
    after = objects.apply(thing(metadata={"labels": {"mine": "2"}}), "me")
    assert after["metadata"]["labels"] == {"mine": "2", "theirs": "1"}


def test_the_same_status_again_writes_nothing() -> None:
    objects = store.Store()
    objects.apply(thing(), "m")
    objects.patch_status(key(), {"a": 1})
    version = objects.version
    objects.patch_status(key(), {"a": 1})
    assert objects.version == version


def test_status_of_an_object_that_is_gone_is_no_error_b065() -> None:
    assert store.Store().patch_status(key(), {"a": 1}) is None


def test_dependents_go_with_their_owner() -> None:
    objects = store.Store()
    owner = objects.apply(thing("InferenceService"), "m")
    child = objects.apply(thing("Deployment", metadata=owned_by(owner)), "m")
    objects.apply(thing("Pod", metadata=owned_by(child)), "m")
    objects.apply(thing("Secret", "other"), "m")
    objects.delete(key("InferenceService"))
    assert objects.get(key("Deployment")) is None
    assert "deletionTimestamp" in (objects.get(key("Pod")) or {})["metadata"]
    assert objects.get(key("Secret", "other")) is not None


def test_no_child_is_made_for_an_owner_that_is_gone_b065() -> None:
    objects = store.Store()
    owner = objects.apply(thing("InferenceService"), "m")
    objects.delete(key("InferenceService"))
    with pytest.raises(errors.Conflict, match="owner that is gone"):
        objects.apply(thing("Deployment", metadata=owned_by(owner)), "m")


def test_a_pod_stays_until_its_process_is_gone_and_cannot_be_revived() -> None:
    objects = store.Store()
    objects.apply(thing("Pod"), "m")
    objects.delete(key("Pod"))
    objects.delete(key("Pod"))
    with pytest.raises(errors.Conflict, match="being deleted"):
        objects.apply(thing("Pod"), "m")
    objects.remove(key("Pod"))
    assert objects.get(key("Pod")) is None
    objects.delete(key("Pod"))


def test_list_selects_by_labels_and_is_ordered() -> None:
    objects = store.Store()
    for name, label in (("c", "1"), ("a", "1"), ("b", "2")):
        objects.apply(thing(name=name, metadata={"labels": {"x": label}}), "m")
    assert [obj["metadata"]["name"] for obj in objects.list("Deployment", "default", {"x": "1"})] == ["a", "c"]
    assert objects.list("Deployment", "elsewhere") == []


def test_what_is_handed_out_is_the_callers_own() -> None:
    objects = store.Store()
    manifest = thing()
    objects.apply(manifest, "m")["spec"]["size"] = 9
    manifest["spec"]["size"] = 8
    assert (objects.get(key()) or {})["spec"]["size"] == 1


async def test_a_watch_begins_with_what_is_there() -> None:
    objects = store.Store()
    objects.apply(thing(), "m")
    seen: list[tuple[str, int]] = []

    async def follow() -> None:
        async for event in objects.watch("Deployment"):
            seen.append((event.change, event.object["spec"]["size"]))

    task = asyncio.ensure_future(follow())
    await asyncio.sleep(0)
    objects.apply(thing("Pod"), "m")
    objects.apply(thing(spec={"size": 2}), "m")
    objects.delete(key())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]
