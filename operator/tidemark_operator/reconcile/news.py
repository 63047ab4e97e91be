"""Which events a new status is worth: what changed between two statuses, for whoever runs `kubectl describe`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator.status import evaluation, lossy, pressure, tightening


@dataclass(frozen=True, slots=True)
class News:
    """One event."""

    type: str
    """`Normal`, or `Warning` where somebody has to do something."""
    reason: str
    message: str


def of(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[News]:
    """From the last status to this one."""
    yield from _ready(before, after)
    yield from _pressure(before, after)
    yield from _soft_limit(before.get("tightened") or {}, after.get("tightened") or {}, after)
    yield from _lossy(before, after)
    yield from _evaluation(before, after)


def condition(status: Mapping[str, Any], type_: str) -> dict[str, Any]:
    """Empty where there is none of this type."""
    conditions = status.get("conditions") or ()
    return next((item for item in conditions if item["type"] == type_), {})


def _ready(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[News]:
    old, new = condition(before, "Ready"), condition(after, "Ready")
    if (old.get("status"), old.get("reason")) != (new.get("status"), new.get("reason")):
        is_problem = condition(after, "Degraded").get("status") == "True" or new.get("reason") == "InvalidSpec"
        yield News("Warning" if is_problem else "Normal", str(new.get("reason")), str(new.get("message", "")))


def _pressure(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[News]:
    """When it begins, when it becomes worse, and when it is gone."""
    old, new = condition(before, pressure.TYPE), condition(after, pressure.TYPE)
    is_worse = (old.get("reason"), new.get("reason")) == ("AboveQueueLine", "AbovePreemptLine")
    if new.get("status") == "True" and (old.get("status") != "True" or is_worse):
        yield News("Warning", str(new["reason"]), str(new["message"]))
    elif new.get("status") == "False" and old.get("status") == "True":
        yield News("Normal", "MemoryPressureGone", str(new["message"]))


def _soft_limit(before: Mapping[str, Any], after: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[News]:
    """`before` and `after`: `status.tightened`, empty where the spec's limit is in force."""
    limit, limit_before = after.get("maxConcurrencySoft"), before.get("maxConcurrencySoft")
    if limit == limit_before:
        return
    if limit is None:
        yield News("Normal", "SoftLimitRestored", "maxConcurrencySoft is again as the spec says.")
    elif limit < (limit_before or after["instead"]):
        yield News(
            "Normal",
            "SoftLimitLowered",
            f"watermarks.response is tighten: maxConcurrencySoft is {limit} instead of {after['instead']} (never below "
            f"{tightening.least(after['instead'])}). {condition(status, pressure.TYPE).get('message', '')}",
        )
    else:
        text = f"The pressure is gone: maxConcurrencySoft is {limit} of {after['instead']} again."
        yield News("Normal", "SoftLimitRaised", text)


def _lossy(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[News]:
    """Once, when it begins."""
    old, new = condition(before, lossy.TYPE), condition(after, lossy.TYPE)
    if new.get("status") == "True" and old.get("status") != "True":
        yield News("Warning", lossy.TYPE, str(new["message"]))


def _evaluation(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[News]:
    """Each one that failed, and the first that passes after it."""
    old, new = condition(before, evaluation.TYPE), condition(after, evaluation.TYPE)
    job, job_before = ((status.get("evaluation") or {}).get("job") for status in (after, before))
    if new.get("status") == "False" and job != job_before:
        yield News("Warning", f"Evaluation{new['reason']}", str(new["message"]))
    elif new.get("status") == "True" and old.get("status") != "True":
        yield News("Normal", "EvaluationPassed", str(new["message"]))
