"""Engines that ended and were started again, and those that memory ended."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from tidemark_operator.inspection import check, queries, text
from tidemark_operator.inspection.check import WEEK, Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Engine, Facts, Origin, Service
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules import promql
from tidemark_runtime.contract import metrics

RECENT_SECONDS = 7 * 86_400.0
"""An end of longer ago is history; a pod that keeps its restart count for months says nothing by it."""
OFTEN = 3
_OUT_OF_MEMORY = metrics.OUT_OF_MEMORY.name

RESETS = Query(
    "resets_week",
    lambda scope: f"sum by {queries.BY} (resets({scope.select(metrics.PROMPT_TOKENS.name)}[{promql.duration(WEEK)}]))",
)
MEMORY = Query("out_of_memory_week", queries.rise(_OUT_OF_MEMORY, WEEK))


def restarts(service: Service, facts: Facts) -> Iterator[Finding]:
    if service.origin is not Origin.URL:
        if not service.engines and any("pods" in item for item in service.not_read):
            raise check.NotChecked(text.same("; ".join(service.not_read)))
        for engine in service.engines:
            ended, seconds_ago = _last_end(engine, facts.now)
            count = int(engine.pod.get("restarts") or 0)
            if not count or seconds_ago is None or seconds_ago > RECENT_SECONDS or _by_memory(engine):
                continue
            yield _restarted(service, engine, count, ended, seconds_ago)
        return
    times = check.one(facts, RESETS, service) or 0.0  # raises where no history is to be had: an address has no pods
    if round(times) > 0:
        yield Finding(
            severity=Severity.WARNING if times >= OFTEN else Severity.INFO,
            service=service.title,
            what=Text(
                f"It was started anew {times:.0f} times in the last 7 days.", f"最近 7 天重新启动了 {times:.0f} 次。"
            ),
            evidence=(f"resets({metrics.PROMPT_TOKENS.name}[7d]) = {times:.0f}",),
            advice=Text("Its log says why: the last lines before each start.", "原因见日志：每次启动前的最后几行。"),
            runbook="TidemarkEngineRestarting",
        )


def _restarted(service: Service, engine: Engine, count: int, ended: Mapping[str, Any], seconds_ago: float) -> Finding:
    ago, code = text.seconds(seconds_ago), ended.get("exitCode")
    return Finding(
        severity=Severity.WARNING if count >= OFTEN or code else Severity.INFO,
        service=service.title,
        pod=engine.name,
        what=Text(
            f"It was started again {count} times, last {ago} ago, after exit code {code}.",
            f"已重启 {count} 次，最近一次在 {ago} 前，退出码 {code}。",
        ),
        evidence=(f"restartCount = {count}", f"lastState.terminated: {ended.get('reason')}, exit code {code}"),
        advice=Text(
            f"The log of the run before says why: {engine.pod.get('log') or 'kubectl logs --previous'}",
            f"原因见上一次运行的日志：{engine.pod.get('log') or 'kubectl logs --previous'}",
        ),
        runbook="TidemarkEngineRestarting",
    )


def out_of_memory(service: Service, facts: Facts) -> Iterator[Finding]:
    for engine in service.engines:
        ended, seconds_ago = _last_end(engine, facts.now)
        if _by_memory(engine) and seconds_ago is not None and seconds_ago <= RECENT_SECONDS:
            yield Finding(
                severity=Severity.CRITICAL,
                service=service.title,
                pod=engine.name,
                what=Text(
                    f"It was ended for want of memory {text.seconds(seconds_ago)} ago; its requests were lost.",
                    f"{text.seconds(seconds_ago)} 前因内存不足被终止；当时的请求已丢失。",
                ),
                evidence=(f"lastState.terminated: {ended.get('reason')}, exit code {ended.get('exitCode')}",),
                advice=_MEMORY_ADVICE,
                runbook="TidemarkMemoryPlanExceeded",
            )
    yield from _refused_by_device(service, facts)


def _refused_by_device(service: Service, facts: Facts) -> Iterator[Finding]:
    """Allocations that failed and were survived, which engines count."""
    if check.has_history(facts, service):
        times, period = check.one(facts, MEMORY, service) or 0.0, Text("in the last 7 days", "最近 7 天")
    else:
        check.statuses(service)
        times = float(sum(engine.status.out_of_memory_total for engine in service.engines if engine.status is not None))
        period = Text("since its engines started", "自引擎启动以来")
    if round(times) > 0:
        yield Finding(
            severity=Severity.WARNING,
            service=service.title,
            what=Text(
                f"Engines ran out of memory {times:.0f} times {period.en} and went on.",
                f"{period.zh}，引擎 {times:.0f} 次内存不足，但继续运行。",
            ),
            evidence=(f"{_OUT_OF_MEMORY} rose by {times:.0f}",),
            advice=_MEMORY_ADVICE,
            runbook="TidemarkMemoryPlanExceeded",
        )


_MEMORY_ADVICE = Text(
    "More spec.hardware.memory (restart), or spec.kvCache.memoryUtilization lower by 0.05 (restart).",
    "增加 spec.hardware.memory（重启），或将 spec.kvCache.memoryUtilization 降低 0.05（重启）。",
)


def _last_end(engine: Engine, now: datetime.datetime) -> tuple[Mapping[str, Any], float | None]:
    """How its container last ended, and how many seconds ago; None: it never has, or does not say when."""
    ended = (engine.pod.get("lastState") or {}).get("terminated") or {}
    ended = ended or (engine.pod.get("state") or {}).get("terminated") or {}
    when = ended.get("finishedAt")
    if not when:
        return ended, None
    moment = datetime.datetime.fromisoformat(str(when).replace("Z", "+00:00"))
    return ended, max(0.0, (now - moment).total_seconds())


def _by_memory(engine: Engine) -> bool:
    ended = (engine.pod.get("lastState") or {}).get("terminated") or {}
    ended = ended or (engine.pod.get("state") or {}).get("terminated") or {}
    return ended.get("reason") == "OOMKilled" or (engine.pod.get("finding") or {}).get("reason") == "OutOfMemory"


RESTARTS_CHECK = Check(
    name="restarts",
    title=Text("Restarts of engines", "引擎重启"),
    fine=Text("none in the last 7 days", "最近 7 天没有"),
    of_service=restarts,
    queries=(RESETS,),
)
MEMORY_CHECK = Check(
    name="out-of-memory",
    title=Text("Out of memory", "内存不足"),
    fine=Text("no engine ran out of memory in the last 7 days", "最近 7 天没有引擎内存不足"),
    fine_now=Text("no engine ran out of memory since it started", "自启动以来没有引擎内存不足"),
    of_service=out_of_memory,
    queries=(MEMORY,),
)
