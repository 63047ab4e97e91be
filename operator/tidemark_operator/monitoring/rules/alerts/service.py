"""Services and their targets: not there, not ready, not seen."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import conditions, promql, services
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
            _replicas_missing(thresholds),
            _rollout_stuck(thresholds),
            _rolled_back(thresholds),
            _not_monitored(thresholds),
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
    seen = f"count by {promql.by(promql.SERVICE)} ({thresholds.scope.select(metrics.CONFIG_INFO.name)})"
    return Alert(
        name="TidemarkEngineMetricsAbsent",
        expr=f"({conditions.holds(thresholds, 'Available', 'True')} unless {seen})\n"
        f"or ({services.replicas(thresholds, 'ready')} > {seen})",
        for_seconds=10 * MINUTE,
        severity=Severity.CRITICAL,
        summary="{{ $labels.service }} serves, and Prometheus has no metrics of some or all of its engines",
        summary_zh="{{ $labels.service }} 正在服务，但 Prometheus 缺少其部分或全部引擎的指标",
        description="The operator says that {{ $labels.namespace }}/{{ $labels.service }} is Available, but for 10 "
        "minutes there have been no series of its engines, or of fewer than are ready. Every other alert about those "
        "that are not seen is silent meanwhile.",
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


def _replicas_missing(thresholds: Thresholds) -> Alert:
    """When none is ready, `TidemarkServiceUnavailable` says so more urgently and silences this one."""
    wanted, ready = services.replicas(thresholds, "wanted"), services.replicas(thresholds, "ready")
    return Alert(
        name="TidemarkReplicasMissing",
        expr=f"({wanted} - {ready}) > 0",
        for_seconds=15 * MINUTE,
        severity=Severity.WARNING,
        summary="{{ $labels.service }} has fewer engines than it should",
        summary_zh="{{ $labels.service }} 的就绪引擎少于期望数量",
        description="{{ $labels.namespace }}/{{ $labels.service }} has had {{ $value | humanize }} ready pods fewer "
        "than wanted for 15 minutes. The others carry their load.",
    )


def _rollout_stuck(thresholds: Thresholds) -> Alert:
    """One that goes on slowly, pod by pod, is not stuck."""
    wanted, updated = services.replicas(thresholds, "wanted"), services.replicas(thresholds, "updated")
    series = thresholds.scope.select(services.REPLICAS, 'state="updated"')
    still = f"max by {promql.by(promql.SERVICE)} (changes({series}[{promql.duration(15 * MINUTE)}])) == 0"
    return Alert(
        name="TidemarkRolloutStuck",
        expr=f"({wanted} - {updated}) > 0\nand ({still})",
        for_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary="A change of {{ $labels.service }} reaches no further pods",
        summary_zh="{{ $labels.service }} 的发布停滞，没有更多 Pod 得到更新",
        description="{{ $value | humanize }} pods of {{ $labels.namespace }}/{{ $labels.service }} still lack the "
        "current spec, and none got it within the last 15 minutes.",
    )


def _rolled_back(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkRolledBack",
        expr=f"{thresholds.scope.select(services.ROLLBACKS)} > 0",
        for_seconds=0,
        severity=Severity.WARNING,
        summary="A change of {{ $labels.service }} failed and was rolled back",
        summary_zh="{{ $labels.service }} 的一次变更失败，已自动回滚",
        description="{{ $value | humanize }} revisions of {{ $labels.namespace }}/{{ $labels.service }} failed within "
        "15 minutes, and its pods were given the last one that served. What was asked for is not in force; the message "
        "of its condition Ready says why.",
    )


def _not_monitored(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkMonitoringNotReady",
        expr=conditions.holds(thresholds, "MonitoringReady", "False"),
        for_seconds=15 * MINUTE,
        severity=Severity.INFO,
        summary="The monitoring that the manifest of {{ $labels.service }} asks for could not be made",
        summary_zh="{{ $labels.service }} 清单所要求的监控对象无法创建",
        description="The condition MonitoringReady of {{ $labels.namespace }}/{{ $labels.service }} has been False for "
        "15 minutes; its message says which kind is missing in the cluster, or may not be written.",
    )
