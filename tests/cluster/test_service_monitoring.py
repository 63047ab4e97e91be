"""What Prometheus and Grafana watch a service with, on a cluster that gets and loses their kinds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import monitoring_kinds
import operator_runner
import pytest

from tidemark_operator import names

NAME = operator_runner.NAME
QUIET_SECONDS = 12.0
OBJECTS = {
    "podmonitors": names.pod_monitor(NAME),
    "prometheusrules": names.prometheus_rule(NAME),
    "grafanadashboards": names.dashboard(NAME),
    "configmaps": names.dashboard(NAME),
}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def bench(bench: operator_runner.Bench) -> Iterator[operator_runner.Bench]:
    with monitoring_kinds.absent(bench.bed):
        yield bench


def labels(bench: operator_runner.Bench) -> dict[str, str]:
    """Value of the site's label, by kind; kinds without an object are left out."""
    found = {kind: bench.get(kind, name) for kind, name in OBJECTS.items()}
    return {kind: item["metadata"]["labels"].get("release", "") for kind, item in found.items() if item}


def monitor(bench: operator_runner.Bench) -> dict[str, Any]:
    return dict(bench.found("podmonitors", NAME)["spec"])


def test_it_follows_the_kinds_and_the_spec_without_a_restart(bench: operator_runner.Bench) -> None:
    operator = bench.start("--monitoring-label", "release=mon")
    pods = bench.ready()
    said = bench.until_condition(NAME, "MonitoringReady", "False", "NoPrometheusOperator")["message"]
    assert "PodMonitor of monitoring.coreos.com/v1" in said
    config_map = bench.found("configmaps", names.dashboard(NAME))
    assert config_map["metadata"]["labels"][names.DASHBOARD_LABEL] == "1"

    monitoring_kinds.install(bench.bed)
    bench.until_condition(NAME, "MonitoringReady", "True")
    bench.until("all of it", lambda: labels(bench) == dict.fromkeys(OBJECTS, "mon"))

    before = monitor(bench)
    bench.patch("podmonitors", NAME, {"spec": {"selector": {"matchLabels": {"app": "somebody-else"}}}})
    bench.until("the selector again", lambda: monitor(bench) == before)
    bench.delete("prometheusrules", NAME)
    bench.until("the rules again", lambda: bench.get("prometheusrules", NAME))

    bench.patch("tide", NAME, {"spec": {"monitoring": {"labels": {"release": "other"}}}})
    bench.until("the other label", lambda: labels(bench) == dict.fromkeys(OBJECTS, "other"))
    bench.until_condition(NAME, "MonitoringReady", "True")
    operator.settle()
    quiet_since = operator.writes
    time.sleep(QUIET_SECONDS)
    assert operator.writes == quiet_since, "what is as it should be is not written again"

    bench.patch("tide", NAME, {"spec": {"monitoring": {"enabled": False}}})
    bench.until("nothing is left of it", lambda: not labels(bench))
    bench.patch("tide", NAME, {"spec": {"monitoring": {"enabled": True}}})
    bench.until("all of it again", lambda: set(labels(bench)) == set(OBJECTS))

    monitoring_kinds.remove(bench.bed)
    bench.until_condition(NAME, "MonitoringReady", "False", "NoPrometheusOperator")
    bench.until_condition(NAME, "Ready", "True")
    assert set(bench.pods(NAME)) == pods, "nothing of this has anything to do with pods"
    monitoring_kinds.install(bench.bed)
    bench.until_condition(NAME, "MonitoringReady", "True")
    bench.delete("tide", NAME)
    bench.until("nothing is left", lambda: not labels(bench))
    bench.end()
    bench.operators.remove(operator)  # while a definition goes, an API server forbids to make objects of it
    assert "Traceback" not in operator.log
    refused = [line for line in operator.log.splitlines() if "orbidden" in line]
    assert [line for line in refused if "definition is terminating" not in line] == []


def test_prometheus_is_let_in_where_connections_are_limited(bench: operator_runner.Bench) -> None:
    bench.start("--monitoring-namespace", "monitoring")
    bench.ready(access={"allowFrom": [{"namespaceSelector": {"matchLabels": {"team": "apps"}}}]})
    (rule,) = bench.found("networkpolicy", NAME)["spec"]["ingress"]
    named = [json.dumps(peer["namespaceSelector"]["matchLabels"]) for peer in rule["from"]]
    assert any("monitoring" in label for label in named)
