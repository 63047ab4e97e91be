"""What an inspection makes of a Prometheus' answers, above all while the site is at its worst."""

from __future__ import annotations

import datetime
from typing import Any

import httpx

from tidemark_operator import prometheus
from tidemark_operator.commands import inspect_history
from tidemark_operator.inspection import facts
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules import promql

NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)


def read(vector: list[dict[str, Any]], alerts: list[dict[str, Any]]) -> facts.History:
    def answer(request: httpx.Request) -> httpx.Response:
        data = (
            {"alerts": alerts} if request.url.path.endswith("/alerts") else {"resultType": "vector", "result": vector}
        )
        return httpx.Response(200, json={"status": "success", "data": data})

    with prometheus.Prometheus("http://p:9090", transport=httpx.MockTransport(answer)) as source:
        return inspect_history.read(source, (), promql.EVERYTHING, NOW)


FIRES = {"labels": {"alertname": "TidemarkEngineDown", "severity": "critical"}, "state": "firing"}
RECORDED = {"metric": {}, "value": [0, "1"]}


def test_alerts_are_told_although_nothing_is_recorded_any_more() -> None:
    """When every engine is down there is no series left to record, and that is when the alerts matter."""
    found = read([], [FIRES]).alerts
    assert not isinstance(found, Text)
    assert [alert.name for alert in found] == ["TidemarkEngineDown"]


def test_no_alert_and_no_rule_is_not_fine() -> None:
    assert isinstance(read([], []).alerts, Text)
    assert isinstance(read([], [{"labels": {"alertname": "SomebodyElses"}, "state": "firing"}]).alerts, Text)
    assert read([RECORDED], []).alerts == []
