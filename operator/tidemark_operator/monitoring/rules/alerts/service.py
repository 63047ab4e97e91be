"""Services and their targets: not there, not ready, not seen."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import conditions, promql
from tidemark_operator.monitoring.rules.model import About, Alert, Group, Severity
from tidemark_operator.monitoring.rules.thresholds import MINUTE, Thresholds
from tidemark_runtime.contract import metrics


def group(thresholds: Thresholds) -> Group:
    return Group(
        name="tidemark-service",
        about=About.SERVICE,
        alerts=(
            _down(thresholds),
            _absent(thresholds),
            _unavailable(thresholds),
            _not_ready(thresholds),
            _does_not_fit(thresholds),
        ),
    )


def _down(thresholds: Thresholds) -> Alert:
    up = thresholds.scope.select("up", promql.matches("job", thresholds.engine_jobs))
    return Alert(
        name="TidemarkEngineDown",
        expr=f"count by {promql.by(promql.SERVICE)} ({up} == 0)",
        for_seconds=5 * MINUTE,
        severity=Severity.CRITICAL,
        summary="Engines of {{ $labels.service }} do not answer Prometheus",
        summary_zh="{{ $labels.service }} 的引擎无法被 Prometheus 抓取",
        description="{{ $value | humanize }} engines of {{ $labels.namespace }}/{{ $labels.service }} have not "
        "answered a scrape for 5 minutes. Every other alert about them is silent meanwhile.",
    )


def _absent(thresholds: Thresholds) -> Alert:
    series = thresholds.scope.select(metrics.CONFIG_INFO.name)
    return Alert(
        name="TidemarkEngineMetricsAbsent",
        expr=f"{conditions.holds(thresholds, 'Available', 'True')}\n"
        f"unless count by {promql.by(promql.SERVICE)} ({series})",
        for_seconds=10 * MINUTE,
        severity=Severity.CRITICAL,
        summary="{{ $labels.service }} serves, and Prometheus has no metrics of it",
        summary_zh="{{ $labels.service }} 正在服务，但 Prometheus 没有它的指标",
        description="The operator says that {{ $labels.namespace }}/{{ $labels.service }} is Available, but there has "
        "been no series of its engines for 10 minutes. Every other alert about it is silent meanwhile.",
    )


def _troubled(thresholds: Thresholds) -> str:
    """Somebody wants it to run: suspended and scaled to zero are neither of these."""
    degraded = conditions.holds(thresholds, "Degraded", "True")
    return f"{degraded} or {conditions.holds(thresholds, 'Progressing', 'True')}"


def _unavailable(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkServiceUnavailable",
        expr=f"{conditions.holds(thresholds, 'Available', 'False')}\nand ({_troubled(thresholds)})",
        for_seconds=10 * MINUTE,
        severity=Severity.CRITICAL,
        summary="No engine of {{ $labels.service }} serves",
        summary_zh="{{ $labels.service }} 没有可用的引擎",
        description="The condition Available of {{ $labels.namespace }}/{{ $labels.service }} has been False for 10 "
        "minutes, although pods are wanted; the message of its condition Ready says why.",
    )


def _not_ready(thresholds: Thresholds) -> Alert:
    """Available and not Ready: a spec that cannot be acted on, or one that was rolled back."""
    available = conditions.holds(thresholds, "Available", "True")
    return Alert(
        name="TidemarkServiceNotReady",
        expr=f"{conditions.holds(thresholds, 'Ready', 'False')}\nand ({_troubled(thresholds)} or {available})",
        for_seconds=15 * MINUTE,
        severity=Severity.WARNING,
        summary="{{ $labels.service }} is not as its manifest asks for",
        summary_zh="{{ $labels.service }} 未达到清单所要求的状态",
        description="The condition Ready of {{ $labels.namespace }}/{{ $labels.service }} has been False for 15 "
        "minutes: a rollout that does not end, was rolled back, or a spec that cannot be acted on. Its message says "
        "which.",
    )


def _does_not_fit(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkCapacityExceeded",
        expr=conditions.holds(thresholds, "CapacityFit", "False"),
        for_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary="{{ $labels.service }} does not fit the memory that it was given",
        summary_zh="{{ $labels.service }} 超出所分配的内存",
        description="The condition CapacityFit of {{ $labels.namespace }}/{{ $labels.service }} is False: weights, KV "
        "pages and workspace need more than the device has. Its message has the sum.",
    )
