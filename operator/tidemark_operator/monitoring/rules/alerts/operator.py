"""The operator itself, and whether Prometheus sees anything at all."""

from __future__ import annotations

from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import About, Alert, Group, RecordingRule, Severity
from tidemark_operator.monitoring.rules.thresholds import MINUTE, Thresholds
from tidemark_runtime.contract import metrics

FAILED = "operator:tidemark_reconciles_failed:ratio_rate10m"
DURATION_P99 = "operator:tidemark_reconcile_duration_seconds:p99_rate10m"
API_FAILED = "operator:tidemark_api_requests_failed:ratio_rate10m"

_WINDOW = 10 * MINUTE
_API_FAILURES = 'code=~"0|429|5.."'
"""No answer, too many requests, or a fault of the server. A 404 or 409 belongs to the work."""


def group(thresholds: Thresholds) -> Group:
    return Group(
        name="tidemark-operator",
        about=About.OPERATOR,
        recording=_ratios(),
        alerts=(
            *([_down(thresholds)] if thresholds.with_operator else []),
            _nothing_scraped(thresholds),
            _leaders(),
            _failing(thresholds),
            _slow(thresholds),
            _watch(thresholds),
            _api(thresholds),
        ),
    )


def _ratios() -> tuple[RecordingRule, ...]:
    def rate(row: metrics.Metric, *matchers: str) -> str:
        return promql.EVERYTHING.total_rate(row.name, _WINDOW, *matchers, labels=promql.OPERATOR)

    return (
        RecordingRule(
            record=FAILED,
            expr=f"{rate(operator_metrics.RECONCILES, _FAILED_RESULT)} / ({rate(operator_metrics.RECONCILES)} > 0)",
            help="Passes over services that failed, of all.",
        ),
        RecordingRule(
            record=DURATION_P99,
            expr=promql.EVERYTHING.quantile(0.99, operator_metrics.RECONCILE_DURATION.name, _WINDOW, promql.OPERATOR),
            help="One pass over one service, of 99 of 100, seconds.",
        ),
        RecordingRule(
            record=API_FAILED,
            expr=f"{rate(operator_metrics.API_REQUESTS, _API_FAILURES)} / ({rate(operator_metrics.API_REQUESTS)} > 0)",
            help="Requests to the API server that got no good answer, of all.",
        ),
    )


_FAILED_RESULT = 'result="failed"'


def _down(thresholds: Thresholds) -> Alert:
    up = promql.EVERYTHING.select("up", promql.matches("job", thresholds.operator_jobs))
    return Alert(
        name="TidemarkOperatorDown",
        expr=f"absent({up} == 1)",
        for_seconds=5 * MINUTE,
        severity=Severity.CRITICAL,
        summary="Prometheus reaches no operator",
        summary_zh="Prometheus 抓取不到任何 operator",
        description="No target with job "
        f"{thresholds.operator_jobs} has answered a scrape for 5 minutes. Services go on, but nothing is repaired, "
        "rolled out or reported.",
    )


def _nothing_scraped(thresholds: Thresholds) -> Alert:
    up = promql.EVERYTHING.select("up", promql.matches("job", f"{thresholds.engine_jobs}|{thresholds.operator_jobs}"))
    return Alert(
        name="TidemarkNothingScraped",
        expr=f"absent({up})",
        for_seconds=10 * MINUTE,
        severity=Severity.CRITICAL,
        summary="Prometheus has these rules, and no target of Tidemark",
        summary_zh="Prometheus 已加载规则，但没有任何 Tidemark 抓取目标",
        description=f"For 10 minutes there has been neither a target with job {thresholds.engine_jobs} nor one with "
        f"job {thresholds.operator_jobs}: every other alert is silent.",
    )


def _leaders() -> Alert:
    return Alert(
        name="TidemarkOperatorLeaders",
        expr=f"sum by {promql.by(promql.OPERATOR)} ({promql.EVERYTHING.select(operator_metrics.LEADER.name)}) != 1",
        for_seconds=5 * MINUTE,
        severity=Severity.CRITICAL,
        summary="There is not exactly one operator that works",
        summary_zh="正在工作的 operator 数量不为 1",
        description="{{ $value | humanize }} processes of the operator hold the lease (1 is right). With 0, nothing "
        "is repaired or rolled out; with more, two work against each other.",
    )


def _failing(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkOperatorReconcileErrors",
        expr=f"{FAILED} > {promql.number(thresholds.reconcile_failed_ratio)}",
        for_seconds=15 * MINUTE,
        severity=Severity.WARNING,
        summary="Passes of the operator fail",
        summary_zh="operator 的调谐失败",
        description="{{ $value | humanizePercentage }} of the operator's passes over services failed over the last 10 "
        f"minutes (limit {promql.percent(thresholds.reconcile_failed_ratio)}).",
    )


def _slow(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkOperatorSlow",
        expr=f"{DURATION_P99} > {promql.number(thresholds.reconcile_seconds)}",
        for_seconds=15 * MINUTE,
        severity=Severity.WARNING,
        summary="Passes of the operator take long",
        summary_zh="operator 的调谐耗时过长",
        description="1 of 100 passes over a service takes longer than {{ $value | humanizeDuration }} (limit "
        f"{promql.number(thresholds.reconcile_seconds)} s).",
    )


def _watch(thresholds: Thresholds) -> Alert:
    labels = promql.by((*promql.OPERATOR, "kind"))
    age, leads = operator_metrics.WATCH_AGE.name, operator_metrics.LEADER.name
    return Alert(
        name="TidemarkOperatorWatchStale",
        expr=f"min by {labels} ({age} and on {promql.by(_PROCESS)} ({leads} == 1))"
        f" > {promql.number(thresholds.watch_seconds)}",
        for_seconds=5 * MINUTE,
        severity=Severity.CRITICAL,
        summary="The operator no longer hears of {{ $labels.kind }}",
        summary_zh="operator 收不到 {{ $labels.kind }} 的变化",
        description="The watch of {{ $labels.kind }} was last known to work {{ $value | humanizeDuration }} ago "
        f"(limit {promql.number(thresholds.watch_seconds)} s): changes are not seen.",
    )


_PROCESS = (*promql.OPERATOR, "instance")


def _api(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkOperatorApiErrors",
        expr=f"{API_FAILED} > {promql.number(thresholds.reconcile_failed_ratio)}",
        for_seconds=15 * MINUTE,
        severity=Severity.WARNING,
        summary="The API server does not answer the operator",
        summary_zh="API server 不能正常响应 operator",
        description="{{ $value | humanizePercentage }} of the operator's requests to the API server over the last 10 "
        f"minutes got no good answer (limit {promql.percent(thresholds.reconcile_failed_ratio)}).",
    )
