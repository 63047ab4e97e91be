"""Conditions with transition times that change only when their status does."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Truth = Literal["True", "False", "Unknown"]

TYPES = (
    *("Ready", "Available", "Progressing", "Degraded", "ModelReady", "CapacityFit", "ConfigApplied"),
    "MonitoringReady",
    "MemoryPressure",
    "EvaluationPassed",
    "LossyKV",
)
"""In the order in which they are shown. Of Degraded and MemoryPressure True is bad, of LossyKV a notice."""
BAD_WHEN_TRUE = frozenset({"Degraded", "MemoryPressure"})
NOT_JUDGED = frozenset({"Progressing", "LossyKV"})
"""Neither good nor bad by themselves."""
_MAX_MESSAGE = 4096


@dataclass(frozen=True, slots=True)
class Condition:
    """One answer about a service."""

    type: str
    status: Truth
    reason: str
    message: str


def is_bad(type_: str, status: str) -> bool:
    """Whether somebody should look at it. Unknown is not good."""
    return type_ not in NOT_JUDGED and status != ("False" if type_ in BAD_WHEN_TRUE else "True")


def truth(value: bool) -> Truth:
    return "True" if value else "False"


def dump(
    wanted: Sequence[Condition], previous: Mapping[str, Any], generation: int, now: datetime.datetime
) -> list[dict[str, Any]]:
    """`status.conditions`, one a type. `previous` is the status of the last time."""
    before = {item.get("type"): item for item in previous.get("conditions") or () if isinstance(item, Mapping)}
    dumped = []
    for condition in sorted(wanted, key=lambda item: TYPES.index(item.type)):
        old = before.get(condition.type, {})
        kept = old.get("lastTransitionTime") if old.get("status") == condition.status else None
        dumped.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message[:_MAX_MESSAGE],
                "observedGeneration": generation,
                "lastTransitionTime": kept or timestamp(now),
            }
        )
    return dumped


def before(previous: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """The condition of this type in a status; empty where there is none."""
    found: Mapping[str, Any] = {}
    for item in previous.get("conditions") or ():
        if isinstance(item, Mapping) and item.get("type") == type_:
            found = item
    return found


def timestamp(now: datetime.datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as the API server writes it."""
    return now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
