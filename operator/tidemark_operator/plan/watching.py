"""What Prometheus and Grafana watch one service with, as far as the cluster has the kinds for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tidemark_operator import api
from tidemark_operator.plan import dashboard, engine_config, pod_monitor, prometheus_rule
from tidemark_operator.plan import facts as facts_

SCRAPE_KINDS = ("PodMonitor", "PrometheusRule")
"""Of the Prometheus operator: without them nobody scrapes by himself."""
DASHBOARD_KIND = "GrafanaDashboard"
"""Of Grafana's operator; without it Grafana's sidecar finds the ConfigMap."""
KINDS = (*SCRAPE_KINDS, DASHBOARD_KIND)


def objects(service: api.InferenceService, facts: facts_.Facts, kinds: Collection[str] = KINDS) -> list[dict[str, Any]]:
    """Objects that should exist, in the order in which they are applied: none where monitoring is off. `kinds`: those
    that the cluster has."""
    if not service.spec.monitoring.enabled:
        return []
    made = []
    if "PodMonitor" in kinds:
        made.append(pod_monitor.build(service, engine_config.engine(service), facts))
    if "PrometheusRule" in kinds:
        made.append(prometheus_rule.build(service, facts))
    made.append(dashboard.config_map(service, facts, labelled=DASHBOARD_KIND not in kinds))
    if DASHBOARD_KIND in kinds:
        made.append(dashboard.grafana_dashboard(service, facts))
    return made
