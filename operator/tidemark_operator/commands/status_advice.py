"""What to do about a service that is not as wanted: the conditions' own sentences, and commands that say more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator import names

_NOT_FETCHED = (
    "this version fetches nothing from a hub: download the repository elsewhere, put its folder on {where} and name it "
    "in spec.model.source.{instead}.path instead of huggingFace"
)
_EVENTS_SAY_MORE = frozenset({"ImagePullBackOff", "ProgressDeadlineExceeded", "PodsRefused", "Unschedulable"})
"""Reasons where kubelet, scheduler or controller know more than the status."""
_MAX_PODS = 2


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    text: str
    command: bool = False
    """`text` is a command line, to be pasted as it is."""


def of(overview: Mapping[str, Any]) -> Iterator[Step]:
    """Nothing where nothing is wrong."""
    conditions = {item["type"]: item for item in overview["status"].get("conditions") or ()}
    ready, degraded = conditions.get("Ready"), conditions.get("Degraded")
    if ready is None:
        yield from _no_status(overview)
    elif ready["reason"] == "InvalidSpec":
        then = "`kubectl apply` it" if _on_cluster(overview) else "save the file or `tidemark apply FILE`"
        yield Step(f"correct the values named below, then {then}")
    elif overview["ready"] and (degraded is None or degraded["status"] != "True"):
        yield from _configuration(conditions, overview)
    elif ready["status"] == "True" and not overview["ready"]:
        yield Step(
            f"wait: the operator has not acted on generation {overview['generation']} yet"
            + (". If that stays, see whether it runs:" if _on_cluster(overview) else "")
        )
        if _on_cluster(overview):
            yield _operator(overview)
    else:
        yield from _trouble(overview, degraded if ready["status"] == "True" and degraded else ready, degraded)


def _trouble(
    overview: Mapping[str, Any], cause: Mapping[str, Any], degraded: Mapping[str, Any] | None
) -> Iterator[Step]:
    troubled = [pod for pod in overview["pods"] if _is_troubled(pod)]
    passes = not troubled and (degraded is None or degraded["status"] != "True")
    message, reason = cause["message"] or "it is starting", cause["reason"]
    held = reason in ("Paused", "Suspended", "ScaledToZero")
    yield Step(f"wait: {message}" if passes and not held else message)
    if reason == "Paused" and _on_cluster(overview):
        yield _command(overview, "annotate", names.SHORT_NAMES[0], overview["name"], f"{names.PAUSED_ANNOTATION}-")
    if reason == "ModelNotFound" and "huggingFace" in (overview["spec"].get("model") or {}).get("source", {}):
        where, instead = ("a volume", "pvc") if _on_cluster(overview) else ("this machine", "hostPath")
        yield Step(_NOT_FETCHED.format(where=where, instead=instead))
    if _on_cluster(overview) and reason in _EVENTS_SAY_MORE:
        selector = f"{names.SERVICE_LABEL}={overview['name']}"
        yield _command(overview, "describe", "pods,replicasets" if reason == "PodsRefused" else "pods", "-l", selector)
    for pod in [pod for pod in troubled if has_log(pod)][:_MAX_PODS]:
        if _on_cluster(overview):
            yield Step(pod["log"], command=True)
        else:
            yield Step(f"read its log: {pod['log']}")


def _configuration(conditions: Mapping[str, Mapping[str, Any]], overview: Mapping[str, Any]) -> Iterator[Step]:
    """A service that works, but not with the configuration that is wanted."""
    applied = conditions.get("ConfigApplied")
    if applied is None or applied["status"] != "False":
        return
    if applied["reason"] == "Rejected":
        how = "`kubectl apply` it" if _on_cluster(overview) else "save the file"
        yield Step(applied["message"])
        yield Step(
            f"the configuration before stays in force: correct what the engine refuses in the manifest and {how}"
        )
    else:
        yield Step(f"wait: {applied['message']}")


def _no_status(overview: Mapping[str, Any]) -> Iterator[Step]:
    if not _on_cluster(overview):
        yield Step("wait: it is starting")
        return
    yield Step(
        f"no operator has said anything about it: see whether one runs, and looks after namespace "
        f"{overview['namespace']!r}:"
    )
    yield _operator(overview)


def _operator(overview: Mapping[str, Any]) -> Step:
    selector = "app.kubernetes.io/part-of=tidemark,app.kubernetes.io/component=operator"
    return Step(f"{overview.get('kubectl', 'kubectl')} get deployments,pods -A -l {selector}", command=True)


def _command(overview: Mapping[str, Any], verb: str, *words: str) -> Step:
    kubectl = overview.get("kubectl", "kubectl")
    return Step(f"{kubectl} {verb} -n {overview['namespace']} {' '.join(words)}", command=True)


def _is_troubled(pod: Mapping[str, Any]) -> bool:
    finding = pod.get("finding")
    return bool(finding["problem"]) if finding else bool(pod["lastState"]) or "waiting" in pod["state"]


def has_log(pod: Mapping[str, Any]) -> bool:
    """Whether its container has run at least once."""
    return bool(pod["lastState"] or pod["restarts"]) or "terminated" in pod["state"] or "running" in pod["state"]


def _on_cluster(overview: Mapping[str, Any]) -> bool:
    return bool(overview.get("source", {}).get("kind") == "cluster")
