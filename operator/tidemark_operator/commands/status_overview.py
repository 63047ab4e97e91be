"""From the objects of a cluster to the document that `tidemark status --output json` prints. Pure.

The keys are those of a local `tidemark up`, and more: source, configuration, revisions, notRead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tidemark_operator import api, errors, names, plan, status
from tidemark_operator.commands import status_reader
from tidemark_operator.plan import history
from tidemark_runtime.contract import status as contract

Object = Mapping[str, Any]

_NUM_EVENTS = 20
_OF_NOW = ("replicas", "autoscaling", "suspend", "rollout")
"""Sections of the spec that are no part of a revision."""


def of(service: Object, around: status_reader.Around, kubectl: str) -> dict[str, Any]:
    """One service in full. `kubectl` is how it is called for this cluster."""
    return {
        **brief(service),
        "kubectl": kubectl,
        "pods": [_pod(pod, around, kubectl) for pod in around.pods],
        "configuration": configuration(service, around),
        "revisions": revisions(service, around),
        "events": events(around.events),
        "notRead": list(around.not_read),
    }


def brief(service: Object) -> dict[str, Any]:
    """What the object says by itself."""
    metadata, told = service["metadata"], dict(service.get("status") or {})
    generation = metadata.get("generation")
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "createdAt": metadata.get("creationTimestamp"),
        "ready": is_ready(told, generation),
        "phase": told.get("phase") or "NoStatus",
        "url": told.get("url"),
        "generation": generation,
        "paused": status_reader.annotation(service, names.PAUSED_ANNOTATION) == "true",
        "status": told,
        "spec": service.get("spec") or {},
    }


def is_ready(told: Object, generation: int | None) -> bool:
    """Ready, and for the spec of now: a status of the spec before says nothing about this one (B069)."""
    ready = next((item for item in told.get("conditions") or () if item["type"] == "Ready"), None)
    return ready is not None and ready["status"] == "True" and ready.get("observedGeneration") == generation


def _pod(pod: Object, around: status_reader.Around, kubectl: str) -> dict[str, Any]:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    container, engine = status_reader.container_of(pod), around.engines.get(name)
    finding = status.finding_of(pod, engine)
    state = container.get("state") or {}
    # Until a container that ended serves again, the log of its last run is the one to read.
    previous = " --previous" if not container.get("ready") and _ended(container) else ""
    return {
        "name": name,
        "node": pod["spec"].get("nodeName"),
        "ready": container.get("ready", False),
        "terminating": "deletionTimestamp" in pod["metadata"],
        "restarts": container.get("restartCount", 0),
        "state": state,
        "lastState": container.get("lastState") or {},
        "finding": None
        if finding is None
        else {"reason": finding.reason, "message": finding.message, "problem": finding.problem},
        "pid": None,
        "log": f"{kubectl} logs -n {namespace} {name} -c {names.CONTAINER}{previous}",
        "engine": None if engine is None else msgspec.to_builtins(engine),
        "notAsked": around.not_asked.get(name, ""),
    }


def _ended(container: Object) -> bool:
    return "terminated" in (container.get("lastState") or {})


def configuration(service: Object, around: status_reader.Around) -> dict[str, Any]:
    """The configuration that pods are given, and which of them has it."""
    told: Object = next(
        (item for item in (service.get("status") or {}).get("conditions") or () if item["type"] == "ConfigApplied"), {}
    )
    wanted = status_reader.annotation(around.config_map, names.CONFIG_HASH_ANNOTATION)
    template = around.deployment["spec"]["template"] if around.deployment is not None else None
    restart_hash = status_reader.annotation(template, names.RESTART_HASH_ANNOTATION)
    rejected = str(told.get("message", "")) if told.get("reason") == "Rejected" else ""
    pods = []
    for pod in around.pods:
        name, engine = pod["metadata"]["name"], around.engines.get(pod["metadata"]["name"])
        own = status_reader.annotation(pod, names.RESTART_HASH_ANNOTATION)
        state = _config_state(name, engine, wanted, own == restart_hash, rejected)
        shown = {"hash": engine.config.hash, "generation": engine.config.generation} if engine is not None else {}
        pods.append({"name": name, "state": state, **shown})
    return {
        "hash": wanted or None,
        "configMap": around.config_map["metadata"]["name"] if around.config_map is not None else None,
        "reason": told.get("reason"),
        "pods": pods,
    }


def _config_state(name: str, engine: contract.EngineStatus | None, wanted: str, current: bool, rejected: str) -> str:
    """`rejected` is the operator's sentence about those that refuse, which names them."""
    if engine is None or not wanted:
        return "unknown"
    if engine.config.hash == wanted:
        return "inForce"
    if not current:
        return "olderRevision"
    return "rejected" if f"{name} runs {engine.config.hash} and refuses" in rejected else "hotPending"


