"""What clients notice: waits, refusals, retries, and promises that are not kept."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import promql, recording, slo
from tidemark_operator.monitoring.rules.model import About, Alert, Group, Severity
from tidemark_operator.monitoring.rules.thresholds import HOUR, MINUTE, Thresholds
from tidemark_runtime.contract import metrics


def group(thresholds: Thresholds) -> Group:
    return Group(
        name="tidemark-requests",
        about=About.SERVICE,
        alerts=(
            _queue_wait(thresholds),
            _oldest_wait(thresholds),
            _refused(thresholds),
            _retried(thresholds),
            *(alert for each in slo.slos(thresholds) for alert in _burns(thresholds, each)),
        ),
    )


def _queue_wait(thresholds: Thresholds) -> Alert:
    waits = thresholds.scope.total_rate(f"{metrics.QUEUE_WAIT.name}_count", 5 * MINUTE)
    return Alert(
        name="TidemarkQueueWaitHigh",
        expr=f"{thresholds.scope.select(recording.QUEUE_WAIT_P95)} > {promql.number(thresholds.queue_wait_seconds)}\n"
        f"and {waits} > {promql.number(thresholds.traffic_floor_per_second)}",
        for_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary="Requests to {{ $labels.service }} wait long for their first turn",
        summary_zh="{{ $labels.service }} 的请求排队过久",
        description="5 of 100 requests to {{ $labels.namespace }}/{{ $labels.service }} wait longer than "
        "{{ $value | humanizeDuration }} for their first turn, over the last 5 minutes (limit "
        f"{promql.number(thresholds.queue_wait_seconds)} s).",
    )


def _oldest_wait(thresholds: Thresholds) -> Alert:
    """Who never gets a turn is in no histogram."""
    series = thresholds.scope.select(metrics.OLDEST_WAIT.name)
    return Alert(
        name="TidemarkRequestStarves",
        expr=f"max by {promql.by(promql.SERVICE)} ({series}) > {promql.number(thresholds.oldest_wait_seconds)}",
        for_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary="Somebody waits for {{ $labels.service }} without getting a turn",
        summary_zh="{{ $labels.service }} 有请求长时间得不到执行机会",
        description="The request to {{ $labels.namespace }}/{{ $labels.service }} that waits longest has waited "
        f"{{{{ $value | humanizeDuration }}}} (limit {promql.number(thresholds.oldest_wait_seconds)} s).",
    )


def _refused(thresholds: Thresholds) -> Alert:
    requests = thresholds.scope.total_rate(metrics.REQUESTS.name, 10 * MINUTE)
    return Alert(
        name="TidemarkRequestsRefused",
        expr=f"{thresholds.scope.select(recording.REFUSED)} > {promql.number(thresholds.refused_ratio)}\n"
        f"and {requests} > {promql.number(thresholds.traffic_floor_per_second)}",
        for_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary="{{ $labels.service }} refuses requests because it has too much to do",
        summary_zh="{{ $labels.service }} 因过载拒绝请求",
        description="{{ $value | humanizePercentage }} of the requests to {{ $labels.namespace }}/"
        f"{{{{ $labels.service }}}} were answered 429 over the last 10 minutes (limit "
        f"{promql.percent(thresholds.refused_ratio)}).",
    )


def _retried(thresholds: Thresholds) -> Alert:
    requests = thresholds.scope.total_rate(metrics.REQUESTS.name, 10 * MINUTE)
    return Alert(
        name="TidemarkRetryStorm",
        expr=f"{thresholds.scope.select(recording.RETRIED)} > {promql.number(thresholds.retried_ratio)}\n"
        f"and {requests} > {promql.number(thresholds.traffic_floor_per_second)}",
        for_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary="Clients of {{ $labels.service }} send the same requests again and again",
        summary_zh="{{ $labels.service }} 的客户端在反复重试",
        description="{{ $value | humanizePercentage }} of the requests to {{ $labels.namespace }}/"
        "{{ $labels.service }} over the last 10 minutes were tried before (limit "
        f"{promql.percent(thresholds.retried_ratio)}).",
    )


_PROMISES = {
    slo.AVAILABILITY: ("Availability", "requests fail or time out", "请求失败或排队超时"),
    slo.FIRST_TOKEN: ("FirstToken", "first tokens come late", "首个 token 太慢"),
    slo.INTER_TOKEN: ("InterToken", "tokens come slowly", "token 间隔太长"),
}
"""Name, and what goes wrong in English and Chinese."""


def _burns(thresholds: Thresholds, each: slo.Slo) -> tuple[Alert, Alert]:
    name, wrong, wrong_zh = _PROMISES[each.name]
    limits = {
        slo.AVAILABILITY: "",
        slo.FIRST_TOKEN: f" (later than {promql.number(thresholds.first_token_seconds)} s)",
        slo.INTER_TOKEN: f" (more than {promql.number(thresholds.inter_token_seconds)} s apart)",
    }
    described = (
        f"{{{{ $value | humanizePercentage }}}} are bad{limits[each.name]}; over a month "
        f"{promql.percent(each.budget)} may be. Service: {{{{ $labels.namespace }}}}/{{{{ $labels.service }}}}."
    )
    return (
        Alert(
            name=f"Tidemark{name}BurnsFast",
            expr=slo.burning(thresholds, each, slo.FAST),
            for_seconds=2 * MINUTE,
            severity=Severity.CRITICAL,
            summary=f"{{{{ $labels.service }}}}: {wrong}, and the month's budget for it burns fast",
            summary_zh=f"{{{{ $labels.service }}}}：{wrong_zh}，错误预算快速消耗",
            description=f"{described} At this rate the budget is gone within days.",
        ),
        Alert(
            name=f"Tidemark{name}BurnsSlowly",
            expr=slo.burning(thresholds, each, slo.SLOW),
            for_seconds=HOUR,
            severity=Severity.WARNING,
            summary=f"{{{{ $labels.service }}}}: {wrong}, and the month's budget for it will not last",
            summary_zh=f"{{{{ $labels.service }}}}：{wrong_zh}，错误预算撑不到月底",
            description=f"{described} At this rate the budget is gone before the month is.",
        ),
    )
