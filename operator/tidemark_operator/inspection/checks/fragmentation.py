"""Pages that are in use and hold little: many short sequences with a large block size."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, queries, text
from tidemark_operator.inspection.check import WEEK, Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules import recording
from tidemark_runtime.contract import metrics

HIGH_RATIO = 0.3
_LEAST_PAGES = 32
"""In use at the moment: of fewer, the half-filled last page of each sequence is most of it."""

LAST_WEEK = Query(
    "fragmentation_week",
    queries.average(recording.KV_FRAGMENTATION),
    queries.worst(metrics.KV_FRAGMENTATION.name, WEEK, "avg_over_time"),
)


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    if check.has_history(facts, service):
        share = check.one(facts, LAST_WEEK, service)
        if share is None:
            raise check.NotChecked(
                Text(
                    f"Prometheus has no {metrics.KV_FRAGMENTATION.name} of it in 7 days",
                    f"Prometheus 最近 7 天没有它的 {metrics.KV_FRAGMENTATION.name}",
                )
            )
        if share > HIGH_RATIO:
            yield _finding(service, "", share, Text("on average of 7 days", "最近 7 天平均"))
        return
    check.statuses(service)
    idle = []
    for engine in service.engines:
        if engine.status is None:
            continue
        share = engine.scrape.total(metrics.KV_FRAGMENTATION.name) if engine.scrape is not None else None
        if share is None:
            raise check.NotChecked(
                Text(f"no /metrics of {engine.name}: {engine.why_not}", f"没有 {engine.name} 的 /metrics")
            )
        used = engine.status.memory.pages_used
        if used < _LEAST_PAGES:
            idle.append(f"{engine.name} ({used})")
        elif share > HIGH_RATIO:
            yield _finding(service, engine.name, share, Text("at this moment", "当前"))
    if idle:
        raise check.NotChecked(
            Text(
                f"hardly a page is in use now: {', '.join(idle)}; under load, or with --prometheus, more can be said",
                f"当前几乎没有页面在用：{', '.join(idle)}；有负载时或提供 --prometheus 时才能判断",
            )
        )


def _finding(service: Service, pod: str, share: float, when: Text) -> Finding:
    block = next((engine.status.memory.block_size for engine in service.engines if engine.status is not None), 0)
    return Finding(
        severity=Severity.WARNING,
        service=service.title,
        pod=pod,
        what=Text(
            f"{text.percent(share)} of the pages in use hold no token, {when.en} (a page holds {block or '?'} tokens).",
            f"{when.zh}，使用中的页面有 {text.percent(share)} 不含 token（每页 {block or '?'} 个 token）。",
        ),
        evidence=(f"{metrics.KV_FRAGMENTATION.name} = {share:.3f}, limit {HIGH_RATIO}",),
        advice=Text(
            "Smaller pages: half of spec.kvCache.blockSize (restart). It costs a little speed with long requests.",
            "减小页面：将 spec.kvCache.blockSize 减半（重启）。长请求会略慢。",
        ),
        runbook="TidemarkMemoryQueueLine",
    )


CHECK = Check(
    name="fragmentation",
    title=Text("Fragmentation of KV memory", "KV 内存碎片"),
    fine=Text(
        f"at most {text.percent(HIGH_RATIO)} of the pages in use is empty",
        f"使用中的页面空置不超过 {text.percent(HIGH_RATIO)}",
    ),
    fine_now=Text(
        f"at most {text.percent(HIGH_RATIO)} of the pages in use is empty at this moment",
        f"当前使用中的页面空置不超过 {text.percent(HIGH_RATIO)}",
    ),
    of_service=find,
    queries=(LAST_WEEK,),
)
