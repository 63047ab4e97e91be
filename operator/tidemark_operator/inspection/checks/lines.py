"""Lines of KV memory that were crossed lately: since the engine started, and with Prometheus in a day and a week."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, queries, text
from tidemark_operator.inspection.check import Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text
from tidemark_runtime.contract import metrics

WARN_RATIO = {"queue": 0.10, "preempt": 0.01}
"""Share of a day from which on a crossed line is a warning: the queue line delays, the preempt line costs work
twice."""
CRITICAL_RATIO = {"preempt": 0.10}
_NOTICED_RATIO = 0.001
"""Less than a minute and a half of a day is how a line works, no finding."""
_LEAST_SECONDS = 3600.0
"""Of an engine that began a moment ago, a share of its time is no reason to act."""
_RUNBOOKS = {"queue": "TidemarkMemoryQueueLine", "preempt": "TidemarkMemoryPreemptLine"}
_NAMES = {"queue": Text("queue line", "排队线"), "preempt": Text("preempt line", "抢占线")}

_LEVEL = metrics.WATERMARK_SECONDS.labels
LAST_DAY = Query("lines_day", queries.share_of_time(metrics.WATERMARK_SECONDS.name, check.DAY, _LEVEL))
LAST_WEEK = Query("lines_week", queries.share_of_time(metrics.WATERMARK_SECONDS.name, check.WEEK, _LEVEL))


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    if check.has_history(facts, service):
        yield from _by_history(service, facts)
        return
    check.statuses(service)
    for engine in service.engines:
        status = engine.status
        if status is None or status.uptime_seconds <= 0:
            continue
        for level, line in status.lines.items():
            share = line.seconds_above_total / status.uptime_seconds
            since = Text(
                f"since it started {text.seconds(status.uptime_seconds)} ago",
                f"自 {text.seconds(status.uptime_seconds)} 前启动以来",
            )
            evidence = (
                f"lines.{level}.secondsAboveTotal = {line.seconds_above_total:.0f}",
                f"uptimeSeconds = {status.uptime_seconds:.0f}",
            )
            young = status.uptime_seconds < _LEAST_SECONDS
            yield from _finding(service, engine.name, level, share, since, evidence, young=young)


def _by_history(service: Service, facts: Facts) -> Iterator[Finding]:
    day, week = (check.of_service(facts, query, service) for query in (LAST_DAY, LAST_WEEK))
    if not week:
        raise check.NotChecked(
            Text(
                f"Prometheus has no {metrics.WATERMARK_SECONDS.name} of it in 7 days",
                f"Prometheus 最近 7 天没有它的 {metrics.WATERMARK_SECONDS.name}",
            )
        )
    for item in week:
        level = item.labels.get("level", "")
        share = next((found.value for found in day if found.labels.get("level") == level), 0.0)
        evidence = (f"{level}: {text.percent(share)} of 24 h, {text.percent(item.value)} of 7 d",)
        if share >= item.value or share > _NOTICED_RATIO:
            yield from _finding(service, "", level, share, Text("in the last 24 hours", "最近 24 小时"), evidence)
        else:
            yield from _finding(service, "", level, item.value, Text("in the last 7 days", "最近 7 天"), evidence)


def _finding(
    service: Service,
    pod: str,
    level: str,
    share: float,
    period: Text,
    evidence: tuple[str, ...],
    *,
    young: bool = False,
) -> Iterator[Finding]:
    if level not in _NAMES or share <= _NOTICED_RATIO:
        return
    severity = Severity.INFO
    if not young and share >= WARN_RATIO[level]:
        severity = Severity.CRITICAL if share >= CRITICAL_RATIO.get(level, 2.0) else Severity.WARNING
    line = _NAMES[level]
    yield Finding(
        severity=severity,
        service=service.title,
        pod=pod,
        what=Text(
            f"KV memory was above the {line.en} for {text.percent(share)} of the time {period.en}.",
            f"{period.zh}，KV 内存有 {text.percent(share)} 的时间越过{line.zh}。",
        ),
        evidence=evidence,
        advice=_advice(service, level),
        runbook=_RUNBOOKS[level],
    )


def _advice(service: Service, level: str) -> Text:
    if level == "queue":
        return Text(
            "More room: spec.kvCache.dtype int8 (restart), spec.hardware.memory (restart) or one more spec.replicas; "
            "or fewer at a time: spec.scheduler.maxConcurrencySoft (hot) to about what runs then.",
            "增加空间：spec.kvCache.dtype 设为 int8（重启）、spec.hardware.memory（重启）或增加 spec.replicas；"
            "或降低并发：spec.scheduler.maxConcurrencySoft（热更新）。",
        )
    if service.set("watermarks.response") == "tighten":
        return Text(
            "Lower spec.scheduler.maxConcurrencySoft (hot): the operator does it for a while only "
            "(spec.watermarks.response is tighten). Then more room, as at the queue line.",
            "降低 spec.scheduler.maxConcurrencySoft（热更新）：operator 只会临时收紧"
            "（spec.watermarks.response 为 tighten）。之后增加空间。",
        )
    return Text(
        "Lower spec.scheduler.maxConcurrencySoft (hot), or let the operator do it: spec.watermarks.response tighten.",
        "降低 spec.scheduler.maxConcurrencySoft（热更新），"
        "或由 operator 自动收紧：spec.watermarks.response 设为 tighten。",
    )


CHECK = Check(
    name="memory-lines",
    title=Text("KV memory lines crossed lately", "KV 内存水位线近期越线"),
    fine=Text(
        f"crossed for at most {text.percent(_NOTICED_RATIO)} of the last 24 hours and 7 days",
        f"最近 24 小时与 7 天的越线时间不超过 {text.percent(_NOTICED_RATIO)}",
    ),
    fine_now=Text(
        f"crossed for at most {text.percent(_NOTICED_RATIO)} of the time since the engines started",
        f"自引擎启动以来的越线时间不超过 {text.percent(_NOTICED_RATIO)}",
    ),
    of_service=find,
    queries=(LAST_DAY, LAST_WEEK),
)
