"""The `status` of a Pod in a kubelet's words, from what is known of its one process. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemark_operator.cluster.local import store, translate

LOCAL_PORTS = "localPorts"
"""Our only addition: container port -> port of 127.0.0.1."""

BACK_OFF = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container's last run ended."""

    exit_code: int
    message: str
    """Last lines of its log."""
    started: datetime.datetime
    finished: datetime.datetime


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a pod's container."""

    waiting_reason: str = "ContainerCreating"
    waiting_message: str = ""
    running_since: datetime.datetime | None = None
    started: bool = False
    ready: bool = False
    restarts: int = 0
    last: Ended | None = None
    pid: int | None = None
    ports: tuple[tuple[int, int], ...] = ()

    def waiting(self, reason: str, message: str = "") -> State:
        """No process at the moment."""
        return replace(
            self,
            waiting_reason=reason,
            waiting_message=message,
            running_since=None,
            started=False,
            ready=False,
            pid=None,
            ports=(),
        )

    def running(self, since: datetime.datetime, pid: int | None, ports: Mapping[int, int]) -> State:
        """A process, not yet probed."""
        return replace(
            self, running_since=since, started=False, ready=False, pid=pid, ports=tuple(sorted(ports.items()))
        )


def build(pod: Mapping[str, Any], state: State, now: datetime.datetime) -> dict[str, Any]:
    """The whole status. Transition times of the pod's present status are kept where a condition is unchanged."""
    container = pod["spec"]["containers"][0]
    status: dict[str, Any] = {
        "phase": "Running" if state.running_since is not None or state.last is not None else "Pending",
        "podIP": translate.HOST,
        "hostIP": translate.HOST,
        "startTime": pod["metadata"]["creationTimestamp"],
        "conditions": _conditions(pod, state, now),
        "containerStatuses": [_container(container, state)],
    }
    if state.ports:
        status[LOCAL_PORTS] = {str(inside): here for inside, here in state.ports}
    return status


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the pod takes traffic: Ready and not being deleted."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def address(pod: Mapping[str, Any], port: int) -> tuple[str, int] | None:
    """Where a container port is reachable; None while there is no process."""
    status = pod.get("status") or {}
    here = status.get(LOCAL_PORTS, {}).get(str(port))
    return (status["podIP"], here) if here is not None else None


def _container(container: Mapping[str, Any], state: State) -> dict[str, Any]:
    status: dict[str, Any] = {
        "name": container["name"],
        "image": container.get("image", ""),
        "ready": state.ready,
        "started": state.started,
        "restartCount": state.restarts,
        "state": {},
        "lastState": {},
    }
    if state.running_since is not None:
        status["state"] = {"running": {"startedAt": store.timestamp(state.running_since)}}
        status["containerID"] = f"process://{state.pid}"
    else:
        status["state"] = {"waiting": {"reason": state.waiting_reason, "message": state.waiting_message}}
    if state.last is not None:
        status["lastState"] = {
            "terminated": {
                "exitCode": state.last.exit_code,
                "reason": "Completed" if state.last.exit_code == 0 else "Error",
                "message": state.last.message,
                "startedAt": store.timestamp(state.last.started),
                "finishedAt": store.timestamp(state.last.finished),
            }
        }
    return status


def _conditions(pod: Mapping[str, Any], state: State, now: datetime.datetime) -> list[dict[str, Any]]:
    before = {item["type"]: item for item in (pod.get("status") or {}).get("conditions") or ()}
    wanted = {"PodScheduled": True, "Initialized": True, "ContainersReady": state.ready, "Ready": state.ready}
    conditions = []
    for type_, value in wanted.items():
        word = str(value)
        old = before.get(type_, {})
        since = old["lastTransitionTime"] if old.get("status") == word else store.timestamp(now)
        conditions.append({"type": type_, "status": word, "lastTransitionTime": since})
    return conditions
