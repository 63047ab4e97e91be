"""Services that stand still because somebody said so: paused, suspended, without replicas, or with less for a while."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator import names
from tidemark_operator.inspection import check
from tidemark_operator.inspection.check import Check, Finding, Severity
from tidemark_operator.inspection.facts import Facts, Origin, Service
from tidemark_operator.inspection.text import Text


def find(service: Service, _facts: Facts) -> Iterator[Finding]:
    if service.origin is Origin.URL:
        raise check.NotChecked(Text("an address has no manifest", "仅有地址，没有清单"))
    if service.paused:
        yield Finding(
            severity=Severity.WARNING,
            service=service.title,
            what=Text(
                "The operator leaves it alone: nothing is changed or repaired.",
                "operator 已停止管理它：不更新也不修复。",
            ),
            evidence=(f"annotation {names.PAUSED_ANNOTATION}=true",),
            advice=Text(
                f"Take the annotation away when the reason is gone: kubectl annotate tide {service.name} "
                f"-n {service.namespace} {names.PAUSED_ANNOTATION}-",
                f"原因消除后移除注解：kubectl annotate tide {service.name} -n {service.namespace} "
                f"{names.PAUSED_ANNOTATION}-",
            ),
        )
    if service.suspended:
        which = "spec.suspend is true" if service.spec.get("suspend") else "spec.replicas is 0"
        yield Finding(
            severity=Severity.INFO,
            service=service.title,
            what=Text(f"It has no pods because {which}.", f"没有 Pod：{which}。"),
            evidence=(which,),
            advice=Text(
                "Delete it if nobody misses it; else spec.suspend false and spec.replicas 1.",
                "若无人使用请删除；否则将 spec.suspend 设为 false、spec.replicas 设为 1。",
            ),
        )
    tightened = service.status.get("tightened")
    if tightened:
        limit, instead = tightened.get("maxConcurrencySoft"), tightened.get("instead")
        yield Finding(
            severity=Severity.WARNING,
            service=service.title,
            what=Text(
                f"For want of memory the operator lets {limit} requests run at once instead of {instead}, since "
                f"{tightened.get('since')}.",
                f"因内存不足，operator 自 {tightened.get('since')} 起将并发从 {instead} 降到 {limit}。",
            ),
            evidence=(f"status.tightened = {dict(tightened)}",),
            advice=Text(
                f"If that lasts, set spec.scheduler.maxConcurrencySoft (hot) to {limit} for good, or give more memory.",
                f"若持续存在，将 spec.scheduler.maxConcurrencySoft（热更新）固定为 {limit}，或增加内存。",
            ),
            runbook="TidemarkMemoryPreemptLine",
        )


CHECK = Check(
    name="held-back",
    title=Text("Paused, suspended, tightened", "暂停、挂起与收紧"),
    fine=Text("neither paused nor suspended, no limit lowered", "未暂停、未挂起、限制未被降低"),
    of_service=find,
)
