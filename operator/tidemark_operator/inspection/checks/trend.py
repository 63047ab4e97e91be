"""The last week against the four weeks before it: is the batch emptier, do requests wait longer?"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, queries, text
from tidemark_operator.inspection.check import MONTH, WEEK, Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules import promql, recording
from tidemark_runtime.contract import metrics

FALL_RATIO = 0.8
"""A fill ratio below this share of what it was has fallen."""
RISE_RATIO = 1.5
"""A wait above this many times what it was has risen,"""
RISE_SECONDS = 0.25
"""... where it rose by so much: nobody feels less."""
TRAFFIC_FALL_RATIO = 0.9
"""Traffic below this share of what it was explains an emptier batch."""
_LEAST_REQUESTS = 100.0
"""In a week; of fewer nothing can be said."""


def _raw_fill(scope: promql.Scope, window: str, offset: str) -> str:
    now = f"avg by {queries.BY} ({scope.select(metrics.BATCH_FILL.name)}) > 0"
    return f"avg_over_time(({now})[{window}:{queries.STEP}]{offset})"


def _raw_wait(scope: promql.Scope, window: str, offset: str) -> str:
    by = promql.by((*promql.SERVICE, "le"))
    buckets = scope.select(f"{metrics.QUEUE_WAIT.name}_bucket")
    return f"histogram_quantile(0.95, sum by {by} (increase({buckets}[{window}]{offset})))"


FILL = queries.last_week_and_month_before("batch_fill", recording.BATCH_FILL, "> 0", _raw_fill)
WAIT = queries.last_week_and_month_before("queue_wait_p95", recording.QUEUE_WAIT_P95, ">= 0", _raw_wait)
REQUESTS = (
    Query("requests_last_week", lambda scope: queries.total(scope, metrics.REQUESTS.name, WEEK)),
    Query(
        "requests_month_before",
        lambda scope: f"{queries.total(scope, metrics.REQUESTS.name, MONTH, WEEK)} / {MONTH // WEEK}",
    ),
)


def fill(service: Service, facts: Facts) -> Iterator[Finding]:
    now, before, traffic_now, traffic_before = _figures(service, facts, FILL)
    if now >= FALL_RATIO * before:
        return
    less_traffic = traffic_now < TRAFFIC_FALL_RATIO * traffic_before
    because = (
        Text("as many requests came", "请求量没有减少")
        if not less_traffic
        else Text("fewer requests came", "请求量也减少了")
    )
    yield Finding(
        severity=Severity.INFO if less_traffic else Severity.WARNING,
        service=service.title,
        what=Text(
            f"While it worked, the batch was {text.percent(now)} full in the last week and "
            f"{text.percent(before)} in the four weeks before; {because.en} "
            f"({traffic_now:,.0f} in the week, {traffic_before:,.0f} a week before).",
            f"工作期间，最近一周批次填充率为 {text.percent(now)}，此前四周为 {text.percent(before)}；{because.zh}"
            f"（本周 {traffic_now:,.0f}，此前每周 {traffic_before:,.0f}）。",
        ),
        evidence=(*_evidence(facts, service), f"{FILL[0].name} = {now:.4f}", f"{FILL[1].name} = {before:.4f}"),
        advice=Text(
            "Fewer devices would do: one less in spec.replicas."
            if less_traffic
            else "Something holds the batch back: look for a lower spec.scheduler.maxConcurrencySoft (hot), lines that "
            "are crossed, longer prompts, or clients that send one after the other (tidemark profile URL).",
            "可以减少 spec.replicas。"
            if less_traffic
            else "有因素限制了批次：检查 spec.scheduler.maxConcurrencySoft（热更新）是否被降低、水位线是否越线、"
            "提示词是否变长、客户端是否逐个发送（tidemark profile URL）。",
        ),
    )


def wait(service: Service, facts: Facts) -> Iterator[Finding]:
    now, before, traffic_now, traffic_before = _figures(service, facts, WAIT)
    if now <= RISE_RATIO * before or now - before < RISE_SECONDS:
        return
    yield Finding(
        severity=Severity.WARNING,
        service=service.title,
        what=Text(
            f"95 of 100 requests waited up to {text.seconds(now)} for their first turn in the last week, and "
            f"{text.seconds(before)} in the four weeks before ({traffic_now:,.0f} requests in the week, "
            f"{traffic_before:,.0f} a week before).",
            f"最近一周 95% 的请求首次调度等待不超过 {text.seconds(now)}，此前四周为 {text.seconds(before)}"
            f"（本周 {traffic_now:,.0f} 个请求，此前每周 {traffic_before:,.0f}）。",
        ),
        evidence=(*_evidence(facts, service), f"{WAIT[0].name} = {now:.4f}", f"{WAIT[1].name} = {before:.4f}"),
        advice=Text(
            "One more in spec.replicas; or more at once, where pages are left: spec.scheduler.maxNumSeqs (restart). "
            "tidemark profile URL names what bounds it.",
            "增加 spec.replicas；若页面有余量，提高 spec.scheduler.maxNumSeqs（重启）。"
            "tidemark profile URL 会指出瓶颈。",
        ),
        runbook="TidemarkQueueWaitHigh",
    )


def _figures(service: Service, facts: Facts, pair: tuple[Query, Query]) -> tuple[float, float, float, float]:
    """Figure and requests a week, of the last week and of before. Raises `NotChecked` where they cannot be compared."""
    now, before = (check.one(facts, query, service) for query in pair)
    traffic_now, traffic_before = (check.one(facts, query, service) or 0.0 for query in REQUESTS)
    if min(traffic_now, traffic_before) < _LEAST_REQUESTS:
        raise check.NotChecked(
            Text(
                f"too few requests to compare: {traffic_now:,.0f} in the last week, {traffic_before:,.0f} a week in "
                "the four before (Prometheus keeps 15 days unless told otherwise)",
                f"请求太少，无法比较：最近一周 {traffic_now:,.0f}，此前四周每周 {traffic_before:,.0f}"
                "（Prometheus 默认只保留 15 天）",
            )
        )
    if now is None or before is None:
        which = pair[0].name if now is None else pair[1].name
        raise check.NotChecked(Text(f"Prometheus has no {which} of it", f"Prometheus 没有它的 {which}"))
    return now, before, traffic_now, traffic_before


def _evidence(facts: Facts, service: Service) -> Iterator[str]:
    if check.one(facts, queries.A_MONTH_AGO, service) is None:
        yield "Prometheus has less than five weeks: compared with what there is"


FILL_CHECK = Check(
    name="batch-fill",
    title=Text("Fill of the batch against last month", "批次填充率与上月对比"),
    fine=Text("not lower than in the four weeks before", "不低于此前四周"),
    of_service=fill,
    queries=(*FILL, *REQUESTS, queries.A_MONTH_AGO),
)
WAIT_CHECK = Check(
    name="queue-wait",
    title=Text("Queue wait against last month", "排队等待与上月对比"),
    fine=Text("not longer than in the four weeks before", "不长于此前四周"),
    of_service=wait,
    queries=(*WAIT, *REQUESTS, queries.A_MONTH_AGO),
)
