"""How far the Deployment is, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rollout:
    """Of the Deployment as its controller last reported it."""

    wanted: int
    total: int
    """Pods, those of an old revision included."""
    updated: int
    """Pods of the current revision."""
    ready: int
    done: bool
    """The controller has seen the current revision, and all pods are of it."""
    stuck: str
    """The controller's sentence, when the rollout took longer than its deadline."""
    refused: str
    """The controller's sentence, when pods cannot even be made (quota, Pod Security)."""


def read(deployment: Mapping[str, Any] | None, wanted: int) -> Rollout:
    """`wanted` are the replicas of the spec; without a Deployment nothing is done."""
    if deployment is None:
        return Rollout(wanted, 0, 0, 0, False, "", "")
    status = deployment.get("status") or {}
    total, updated = int(status.get("replicas") or 0), int(status.get("updatedReplicas") or 0)
    seen = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    conditions = {item.get("type"): item for item in status.get("conditions") or ()}
    progressing, failing = conditions.get("Progressing", {}), conditions.get("ReplicaFailure", {})
    return Rollout(
        wanted=wanted,
        total=total,
        updated=updated,
        ready=int(status.get("readyReplicas") or 0),
        done=seen and updated == total == wanted,
        stuck=str(progressing.get("message") or "It took too long.")
        if progressing.get("reason") == "ProgressDeadlineExceeded"
        else "",
        refused=str(failing.get("message") or "Pods cannot be created.") if failing.get("status") == "True" else "",
    )
