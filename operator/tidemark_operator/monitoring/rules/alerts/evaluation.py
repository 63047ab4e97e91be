"""Accuracy against the model without quantization: not measured in time, or lost."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import promql, services
from tidemark_operator.monitoring.rules.model import About, Alert, Group, Severity
from tidemark_operator.monitoring.rules.thresholds import MINUTE, Thresholds


def group(thresholds: Thresholds) -> Group:
    return Group(name="tidemark-evaluation", about=About.SERVICE, alerts=(_overdue(thresholds), _failed(thresholds)))


def _overdue(thresholds: Thresholds) -> Alert:
    select = thresholds.scope.select
    age = f"time() - {select(services.EVALUATION_TIME)}"
    return Alert(
        name="TidemarkEvaluationOverdue",
        expr=f"({age}) > {promql.number(thresholds.overdue_ratio)} * {select(services.EVALUATION_INTERVAL)}",
        for_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary="The accuracy of {{ $labels.service }} was not measured when it should have been",
        summary_zh="{{ $labels.service }} 的精度评测逾期未执行",
        description="The last evaluation of {{ $labels.namespace }}/{{ $labels.service }} ended "
        "{{ $value | humanizeDuration }} ago: more than "
        f"{promql.number(thresholds.overdue_ratio)} times the longest time between two by its schedule.",
    )


def _failed(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkEvaluationFailed",
        expr=f"{thresholds.scope.select(services.EVALUATION_PASSED)} == 0",
        for_seconds=0,
        severity=Severity.WARNING,
        summary="The last evaluation of the accuracy of {{ $labels.service }} did not pass",
        summary_zh="{{ $labels.service }} 最近一次精度评测未通过",
        description="The last evaluation of {{ $labels.namespace }}/{{ $labels.service }} did not pass (0 is failed, 1 "
        "is passed): quantization costs more accuracy than the limits of its manifest, or the evaluation did not "
        "finish. The condition EvaluationPassed says which.",
    )
