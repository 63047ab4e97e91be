"""Whether Prometheus sees every engine: what is not scraped has no alert."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, queries
from tidemark_operator.inspection.check import Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text
from tidemark_runtime.contract import metrics

_OF_SERVICES = 'service!=""'
SCRAPED = Query("scraped", lambda scope: f"count by {queries.BY} ({scope.select(metrics.KV_USAGE.name)})")
DOWN = Query("down", lambda scope: f"count by {queries.BY} ({scope.select('up', _OF_SERVICES)} == 0)")


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    seen = check.one(facts, SCRAPED, service) or 0.0
    down = check.one(facts, DOWN, service) or 0.0
    answering = sum(engine.status is not None for engine in service.engines)
    if service.suspended and not seen and not down:
        raise check.NotChecked(Text("it is suspended", "服务已暂停"))
    if down:
        yield Finding(
            severity=Severity.WARNING,
            service=service.title,
            what=Text(
                f"{down:.0f} of its targets do not answer Prometheus.", f"有 {down:.0f} 个抓取目标没有应答 Prometheus。"
            ),
            evidence=("up == 0",),
            advice=_ADVICE,
            runbook="TidemarkEngineDown",
        )
    elif seen < answering:
        yield Finding(
            severity=Severity.WARNING,
            service=service.title,
            what=Text(
                f"{answering} of its engines answer this inspection, and Prometheus scrapes {seen:.0f}: alerts are "
                "blind to the others.",
                f"巡检时有 {answering} 个引擎应答，而 Prometheus 只抓取了 {seen:.0f} 个：其余引擎没有告警。",
            ),
            evidence=(f"count({metrics.KV_USAGE.name}) = {seen:.0f}",),
            advice=_ADVICE,
            runbook="TidemarkEngineMetricsAbsent",
        )


_ADVICE = Text(
    "See the targets page of Prometheus; a network policy must let it in (spec.access.allowFrom), and its selector "
    "must match spec.monitoring.labels.",
    "查看 Prometheus 的 targets 页面；网络策略须放行（spec.access.allowFrom），其选择器须匹配 spec.monitoring.labels。",
)

CHECK = Check(
    name="scrape-targets",
    title=Text("Scrape targets", "抓取目标"),
    fine=Text("Prometheus scrapes every engine", "Prometheus 抓取了所有引擎"),
    of_service=find,
    queries=(SCRAPED, DOWN),
)
