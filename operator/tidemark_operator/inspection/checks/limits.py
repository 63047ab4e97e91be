"""A limit that is not set and would help: only where what happened says so."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, queries, text
from tidemark_operator.inspection.check import WEEK, Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Origin, Service
from tidemark_operator.inspection.text import Text
from tidemark_runtime.contract import metrics

PREEMPTED_RATIO = 0.02
"""Preemptions for each request: a soft limit would have kept most of them from being paid for twice."""
_LEAST_REQUESTS = 100.0
_LEAST_PREEMPTIONS = 10.0

PREEMPTIONS = Query("preemptions_week", lambda scope: queries.total(scope, metrics.PREEMPTIONS.name, WEEK))
REQUESTS = Query("requests_last_week", lambda scope: queries.total(scope, metrics.REQUESTS.name, WEEK))


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    if check.has_history(facts, service):
        preempted = check.one(facts, PREEMPTIONS, service) or 0.0
        requests = check.one(facts, REQUESTS, service) or 0.0
        period = Text("in the last 7 days", "最近 7 天")
    else:
        check.statuses(service)
        scrapes = [engine.scrape for engine in service.engines if engine.scrape is not None]
        if not scrapes:
            raise check.NotChecked(Text("no engine gave its /metrics", "没有引擎提供 /metrics"))
        preempted = sum(scrape.total(metrics.PREEMPTIONS.name) or 0.0 for scrape in scrapes)
        requests = sum(scrape.total(metrics.REQUESTS.name) or 0.0 for scrape in scrapes)
        period = Text("since its engines started", "自引擎启动以来")
    # Of an address nobody knows what its manifest says.
    is_set = service.origin is not Origin.URL and service.set("scheduler.maxConcurrencySoft") is not None
    often = preempted >= max(_LEAST_PREEMPTIONS, PREEMPTED_RATIO * requests)
    if is_set or requests < _LEAST_REQUESTS or not often:
        return
    places = max((engine.status.queue.places for engine in service.engines if engine.status is not None), default=0)
    to = f" {max(1, places // 2)}" if places else ""
    yield Finding(
        severity=Severity.WARNING,
        service=service.title,
        what=Text(
            f"{preempted:,.0f} sequences lost their pages {period.en}, {text.percent(preempted / requests)} of the "
            "requests, and no soft limit is set.",
            f"{period.zh}，{preempted:,.0f} 个序列被抢占，占请求的 {text.percent(preempted / requests)}，"
            "且未设置软上限。",
        ),
        evidence=(f"{metrics.PREEMPTIONS.name} rose by {preempted:.0f}, {metrics.REQUESTS.name} by {requests:.0f}",),
        advice=Text(
            f"Try spec.scheduler.maxConcurrencySoft{to} (hot); tidemark bench URL measures the best one.",
            f"尝试将 spec.scheduler.maxConcurrencySoft 设为{to or ' 较小值'}（热更新）；"
            "tidemark bench URL 可测出最佳值。",
        ),
        runbook="TidemarkPreemptionStorm",
    )


CHECK = Check(
    name="soft-limit",
    title=Text("Soft limit", "并发软上限"),
    fine=Text("set, or not needed", "已设置，或不需要"),
    of_service=find,
    queries=(PREEMPTIONS, REQUESTS),
)
