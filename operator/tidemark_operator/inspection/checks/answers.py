"""Engines that run and do not answer."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check
from tidemark_operator.inspection.check import Check, Finding, Severity
from tidemark_operator.inspection.facts import Facts, Origin, Service
from tidemark_operator.inspection.text import Text

NOT_PERMITTED = "not permitted"
"""How whoever asked begins, where not the engine but a right is missing."""


def find(service: Service, _facts: Facts) -> Iterator[Finding]:
    if service.suspended:
        raise check.NotChecked(Text("it is suspended", "服务已暂停"))
    refused = ""
    for engine in service.engines:
        if engine.status is not None or not engine.runs:
            continue
        if engine.why_not.startswith(NOT_PERMITTED):
            refused = engine.why_not
            continue
        yield Finding(
            severity=Severity.CRITICAL if service.origin is Origin.URL else Severity.WARNING,
            service=service.title,
            pod=engine.name,
            what=Text(f"It runs and does not answer: {engine.why_not}", f"运行中但没有应答：{engine.why_not}"),
            evidence=("GET /status",),
            advice=Text(
                "See its log. Where all pods are silent, a network policy may keep this inspection out "
                "(spec.access.allowFrom).",
                "查看其日志。若所有 Pod 都不应答，可能是网络策略挡住了本次巡检（spec.access.allowFrom）。",
            ),
            runbook="TidemarkEngineDown",
        )
    if refused:
        raise check.NotChecked(Text(refused, refused))
    if service.not_read:
        raise check.NotChecked(Text("; ".join(service.not_read), "；".join(service.not_read)))


CHECK = Check(
    name="engines-answer",
    title=Text("Engines answer", "引擎应答"),
    fine=Text("every engine that runs answers", "所有运行中的引擎都有应答"),
    of_service=find,
)
