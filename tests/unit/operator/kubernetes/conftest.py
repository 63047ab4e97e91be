"""An API server's answers without an API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tidemark_operator import errors, names
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import kinds


def made(kind: str, name: str, version: int, *, service: str | None = "chat", **more: Any) -> dict[str, Any]:
    """An object as the API server would give it."""
    metadata = {
        "name": name,
        "namespace": more.pop("namespace", "team"),
        "uid": more.pop("uid", f"uid-{kind}-{name}"),
        "resourceVersion": str(version),
        "labels": {names.SERVICE_LABEL: service} if service else {},
    }
    return {"apiVersion": kinds.TABLE[kind].api_version, "kind": kind, "metadata": metadata, **more}


class FakeApi:
    """The methods of `api.Api` over a dictionary; `fails` is raised instead of the next answers."""

    def __init__(self) -> None:
        self.objects: dict[interface.Key, dict[str, Any]] = {}
        self.version = 100
        self.calls: list[tuple[str, str]] = []
        self.fails: list[errors.ClusterError] = []
        self.page_size = 1000

    def put(self, document: Mapping[str, Any]) -> dict[str, Any]:
        self.version += 1
        stored = json.loads(json.dumps(document))
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.objects[interface.key_of(stored)] = stored
        return dict(stored)

    def _called(self, verb: str, what: str) -> None:
        self.calls.append((verb, what))
        if self.fails:
            raise self.fails.pop(0)

    async def get(self, key: interface.Key) -> bytes | None:
        self._called("get", str(key))
        found = self.objects.get(key)
        return msgspec.json.encode(found) if found else None

    async def create(self, kind: kinds.Kind, namespace: str, body: Mapping[str, Any]) -> bytes:
        self._called("create", f"{kind.name} {body['metadata']['name']}")
        if interface.key_of(body) in self.objects:
            raise errors.Conflict("it exists already")
        return msgspec.json.encode(self.put(body))

    async def replace(self, kind: kinds.Kind, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        self._called("update", f"{kind.name} {name}")
        before = self.objects.get(interface.key_of(body))
        if before is None:
            raise errors.NotFound("gone")
        if before["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise errors.Conflict("it was changed meanwhile")
        return msgspec.json.encode(self.put(body))

    async def merge(self, kind: kinds.Kind, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        self._called("patch", f"{kind.name} {name}")
        before = self.objects.get(interface.Key(kind.name, namespace, name))
        if before is None:
            raise errors.NotFound("gone")
        return msgspec.json.encode(self.put({**before, **body}))

    async def apply(self, manifest: Mapping[str, Any]) -> bytes:
        self._called("apply", str(interface.key_of(manifest)))
        return msgspec.json.encode(self.put({**manifest, "metadata": {**manifest["metadata"], "managedFields": [1]}}))

    async def patch_status(self, key: interface.Key, status: Mapping[str, Any]) -> bytes | None:
        self._called("patch_status", str(key))
        before = self.objects.get(key)
        return msgspec.json.encode(self.put({**before, "status": status})) if before else None

    async def delete(self, key: interface.Key) -> None:
        self._called("delete", str(key))
        self.objects.pop(key, None)

    async def page(
        self,
        kind: kinds.Kind,
        namespace: str,
        *,
        after: str = "",
        selector: str | None = None,
        fields: str | None = None,
        cached: bool = True,
    ) -> api_.Page:
        self._called("list", f"{kind.name} {namespace}" + (f" {fields}" if fields else ""))
        found = [
            item
            for key, item in sorted(self.objects.items())
            if key.kind == kind.name
            and namespace in ("", key.namespace)
            and (selector is None or selector in item["metadata"]["labels"])
        ]
        first = int(after or 0)
        last = first + self.page_size
        bare = [{name: value for name, value in item.items() if name not in ("apiVersion", "kind")} for item in found]
        items = [msgspec.Raw(msgspec.json.encode(item)) for item in bare[first:last]]
        return api_.Page(items, str(self.version), str(last) if last < len(found) else "")


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture(name="made")
def made_fixture() -> Any:
    """`made`, for tests that cannot import this file."""
    return made
