"""Configurations that engines refused."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, queries
from tidemark_operator.inspection.check import WEEK, Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text, same
from tidemark_runtime.contract import metrics

_REJECTED = 'result="rejected"'
LAST_WEEK = Query("rejected_week", queries.rise(metrics.CONFIG_RELOADS.name, WEEK, _REJECTED))
_RUNBOOK = "TidemarkConfigRejected"
_ADVICE = Text(
    "The configuration before stays in force: correct what was refused in the manifest and apply it.",
    "之前的配置继续生效：修正清单中被拒绝的内容后重新应用。",
)


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    applied = service.condition("ConfigApplied")
    if applied.get("reason") == "Rejected":
        yield Finding(
            severity=Severity.WARNING,
            service=service.title,
            what=same(str(applied.get("message", ""))),
            evidence=(f"ConfigApplied={applied.get('status')} Rejected since {applied.get('lastTransitionTime')}",),
            advice=_ADVICE,
            runbook=_RUNBOOK,
        )
        return
    if check.has_history(facts, service):
        times, period = check.one(facts, LAST_WEEK, service) or 0.0, Text("in the last 7 days", "最近 7 天")
    else:
        check.statuses(service)
        scrapes = [engine.scrape for engine in service.engines if engine.scrape is not None]
        if not scrapes:
            raise check.NotChecked(Text("no engine gave its /metrics", "没有引擎提供 /metrics"))
        times = sum(scrape.total(metrics.CONFIG_RELOADS.name, result="rejected") or 0.0 for scrape in scrapes)
        period = Text("since its engines started", "自引擎启动以来")
    if round(times) > 0:
        yield Finding(
            severity=Severity.INFO,
            service=service.title,
            what=Text(
                f"Engines refused {times:.0f} configurations {period.en}; the one in force now is good.",
                f"{period.zh}，引擎拒绝了 {times:.0f} 次配置；当前生效的配置正常。",
            ),
            evidence=(f"{metrics.CONFIG_RELOADS.name}{{{_REJECTED}}} rose by {times:.0f}",),
            advice=_ADVICE,
            runbook=_RUNBOOK,
        )


CHECK = Check(
    name="configuration-refused",
    title=Text("Refused configurations", "被拒绝的配置"),
    fine=Text("none was refused in the last 7 days", "最近 7 天没有被拒绝的配置"),
    fine_now=Text("none was refused since the engines started", "自引擎启动以来没有被拒绝的配置"),
    of_service=find,
    queries=(LAST_WEEK,),
)
