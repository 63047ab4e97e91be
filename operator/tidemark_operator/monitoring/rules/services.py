"""What the operator exports of services beside their conditions, recorded under the services' own labels."""

from __future__ import annotations

from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import About, Group, RecordingRule
from tidemark_operator.monitoring.rules.thresholds import HOUR, MINUTE, Thresholds
from tidemark_runtime.contract import metrics

REASON = "service:tidemark_reason:max"
REPLICAS = "service:tidemark_replicas:max"
ROLLBACKS = "service:tidemark_rollbacks:increase15m"
ENGINE_RESTARTS = "service:tidemark_engine_restarts:increase1h"
TIGHTENED = "service:tidemark_soft_limit_tightened:max"
EVALUATION_TIME = "service:tidemark_evaluation_timestamp_seconds:max"
EVALUATION_PASSED = "service:tidemark_evaluation_passed:min"
EVALUATION_INTERVAL = "service:tidemark_evaluation_interval_seconds:max"


def group() -> Group:
    """Of all services at once, so it belongs to the operator."""
    return Group(name="tidemark-services", about=About.OPERATOR, recording=(*_levels(), *_rises()))


def replicas(thresholds: Thresholds, state: str) -> str:
    """How many pods each service has in a state; labelled with nothing but the service."""
    series = thresholds.scope.select(REPLICAS, f'state="{state}"')
    return f"max by {promql.by(promql.SERVICE)} ({series})"


def _levels() -> tuple[RecordingRule, ...]:
    rows = (
        (REASON, operator_metrics.SERVICE_REASON, "1 for the reason of each condition that is not as it should be."),
        (REPLICAS, operator_metrics.REPLICAS, "Pods of each service: wanted, ready, updated."),
        (TIGHTENED, operator_metrics.TIGHTENED, "1 while the limit of running requests is held down."),
        (EVALUATION_TIME, operator_metrics.EVALUATION_TIME, "When the last evaluation ended, since 1970."),
        (EVALUATION_PASSED, operator_metrics.EVALUATION_PASSED, "0 where the last evaluation failed."),
        (EVALUATION_INTERVAL, operator_metrics.EVALUATION_INTERVAL, "Longest time between two evaluations."),
    )
    return tuple(
        RecordingRule(record=record, expr=_level(record.rpartition(":")[2], row), help=text)
        for record, row, text in rows
    )


def _level(operation: str, row: metrics.Metric) -> str:
    labels = [label for label in row.labels if label not in promql.SERVICE]
    return f"{operation} by {promql.by((*promql.SERVICE, *labels))} ({promql.own_labels(row.name)})"


def _rises() -> tuple[RecordingRule, ...]:
    """`increase` must see the series as they were scraped; their labels are put right afterwards."""
    rows = (
        (ROLLBACKS, operator_metrics.ROLLBACKS, 15 * MINUTE, "Revisions that were rolled back within 15 minutes."),
        (ENGINE_RESTARTS, operator_metrics.ENGINE_RESTARTS, HOUR, "Engines that were started again within an hour."),
    )
    return tuple(
        RecordingRule(
            record=record,
            expr=f"sum by {promql.by(promql.SERVICE)} ({promql.own_labels(promql.EVERYTHING.rise(row.name, seconds))})",
            help=text,
        )
        for record, row, seconds, text in rows
    )
