"""What pods and engines say of themselves, as one reason in the user's words and one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemark_operator.status import observed as observed_
from tidemark_operator.status import volumes
from tidemark_operator.status.finding import Finding
from tidemark_runtime.contract import reasons
from tidemark_runtime.contract.status import EngineState, EngineStatus

_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
_IMAGE = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_EXITED = "EngineExited"
"""The reason where a process ended and did not say why."""
_SIGKILL_EXIT = 137
_DRAFT_KEY = "speculative.draftModel"
"""How the engine's message begins that is about the draft model, and not about the model."""
_REMEDIES = {
    "OutOfMemory": "Raise spec.hardware.memory, or lower spec.kvCache.memoryUtilization.",
    "ModelNotFound": "Check spec.model.source.",
    _DRAFT_KEY: "Check spec.speculative.draftModel.",
    "KernelPath": "Or use another image, that has what is missing.",
    "KernelSelfTestFailed": "Use another image, or a node with another processor.",
    "ImagePullBackOff": "Check that the registry is reachable and the image exists there.",
}


def of(observed: observed_.Observed) -> list[Finding]:
    """One finding for each pod that does not serve, problems first, then by pod name; ending pods are left out."""
    found = []
    for pod in sorted(observed.pods, key=lambda pod: str(pod["metadata"]["name"])):
        if pod["metadata"].get("deletionTimestamp"):
            continue
        name = pod["metadata"]["name"]
        finding = of_pod(pod, observed.engines.get(name), observed.complaints.get(name, ()))
        if finding is not None:
            found.append(finding)
    return sorted(found, key=lambda finding: not finding.problem)


def of_pod(
    pod: Mapping[str, Any], engine: EngineStatus | None = None, complaints: volumes.Complaints = ()
) -> Finding | None:
    """Why this pod does not serve; None where it does. `complaints`: the cluster's warnings about it."""
    status = pod.get("status") or {}
    unschedulable = _unschedulable(status)
    if unschedulable is not None:
        return unschedulable
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        finding = _of_container(container)
        if finding is not None:
            return finding
    again = _restarted(status)
    if again is not None and (engine is None or (engine.state is EngineState.LOADING and again.reason != _EXITED)):
        return again
    if engine is not None:
        return _of_engine(engine)
    if status.get("phase") == "Failed":
        return Finding(str(status.get("reason") or "PodFailed"), str(status.get("message") or "The pod has failed."))
    if _is_ready(status):
        return None
    stuck = volumes.finding(complaints) if volumes.is_waiting(pod) else None
    return stuck or Finding("Starting", "The pod starts.", problem=False)


def warnings(engines: Mapping[str, EngineStatus | None]) -> list[str]:
    """What engines that serve complain of, such as API keys that cannot be read any more; each sentence once."""
    said = [
        f"{engine.reason}: {engine.message}"
        for _, engine in sorted(engines.items())
        if engine is not None and engine.state is EngineState.READY and engine.reason
    ]
    return list(dict.fromkeys(said))


def _unschedulable(status: Mapping[str, Any]) -> Finding | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            sentence = condition.get("message") or "The scheduler gave no reason."
            return Finding("Unschedulable", f"No node takes the pod: {sentence}")
    return None


def _of_container(container: Mapping[str, Any]) -> Finding | None:
    state = container.get("state") or {}
    waiting, ended = state.get("waiting"), state.get("terminated")
    last = (container.get("lastState") or {}).get("terminated")
    if waiting:
        reason = str(waiting.get("reason") or "Waiting")
        if reason in _IMAGE:
            return _finding(
                "ImagePullBackOff",
                f"The image {container.get('image', '')} cannot be pulled: {waiting.get('message') or reason}.",
            )
        if reason == "CrashLoopBackOff":
            return _exited(last or {}, "CrashLoopBackOff", int(container.get("restartCount") or 0))
        if reason not in _STARTING:
            return _finding(reason, str(waiting.get("message") or reason))
    if ended and ended.get("exitCode", 0) != 0:
        return _exited(ended, _EXITED, int(container.get("restartCount") or 0))
    return None


def _restarted(status: Mapping[str, Any]) -> Finding | None:
    """The last end of a container that runs again, but does not serve yet: else the cause would come and go."""
    if _is_ready(status):
        return None
    for container in status.get("containerStatuses") or ():
        last = (container.get("lastState") or {}).get("terminated") or {}
        if "running" in (container.get("state") or {}) and last.get("exitCode", 0) != 0:
            finding = _exited(last, _EXITED, int(container.get("restartCount") or 0))
            return Finding(finding.reason, f"{finding.message} It was started again.")
    return None


def _exited(ended: Mapping[str, Any], reason: str, restarts: int) -> Finding:
    code, log = ended.get("exitCode"), str(ended.get("message") or "")
    times = f", {restarts} restart{'s' if restarts != 1 else ''}" if restarts else ""
    if ended.get("reason") == "OOMKilled":
        return _finding("OutOfMemory", f"The engine was killed for memory (exit code {code}{times}).")
    killed = " (killed)" if code == _SIGKILL_EXIT else ""
    how = f"The engine ended with exit code {code}{killed}{times}."
    words = reasons.read(log)
    if words is not None:
        return _finding(words.reason, f"{how} It said: {words.message}")
    line = last_line(log)
    said = f"The last line of its log: {line}" if line else "It left no message; see its log."
    return _finding(reason, f"{how} {said}")


def _of_engine(engine: EngineStatus) -> Finding | None:
    match engine.state:
        case EngineState.LOADING:
            part = f" ({engine.load.phase}: {engine.load.fraction:.0%})" if engine.load else ""
            return Finding("Loading", f"The model is loading{part}.", problem=False)
        case EngineState.DRAINING:
            return Finding("Draining", "Running requests are finished; new ones are not taken.", problem=False)
        case EngineState.STALLED:
            return _finding(engine.reason or reasons.Reason.STALLED.value, engine.message)
        case EngineState.FAILED:
            return _finding(engine.reason or reasons.Reason.ENGINE_FAILED.value, engine.message)
        case _:
            return None


def last_line(text: str, limit: int = 300) -> str:
    """The last line that says something, of a log's end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:limit] if lines else ""


def _finding(reason: str, message: str) -> Finding:
    about_draft = reason == "ModelNotFound" and _DRAFT_KEY in message
    remedy = _REMEDIES.get(_DRAFT_KEY if about_draft else reason, "")
    return Finding(reason, f"{message} {remedy}" if remedy else message)


def _is_ready(status: Mapping[str, Any]) -> bool:
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
