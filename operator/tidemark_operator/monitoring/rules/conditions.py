"""Conditions of services, as the operator exports them: one series for each service, condition and status."""

from __future__ import annotations

from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import About, Group, RecordingRule
from tidemark_operator.monitoring.rules.thresholds import Thresholds

CONDITION = "service:tidemark_condition:max"


def group() -> Group:
    """Of all services at once, so it belongs to the operator."""
    labels = promql.by((*promql.SERVICE, "condition", "status"))
    return Group(
        name="tidemark-conditions",
        about=About.OPERATOR,
        recording=(
            RecordingRule(
                record=CONDITION,
                expr=f"max by {labels} ({promql.own_labels(operator_metrics.SERVICE_CONDITION.name)})",
                help="1 for the status that a condition of a service has, 0 for the others.",
            ),
        ),
    )


def holds(thresholds: Thresholds, condition: str, status: str) -> str:
    """Services of which a condition has this status; labelled with nothing but the service."""
    series = thresholds.scope.select(CONDITION, f'condition="{condition}"', f'status="{status}"')
    return f"(max by {promql.by(promql.SERVICE)} ({series}) == 1)"
