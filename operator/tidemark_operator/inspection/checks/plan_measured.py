"""Measured memory beside the plan, part by part, with the tolerances that the engine warns by."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, text
from tidemark_operator.inspection.check import Check, Finding, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text
from tidemark_runtime.planning import footprint

_LIMITS = ", ".join(f"{part} {text.percent(limit)}" for part, limit in footprint.TOLERANCES.items())


def find(service: Service, _facts: Facts) -> Iterator[Finding]:
    check.statuses(service)
    without = []
    for engine in service.engines:
        if engine.status is None:
            continue
        memory = engine.status.memory
        if not set(memory.planned_bytes) & set(memory.parts_bytes) & set(footprint.TOLERANCES):
            without.append(engine.name)
            continue
        for part, ratio in footprint.misses(memory.planned_bytes, memory.parts_bytes).items():
            planned, measured = memory.planned_bytes[part], memory.parts_bytes[part]
            yield Finding(
                severity=Severity.WARNING if ratio > 1 else Severity.INFO,
                service=service.title,
                pod=engine.name,
                what=Text(
                    f"{part} takes {text.num_bytes(measured)}, {text.percent(ratio)} of the planned "
                    f"{text.num_bytes(planned)} (tolerance {text.percent(footprint.TOLERANCES[part])}).",
                    f"{part} 占用 {text.num_bytes(measured)}，为计划 {text.num_bytes(planned)} 的 {text.percent(ratio)}"
                    f"（容差 {text.percent(footprint.TOLERANCES[part])}）。",
                ),
                evidence=(f"partsBytes.{part} = {measured}", f"plannedBytes.{part} = {planned}"),
                advice=Text(
                    "Plan again with tidemark plan, and compare the parts with tidemark profile URL. Until it is "
                    "understood leave more free: spec.kvCache.memoryUtilization lower by 0.05 (restart)."
                    if ratio > 1
                    else "Less is taken than planned: spec.kvCache.memoryUtilization may be higher (restart).",
                    "用 tidemark plan 重新规划，并用 tidemark profile URL 对比各部分。查明之前多留余量："
                    "spec.kvCache.memoryUtilization 降低 0.05（重启）。"
                    if ratio > 1
                    else "实际少于计划：spec.kvCache.memoryUtilization 可以提高（重启）。",
                ),
                runbook="TidemarkMemoryPlanExceeded" if ratio > 1 else "",
            )
    if without:
        raise check.NotChecked(
            Text(
                f"no part is both planned and measured in {', '.join(without)}",
                f"{', '.join(without)} 没有同时计划和测量的部分",
            )
        )


CHECK = Check(
    name="plan-measured",
    title=Text("Memory planned and measured", "计划内存与实测内存"),
    fine=Text(f"within the plan ({_LIMITS})", f"符合计划（{_LIMITS}）"),
    of_service=find,
)
