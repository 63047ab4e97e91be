"""Whether the rollout of a revision has succeeded or failed. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_operator import status
from tidemark_operator.plan import drift, history

RESTARTS_THAT_FAIL = 3
"""A container of the new revision that ended so often before it was ever ready will not become ready by itself."""


def judge(
    revision: history.Revision,
    progress: status.Rollout,
    pods: Sequence[Mapping[str, Any]],
    template: Mapping[str, Any],
    now: str,
) -> history.Revision:
    """The revision with what is known of it now. One that has served once is never called failed later: what breaks
    then is not the rollout. `template` is the pod template that the revision asks for."""
    if progress.done and progress.wanted and progress.ready >= progress.wanted:
        return dataclasses.replace(revision, good=revision.good or now, failed="")
    if revision.good or revision.failed or not progress.wanted:
        return revision
    own = [pod for pod in pods if drift.first(template, pod) is None]
    if progress.stuck:
        return dataclasses.replace(revision, failed=_with_cause(progress.stuck, own))
    looping = [pod for pod in own if _restarts(pod) >= RESTARTS_THAT_FAIL]
    if looping:
        finding = status.finding_of(looping[0])
        words = finding.message if finding else "Its pods end again and again."
        return dataclasses.replace(revision, failed=words)
    return revision


def _with_cause(stuck: str, pods: Sequence[Mapping[str, Any]]) -> str:
    found = [finding for pod in pods if (finding := status.finding_of(pod)) is not None]
    problems = [finding.message for finding in found if finding.problem]
    return f"{problems[0]} ({stuck})" if problems else stuck


def _restarts(pod: Mapping[str, Any]) -> int:
    """Of the pod's containers, the most; 0 while the pod is ready or ending."""
    state = pod.get("status") or {}
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in state.get("conditions") or ())
    if ready or pod["metadata"].get("deletionTimestamp"):
        return 0
    return max((int(item.get("restartCount") or 0) for item in state.get("containerStatuses") or ()), default=0)
