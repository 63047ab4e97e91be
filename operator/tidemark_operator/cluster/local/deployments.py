"""Deployments become Pods: what Kubernetes' deployment and replica-set controllers do, without the ReplicaSet.

`decide` is pure: a Deployment and its Pods give the pods to start and to stop now; asked again after every change.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import pod_status, store

TEMPLATE_HASH_LABEL = "pod-template-hash"
_MANAGER = "deployment-controller"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now."""

    num_to_start: int
    to_stop: tuple[str, ...]
    """Pod names."""


def template_hash(deployment: Mapping[str, Any]) -> str:
    """Ten hex digits that name a pod template; equal templates have equal hashes."""
    canonical = json.dumps(deployment["spec"]["template"], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def decide(deployment: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> Decision:
    """The next moves of a rollout.

    Pods that are ending still hold their memory, so they count as present when no surge is allowed: a machine with room
    for one engine drains the old one before it starts the new one.
    """
    wanted = int(deployment["spec"].get("replicas", 1))
    recreate = deployment["spec"].get("strategy", {}).get("type") == "Recreate"
    surge, unavailable = (0, wanted) if recreate else _margins(deployment, wanted)
    hash_ = template_hash(deployment)
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    new = [pod for pod in staying if _hash_of(pod) == hash_]
    old = [pod for pod in staying if _hash_of(pod) != hash_]
    ending = len(pods) - len(staying)

    present = len(staying) + (ending if surge == 0 else 0)
    room = 0 if recreate and old else wanted + surge - present
    num_to_start = max(0, min(wanted - len(new), room))

    surplus = _worst_first(new)[: max(0, len(new) - wanted)]
    num_ready = sum(pod_status.is_ready(pod) for pod in staying)
    spare = num_ready - (wanted - unavailable)
    to_stop = [name for name, _ in surplus]
    for name, ready in _worst_first(old):
        if not ready or spare > 0:
            to_stop.append(name)
            spare -= ready
    return Decision(num_to_start, tuple(to_stop))


def status(deployment: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], now: datetime.datetime) -> dict[str, Any]:
    """The Deployment's status in Kubernetes' words."""
    wanted = int(deployment["spec"].get("replicas", 1))
    hash_ = template_hash(deployment)
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    num_ready = sum(pod_status.is_ready(pod) for pod in staying)
    num_updated = sum(_hash_of(pod) == hash_ for pod in staying)
    found: dict[str, Any] = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": len(staying),
        "updatedReplicas": num_updated,
        "readyReplicas": num_ready,
        "availableReplicas": num_ready,
        "unavailableReplicas": max(0, wanted - num_ready),
    }
    _, unavailable = _margins(deployment, wanted)
    complete = num_updated == wanted == len(staying) == num_ready
    available = num_ready >= wanted - unavailable
    found["conditions"] = [
        _condition(deployment, "Available", available, "MinimumReplicas", now),
        _condition(deployment, "Progressing", True, "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated", now),
    ]
    return found


class DeploymentController:
    """Carries decisions out, woken by every change of a Deployment or Pod."""

    def __init__(self, objects: store.Store, clock: clock_.Clock, new_suffix: Callable[[], str]) -> None:
        self._objects = objects
        self._clock = clock
        self._new_suffix = new_suffix
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in ("Deployment", "Pod"):
                group.create_task(self._listen(kind))
            while True:
                await self._changed.wait()
                self._changed.clear()
                for deployment in self._objects.list("Deployment"):
                    self.sync(deployment)

    def sync(self, deployment: interface.Object) -> None:
        """One pass over one Deployment. Writes nothing when nothing is to do."""
        key = interface.key_of(deployment)
        decision = decide(deployment, self._pods(deployment))
        for name in decision.to_stop:
            self._objects.delete(interface.Key("Pod", key.namespace, name))
        for _ in range(decision.num_to_start):
            self._objects.apply(self._pod(deployment), _MANAGER)
        self._objects.patch_status(key, status(deployment, self._pods(deployment), self._clock.now()))

    async def _listen(self, kind: str) -> None:
        async for _ in self._objects.watch(kind):
            self._changed.set()

    def _pods(self, deployment: interface.Object) -> list[interface.Object]:
        uid = deployment["metadata"]["uid"]
        pods = self._objects.list("Pod", deployment["metadata"]["namespace"])
        return [pod for pod in pods if (interface.controller_of(pod) or {}).get("uid") == uid]

    def _pod(self, deployment: interface.Object) -> interface.Object:
        metadata, template = deployment["metadata"], copy.deepcopy(deployment["spec"]["template"])
        hash_ = template_hash(deployment)
        labels = {**(template.get("metadata", {}).get("labels") or {}), TEMPLATE_HASH_LABEL: hash_}
        owner = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **template.get("metadata", {}),
                "name": f"{metadata['name']}-{hash_}-{self._new_suffix()}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }


def _margins(deployment: Mapping[str, Any], wanted: int) -> tuple[int, int]:
    """(surge, unavailable) as numbers of pods; both 0 would never move, so Kubernetes refuses that and so do we."""
    rolling = deployment["spec"].get("strategy", {}).get("rollingUpdate") or {}
    surge = _number(rolling.get("maxSurge", "25%"), wanted, math.ceil)
    unavailable = _number(rolling.get("maxUnavailable", "25%"), wanted, math.floor)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _number(value: int | str, wanted: int, rounded: Callable[[float], int]) -> int:
    if isinstance(value, str):
        return rounded(float(value.rstrip("%")) / 100 * wanted)
    return value


def _hash_of(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(TEMPLATE_HASH_LABEL, ""))


def _worst_first(pods: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """(name, ready), those that are not ready first."""
    named = [(pod["metadata"]["name"], pod_status.is_ready(pod)) for pod in pods]
    return sorted(named, key=lambda item: (item[1], item[0]))


def _condition(
    deployment: Mapping[str, Any], type_: str, value: bool, reason: str, now: datetime.datetime
) -> dict[str, Any]:
    word = str(value)
    if type_ == "Available":
        reason = f"{reason}{'Available' if value else 'Unavailable'}"
    before = {item["type"]: item for item in deployment.get("status", {}).get("conditions") or ()}.get(type_, {})
    since = before["lastTransitionTime"] if before.get("status") == word else store.timestamp(now)
    return {"type": type_, "status": word, "reason": reason, "lastTransitionTime": since}
