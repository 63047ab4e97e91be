"""Conditions that are not good, pods in trouble, and engines that say something is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check
from tidemark_operator.inspection.check import Check, Finding, Severity
from tidemark_operator.inspection.facts import Facts, Origin, Service
from tidemark_operator.inspection.text import Text, same
from tidemark_runtime.contract.status import EngineState

_BAD_WHEN_TRUE = frozenset({"Degraded", "MemoryPressure"})
_OWN_CHECK = frozenset({"LossyKV", "EvaluationPassed", "Progressing"})
"""Told by a check of their own, or neither good nor bad."""
_SEVERITY = {"Ready": Severity.CRITICAL, "Available": Severity.CRITICAL, "MonitoringReady": Severity.INFO}
_RUNBOOKS = {
    "Ready": "TidemarkServiceNotReady",
    "Available": "TidemarkServiceUnavailable",
    "Degraded": "TidemarkServiceNotReady",
    "CapacityFit": "TidemarkCapacityExceeded",
    "ConfigApplied": "TidemarkConfigNotApplied",
    "MemoryPressure": "TidemarkMemoryPreemptLine",
}
_SERVING = (EngineState.READY, EngineState.DRAINING)


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    if service.origin is Origin.URL:
        check.statuses(service)
        yield from _engines(service)
        return
    conditions = service.status.get("conditions") or ()
    if not conditions:
        yield _no_status(service)
        return
    # Suspended, paused: told by a check of its own, with everything that follows from it.
    if not service.suspended:
        yield from _conditions(service)
    yield from _engines(service)
    yield from _warnings(service)


def _conditions(service: Service) -> Iterator[Finding]:
    seen: set[str] = set()
    behind = service.condition("Ready").get("observedGeneration") != service.generation
    for item in service.status["conditions"]:
        kind, message = item["type"], str(item.get("message", ""))
        bad = item["status"] == ("True" if kind in _BAD_WHEN_TRUE else "False")
        if kind in _OWN_CHECK or not bad or item.get("reason") == "Rejected" or message in seen:
            continue
        seen.add(message)
        severity = _SEVERITY.get(kind, Severity.WARNING)
        yield Finding(
            severity=severity,
            service=service.title,
            what=Text(
                f"{kind} is {item['status']}, {item.get('reason')}: {message}",
                f"{kind} 为 {item['status']}（{item.get('reason')}）：{message}",
            ),
            evidence=(f"since {item.get('lastTransitionTime')}",),
            advice=_look(service),
            runbook=_RUNBOOKS.get(kind, ""),
        )
    if behind:
        yield Finding(
            severity=Severity.WARNING,
            service=service.title,
            what=Text(
                f"The operator has not acted on generation {service.generation} of the manifest.",
                f"operator 尚未处理清单的第 {service.generation} 代。",
            ),
            evidence=(f"observedGeneration = {service.condition('Ready').get('observedGeneration')}",),
            advice=Text(
                "See whether an operator runs, and looks after this namespace.",
                "检查 operator 是否运行并负责该命名空间。",
            ),
            runbook="TidemarkOperatorDown",
        )


def _no_status(service: Service) -> Finding:
    return Finding(
        severity=Severity.CRITICAL,
        service=service.title,
        what=Text("No operator has said anything about it.", "没有任何 operator 处理过它。"),
        evidence=("status.conditions is empty",),
        advice=Text(
            "See whether an operator runs, and looks after this namespace.", "检查 operator 是否运行并负责该命名空间。"
        ),
        runbook="TidemarkOperatorDown",
    )


def _engines(service: Service) -> Iterator[Finding]:
    """What a service that is Ready as a whole does not show: one bad pod, or a complaint of an engine."""
    told = " ".join(str(item.get("message", "")) for item in service.status.get("conditions") or ())
    for engine in service.engines:
        finding, status = engine.pod.get("finding") or {}, engine.status
        message = str(finding.get("message", "")) if finding.get("problem") else ""
        if not message and status is not None and (status.state not in _SERVING or status.reason):
            message = f"{status.reason or status.state}: {status.message}"
        if not message or message in told:
            continue
        stuck = status is not None and status.state in (EngineState.STALLED, EngineState.FAILED)
        loading = status is not None and status.state is EngineState.LOADING
        severity = Severity.INFO if loading else Severity.CRITICAL if stuck else Severity.WARNING
        yield Finding(
            severity=severity,
            service=service.title,
            pod=engine.name,
            what=same(message),
            evidence=(f"state {status.state}" if status is not None else f"pod: {finding.get('reason')}",),
            advice=_look(service),
            runbook="TidemarkEngineStalled" if stuck else "",
        )


def _warnings(service: Service) -> Iterator[Finding]:
    for warning in service.status.get("warnings") or ():
        yield Finding(
            severity=Severity.INFO,
            service=service.title,
            what=same(str(warning)),
            evidence=("status.warnings",),
            advice=Text("Remove the field, or correct what it says.", "移除该字段，或按提示修正。"),
        )


def _look(service: Service) -> Text:
    if service.origin is Origin.URL:
        return Text("Its log says more.", "详见其日志。")
    local = service.origin is Origin.LOCAL
    command = (
        f"tidemark status {service.name}" if local else f"kubectl tidemark status {service.name} -n {service.namespace}"
    )
    return Text(f"{command} says what to do.", f"{command} 会说明如何处理。")


CHECK = Check(
    name="conditions",
    title=Text("Conditions and pods", "状态条件与 Pod"),
    fine=Text("no bad condition, and no pod or engine in trouble", "没有异常条件，Pod 与引擎均无故障"),
    of_service=find,
)
