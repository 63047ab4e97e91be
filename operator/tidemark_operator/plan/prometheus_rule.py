"""The PrometheusRule: what is recorded of one service, and the alerts about it."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.monitoring.rules import catalog, promql, render
from tidemark_operator.monitoring.rules.model import About, Language
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_operator.plan import facts as facts_
from tidemark_operator.plan import objects


def build(service: api.InferenceService, facts: facts_.Facts) -> dict[str, Any]:
    """Every selector names the service, so that no alert fires in the object of another service as well. Rules about
    the operator are none of a service: the chart has them."""
    wanted = service.spec.monitoring
    scope = promql.Scope((("namespace", service.namespace), ("service", service.name)))
    thresholds = Thresholds(
        scope=scope,
        runbook_base_url=wanted.runbook_base_url or facts.runbook_base_url,
        runbook_language=Language(wanted.language),
    )
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": objects.monitoring_metadata(service, names.prometheus_rule(service.name), facts),
        "spec": render.body(catalog.groups(thresholds, About.SERVICE), thresholds),
    }
