"""Ops that run on another path than planned: right, but slow."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, queries
from tidemark_operator.inspection.check import WEEK, Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text
from tidemark_runtime.contract import metrics

RUNBOOK = "TidemarkEngineFellBack"
LAST_WEEK = Query("unplanned_week", queries.worst(metrics.KERNEL_PATHS_UNPLANNED.name, WEEK))


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    check.statuses(service)
    now = False
    if not any(engine.status.kernel_paths for engine in service.engines if engine.status is not None):
        raise check.NotChecked(Text("no op has run yet", "尚未运行任何算子"))
    for engine in service.engines:
        fallen = [path for path in engine.status.kernel_paths if not path.is_planned] if engine.status else []
        if not fallen:
            continue
        now = True
        listed = ", ".join(f"{path.op} ({path.dtype})" for path in fallen[:4])
        more = f", +{len(fallen) - 4}" if len(fallen) > 4 else ""
        reason = next((path.reason for path in fallen if path.reason), "")
        yield Finding(
            severity=Severity.WARNING,
            service=service.title,
            pod=engine.name,
            what=Text(
                f"{len(fallen)} op{'s run' if len(fallen) > 1 else ' runs'} on a slower path than planned: "
                f"{listed}{more}.",
                f"{len(fallen)} 个算子运行在未计划的慢速路径上：{listed}{more}。",
            ),
            evidence=tuple(f"{path.op} {path.dtype}: planned {path.planned}, runs {path.path}" for path in fallen[:8]),
            advice=Text(
                reason
                or "See the engine's log for the reason; spec.hardware.strictKernels true (restart) keeps such an "
                "engine from serving.",
                reason or "原因见引擎日志；spec.hardware.strictKernels 设为 true（重启）可禁止这样的引擎提供服务。",
            ),
            runbook=RUNBOOK,
        )
    if now or not check.has_history(facts, service):
        return
    most = check.one(facts, LAST_WEEK, service)
    if most:
        yield Finding(
            severity=Severity.INFO,
            service=service.title,
            what=Text(
                f"Within 7 days an engine ran {most:.0f} ops on a slower path than planned; now none does.",
                f"最近 7 天内有引擎的 {most:.0f} 个算子运行在慢速路径上；目前没有。",
            ),
            evidence=(f"max_over_time({metrics.KERNEL_PATHS_UNPLANNED.name}[7d]) = {most:.0f}",),
            advice=Text(
                "Find the node it ran on: one of them lacks what the others have.",
                "找出当时所在的节点：某个节点缺少其他节点具备的条件。",
            ),
            runbook=RUNBOOK,
        )


CHECK = Check(
    name="kernel-paths",
    title=Text("Kernel paths", "内核路径"),
    fine=Text("every op ran as planned in the last 7 days", "最近 7 天所有算子按计划运行"),
    fine_now=Text("every op runs as planned", "所有算子按计划运行"),
    of_service=find,
    queries=(LAST_WEEK,),
)
