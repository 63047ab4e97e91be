"""One running `tidemark up`, as `tidemark apply`, `tidemark status` and the watched file see it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tidemark_operator import api, effects, errors, names, plan
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import backend, files
from tidemark_operator.commands import changes, model_fetch, up_machine

_MANAGER = "tidemark-apply"
_NUM_EVENTS = 20


class Session:
    """What can be done with the one service of an `up`."""

    def __init__(
        self,
        cluster: backend.LocalCluster,
        key: interface.Key,
        facts: plan.Facts,
        logs: Path,
        fetch: model_fetch.Fetcher,
        num_cores: int,
    ) -> None:
        self._cluster = cluster
        self._key = key
        self._facts = facts
        self._logs = logs
        self._fetch = fetch
        self._num_cores = num_cores

    async def submit(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Take a manifest over. Raises `ManifestError`, `Refused` for another service's, `FetchFailed`.

        Returns result (created, configured or unchanged), changes (path, before, after, effect) and warnings.
        """
        service = api.parse(document)
        if (service.namespace, service.name) != (self._key.namespace, self._key.name):
            raise errors.Refused(
                f"this `tidemark up` runs {self._key.name!r}, the manifest is of {service.name!r} "
                f"(namespace {service.namespace!r}). Start that one with a `tidemark up` of its own"
            )
        before = self._cluster.objects.get(self._key)
        await self._fetch.ensure(service)
        after = self._cluster.objects.apply({**document, "kind": names.KIND}, _MANAGER)
        changed = changes.between(before, after, self._facts) if before is not None else []
        same = before is not None and before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
        return {
            "result": "created" if before is None else "unchanged" if same else "configured",
            "changes": [
                {"path": item.path, "before": item.before, "after": item.after, "effect": item.effect}
                for item in changed
            ],
            "warnings": [*effects.warnings(service, local=True), *self.machine_warnings(after)],
        }

    def machine_warnings(self, document: Mapping[str, Any]) -> list[str]:
        """Of a document that was valid when it was taken over."""
        return up_machine.warnings(document.get("spec", {}), self._num_cores)

    def put_secret(self, name: str, data: Mapping[str, bytes]) -> None:
        """Create or replace a Secret that the manifest refers to."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        metadata = {"name": name, "namespace": self._key.namespace}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
        self._cluster.objects.apply(secret, _MANAGER)

    def put_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Create or replace a ConfigMap that the manifest refers to. Its label makes a change wake the reconcile."""
        labels = names.selector(self._key.name)
        metadata: dict[str, Any] = {"name": name, "namespace": self._key.namespace, "labels": labels}
        self._cluster.objects.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}, _MANAGER
        )

    async def overview(self) -> dict[str, Any]:
        """Everything `tidemark status` shows; what `--output json` prints."""
        service = self._cluster.objects.get(self._key) or {}
        status: dict[str, Any] = dict(service.get("status") or {})
        status["warnings"] = [*status.get("warnings", ()), *self.machine_warnings(service)]
        generation = service.get("metadata", {}).get("generation")
        events = self._cluster.objects.list("Event", self._key.namespace)
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        shown = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp")
        return {
            "name": self._key.name,
            "namespace": self._key.namespace,
            "ready": _is_ready(status, generation),
            "phase": status.get("phase", "Starting"),
            "url": await self._cluster.endpoint(self._key.namespace, names.service(self._key.name)),
            "generation": generation,
            "status": status,
            "spec": service.get("spec", {}),
            "pods": [await self._pod(pod) for pod in await self._own_pods()],
            "events": [
                {"object": event["involvedObject"]["kind"], **{key: event[key] for key in shown}}
                for event in events[-_NUM_EVENTS:]
            ],
        }

    async def _own_pods(self) -> list[interface.Object]:
        return await self._cluster.list("Pod", self._key.namespace, names.selector(self._key.name))

    async def _pod(self, pod: interface.Object) -> dict[str, Any]:
        name = pod["metadata"]["name"]
        container = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0]
        process = str(container.get("containerID", "")).removeprefix("process://")
        engine = await self._cluster.engine_status(pod)
        return {
            "name": name,
            "ready": container.get("ready", False),
            "terminating": "deletionTimestamp" in pod["metadata"],
            "restarts": container.get("restartCount", 0),
            "state": container.get("state", {}),
            "lastState": container.get("lastState", {}),
            "pid": int(process) if process.isdigit() else None,
            "log": str(files.log_of(self._logs, name)),
            "engine": msgspec.to_builtins(engine) if engine is not None else None,
        }


def _is_ready(status: Mapping[str, Any], generation: int | None) -> bool:
    """Ready, and for the spec of now: a status of the spec before says nothing about this one (B069)."""
    ready = next((item for item in status.get("conditions") or () if item["type"] == "Ready"), None)
    return ready is not None and ready["status"] == "True" and ready["observedGeneration"] == generation