def revisions(service: Object, around: status_reader.Around) -> list[dict[str, Any]]:
    """The history, the oldest first: which are good, which failed, and how many pods have each."""
    known = history.read(around.revisions)
    current, acting = _current(service, known)
    pods = _pods_by_revision(service, around.pods, known, acting)
    return [
        {
            "number": revision.number,
            "name": names.revision(service["metadata"]["name"], revision.hash),
            "goodSince": revision.good or None,
            "failed": revision.failed or None,
            "current": revision.hash == current,
            "pods": pods[revision.hash],
        }
        for revision in known
    ]


def _current(service: Object, known: Sequence[history.Revision]) -> tuple[str, str]:
    """Hashes of the spec of now, and of what the operator gives to pods; empty where the spec is not valid."""
    try:
        parsed = api.parse(service)
    except errors.ManifestError:
        return "", ""
    acting = history.choose(parsed, known)
    return (acting.instead_of or acting.revision).hash, acting.revision.hash


def _pods_by_revision(
    service: Object, pods: Iterable[Object], known: Sequence[history.Revision], acting: str
) -> Counter[str]:
    """By the settings a pod was made with. Revisions that differ in nothing else are told apart by what the operator
    gives to pods now, else the latest counts."""
    by_settings: dict[str, str] = {}
    for revision in sorted(known, key=lambda item: (item.hash == acting, item.number)):
        by_settings[_restart_hash(service, revision)] = revision.hash
    found: Counter[str] = Counter()
    for pod in pods:
        settings = status_reader.annotation(pod, names.RESTART_HASH_ANNOTATION)
        if settings and settings in by_settings:
            found[by_settings[settings]] += 1
    return found


def _restart_hash(service: Object, revision: history.Revision) -> str:
    now = service.get("spec") or {}
    spec = {**revision.spec, **{key: now[key] for key in _OF_NOW if key in now}}
    try:
        return plan.restart_hash(api.parse({**service, "spec": spec}))
    except errors.ManifestError:  # of another version
        return ""


def events(found: Iterable[Object]) -> list[dict[str, Any]]:
    """The last ones, the newest last. `found`: of the core group, whoever wrote them."""
    by_uid = {event["metadata"].get("uid", event["metadata"]["name"]): event for event in found}
    shown = sorted((_event(event) for event in by_uid.values()), key=lambda event: str(event["lastTimestamp"]))
    return shown[-_NUM_EVENTS:]


def _event(event: Object) -> dict[str, Any]:
    """Older clients count in `count`, newer ones in `series`; each has its own times."""
    series, created = event.get("series") or {}, event["metadata"].get("creationTimestamp")
    subject, moment = event.get("involvedObject") or {}, event.get("eventTime")
    return {
        "object": subject.get("kind", ""),
        "name": subject.get("name", ""),
        "type": event.get("type", ""),
        "reason": event.get("reason", ""),
        "message": event.get("message") or "",
        "count": int(series.get("count") or event.get("count") or 1),
        "firstTimestamp": event.get("firstTimestamp") or moment or created,
        "lastTimestamp": series.get("lastObservedTime") or event.get("lastTimestamp") or moment or created,
    }
