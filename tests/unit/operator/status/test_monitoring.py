"""`MonitoringReady`: what it says, and that it says nothing of the service."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api
from tidemark_operator.status import conditions, monitoring


def said(found: monitoring.Found, **spec: Any) -> conditions.Condition:
    condition = monitoring.condition(api.parse(manifests.small(**spec)), found)
    assert condition is not None
    return condition


def lack(kind: str, reason: str = "NotInstalled") -> monitoring.Lack:
    return monitoring.Lack(kind=kind, reason=reason, message=f"this cluster has no kind {kind}")


def test_switched_off_there_is_no_condition() -> None:
    service = api.parse(manifests.small(monitoring={"enabled": False}))
    assert monitoring.condition(service, monitoring.Found(lacks=[lack("PodMonitor")], failures=["x"])) is None


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (monitoring.Found(), "True", "AsWanted"),
        (monitoring.Found(lacks=[lack("PodMonitor"), lack("PrometheusRule")]), "False", "NoPrometheusOperator"),
        (monitoring.Found(lacks=[lack("PrometheusRule")]), "False", "NoPrometheusRule"),
        (monitoring.Found(lacks=[lack("PodMonitor", "NotPermitted")]), "False", "NotPermitted"),
        (monitoring.Found(lacks=[lack("PodMonitor", "NotKnownYet")]), "Unknown", "NotKnownYet"),
        (monitoring.Found(failures=["refused"], lacks=[lack("PodMonitor")]), "False", "ApplyFailed"),
    ],
)
def test_each_finding_has_its_reason(found: monitoring.Found, status: str, reason: str) -> None:
    condition = said(found)
    assert (condition.status, condition.reason) == (status, reason)
    assert condition.message


def test_who_must_be_let_in_is_told_until_somebody_has_said_where_it_is() -> None:
    limited = {"access": {"allowFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}}
    assert "--monitoring-namespace" in said(monitoring.Found(), **limited).message
    assert "--monitoring-namespace" not in said(monitoring.Found(is_let_in=True), **limited).message
    assert "--monitoring-namespace" not in said(monitoring.Found()).message


def test_a_condition_that_nobody_may_look_at_is_kept() -> None:
    kept = monitoring.kept({"type": monitoring.TYPE, "status": "True", "reason": "AsWanted", "message": "m"})
    assert kept == conditions.Condition(monitoring.TYPE, "True", "AsWanted", "m")
    assert monitoring.kept({}) is None
