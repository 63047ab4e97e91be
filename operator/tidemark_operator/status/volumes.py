"""A pod that waits for its volumes: which, what it lacks, and which field names it.

The pod itself says only `ContainerCreating`. The kubelet writes the cause into events, and into nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_operator.status.finding import Finding

Complaints = Sequence[tuple[str, str]]
"""Reason and message of the warnings about a pod, the latest first."""

_REASONS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox"})
_FIELDS: Mapping[str, str] = {
    "api-keys": "spec.access.apiKeysSecretRef",
    "tls": "spec.access.tlsSecretRef",
    "precision": "spec.kvCache.precision.mapRef",
    "scales": "spec.kvCache.scalesRef",
    "model": "spec.model.source",
}
"""Volume of `plan.volumes` -> what names it."""
_KINDS = {"configmap": "ConfigMap", "secret": "Secret"}
_NOT_FOUND = re.compile(r"(?P<kind>configmap|secret) \"(?P<name>[^\"]+)\" not found")
_VOLUME = re.compile(r"volume \"(?P<name>[^\"]+)\"")
_SUMMARY = re.compile(r"unmounted volumes=\[(?P<names>[^\]]*)\]")
"""Every two minutes the kubelet says which volumes are not there yet, without a cause: that is in another event."""
_VOLUMES_IN = "PodReadyToStartContainers"
"""Condition of a pod whose volumes are mounted; what it waits for then is its image."""


def is_waiting(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has a node and none of its containers has begun."""
    status = pod.get("status") or {}
    truths = {item.get("type"): item.get("status") for item in status.get("conditions") or ()}
    if status.get("phase") != "Pending" or truths.get("PodScheduled") != "True" or truths.get(_VOLUMES_IN) == "True":
        return False
    containers = status.get("containerStatuses") or ()
    return not any({"running", "terminated"} & set(item.get("state") or {}) for item in containers)


def scheduled_at(pod: Mapping[str, Any]) -> str | None:
    """When the pod got its node, RFC 3339."""
    found = (pod.get("status") or {}).get("conditions") or ()
    return next((item.get("lastTransitionTime") for item in found if item.get("type") == "PodScheduled"), None)


def finding(complaints: Complaints) -> Finding | None:
    """The latest complaint that keeps a pod from starting, with what to do; None: there is none. Where the latest only
    sums up, it is the latest that gives a cause for one of the volumes it names."""
    said = [(reason, message.strip().rstrip(".")) for reason, message in complaints if reason in _REASONS]
    if not said:
        return None
    summary = _SUMMARY.search(said[0][1])
    lacking = re.split(r"[\s,]+", summary["names"]) if summary else []
    causes = (item for item in said if (volume := _VOLUME.search(item[1])) and volume["name"] in lacking)
    return _explained(*next(causes, said[0]))


def _explained(reason: str, message: str) -> Finding:
    missing, volume, summary = (pattern.search(message) for pattern in (_NOT_FOUND, _VOLUME, _SUMMARY))
    lacking = [volume["name"]] if volume else re.split(r"[\s,]+", summary["names"]) if summary else []
    field = " and ".join(_FIELDS[name] for name in lacking if name in _FIELDS)
    if missing is not None:
        kind, name = _KINDS[missing["kind"]], missing["name"]
        change = f", or change {field}" if field else ""
        remedy = f"Create it in the service's namespace{change}; the pod starts by itself then."
        return Finding(f"{kind}NotFound", f"The pod waits for {kind} {name}, which does not exist. {remedy}")
    remedy = f" Check {field}." if field else " Ask whoever runs the nodes."
    return Finding(reason, f"The pod cannot start: {message}.{remedy}")
