"""Whether Prometheus can find the service by itself: the condition `MonitoringReady`. Pure.

It is about objects and says nothing of the service: without a Prometheus operator a service is as Ready as with one.
Where monitoring is off the condition is not there at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark_operator import api
from tidemark_operator.status import conditions

TYPE = "MonitoringReady"

_WITHOUT = (
    "Nobody scrapes the service by himself then. Install the Prometheus operator, or use the files of `tidemark render "
    "--monitoring`; spec.monitoring.enabled: false says that nothing is wanted. It is looked at again by itself."
)
_NOT_PERMITTED = "Grant it with the chart's roles; it is looked at again by itself."
_LET_IN = (
    "spec.access.allowFrom keeps out whom it does not name: name the namespace of Prometheus there, or tell it to the "
    "operator (monitoring.namespaces of the chart, --monitoring-namespace)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """A kind that there is nothing of, and why."""

    kind: str
    reason: str
    """`NotInstalled`, `NotPermitted`, or `NotKnownYet`."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a pass found of the objects."""

    lacks: Sequence[Lack] = ()
    """Of the kinds that Prometheus needs."""
    failures: Sequence[str] = field(default_factory=tuple)
    """Objects that could not be brought in order, each in a sentence."""
    is_let_in: bool = False
    """The operator was told where Prometheus runs."""


def condition(service: api.InferenceService, found: Found) -> conditions.Condition | None:
    """None where monitoring is off."""
    if not service.spec.monitoring.enabled:
        return None
    if found.failures:
        return conditions.Condition(TYPE, "False", "ApplyFailed", " ".join(found.failures))
    if found.lacks:
        return _without(found.lacks)
    hint = f" {_LET_IN}" if service.spec.access.allow_from and not found.is_let_in else ""
    return conditions.Condition(TYPE, "True", "AsWanted", f"PodMonitor, PrometheusRule and dashboard are there.{hint}")


def kept(previous: Mapping[str, Any]) -> conditions.Condition | None:
    """The condition of the last status, of a service that nobody may look at now."""
    if not previous:
        return None
    return conditions.Condition(TYPE, previous["status"], str(previous["reason"]), str(previous["message"]))


def _without(lacks: Sequence[Lack]) -> conditions.Condition:
    said = "; ".join(lack.message for lack in lacks)
    reasons = {lack.reason for lack in lacks}
    if "NotKnownYet" in reasons:
        return conditions.Condition(TYPE, "Unknown", "NotKnownYet", f"{said}.")
    if "NotPermitted" in reasons:
        return conditions.Condition(TYPE, "False", "NotPermitted", f"{said}. {_NOT_PERMITTED}")
    reason = "NoPrometheusOperator" if len(lacks) > 1 else f"No{lacks[0].kind}"
    return conditions.Condition(TYPE, "False", reason, f"{said[:1].upper()}{said[1:]}. {_WITHOUT}")
