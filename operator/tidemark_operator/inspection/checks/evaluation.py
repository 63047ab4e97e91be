"""Accuracy evaluations that are overdue, failed, or asked for and never made."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from tidemark_operator.inspection import check, queries, text
from tidemark_operator.inspection.check import Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Origin, Service
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules import promql

LATE_RATIO = 2.0
"""Overdue when the last one is older than so many intervals: one may fail and be tried again."""


_TIME, _PASSED, _INTERVAL = (
    operator_metrics.EVALUATION_TIME.name,
    operator_metrics.EVALUATION_PASSED.name,
    operator_metrics.EVALUATION_INTERVAL.name,
)


def _gauge(name: str) -> Query:
    """The operator is scraped with labels of its own; those that a series is about come from `own_labels`."""
    return Query(name, lambda scope: f"max by {queries.BY} ({promql.own_labels(scope.select(name))})")


WHEN, PASSED, INTERVAL = _gauge(_TIME), _gauge(_PASSED), _gauge(_INTERVAL)


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    if service.origin is Origin.URL:
        raise check.NotChecked(Text("an address has no manifest that asks for one", "仅有地址，没有要求评估的清单"))
    schedule = service.set("evaluation.schedule")
    when, passed, interval = _last(service, facts)
    if when is None:
        if schedule:
            yield _never(service, facts, str(schedule), interval)
        return
    age = facts.now.timestamp() - when
    if passed is False:
        yield _bad(service, Severity.CRITICAL, age, when, Text("failed", "未通过"))
    elif interval and age > LATE_RATIO * interval:
        yield _bad(
            service,
            Severity.WARNING,
            age,
            when,
            Text(f"is overdue (every {text.seconds(interval)})", f"已过期（每 {text.seconds(interval)} 一次）"),
        )


def _never(service: Service, facts: Facts, schedule: str, interval: float | None) -> Finding:
    age = facts.now.timestamp() - _seconds(service.created) if service.created else None
    waits = age is not None and interval is not None and age < LATE_RATIO * interval
    return Finding(
        severity=Severity.INFO if waits else Severity.WARNING,
        service=service.title,
        what=Text(
            "spec.evaluation asks for evaluations, and there is no result of one yet.",
            "spec.evaluation 要求评估，但还没有任何评估结果。",
        ),
        evidence=(f"spec.evaluation.schedule = {schedule}", "no time in status.evaluation"),
        advice=Text(
            "See whether its job runs (kubectl get jobs), or make one by hand, on your own text: tidemark eval; "
            "compare with the limits of spec.evaluation.",
            "检查其任务是否运行（kubectl get jobs），或用自己的文本手动评估：tidemark eval；"
            "与 spec.evaluation 的上限比较。",
        ),
    )


def _bad(service: Service, severity: Severity, age: float, when: float, how: Text) -> Finding:
    return Finding(
        severity=severity,
        service=service.title,
        what=Text(
            f"The accuracy evaluation of {text.seconds(age)} ago {how.en}.",
            f"{text.seconds(age)} 前的精度评估{how.zh}。",
        ),
        evidence=(
            f"last evaluation {datetime.datetime.fromtimestamp(when, datetime.UTC):%Y-%m-%d %H:%M} UTC",
            *([str(message)] if (message := (service.status.get("evaluation") or {}).get("message")) else []),
        ),
        advice=Text(
            "Go back to 16 bits where facts are lost: spec.kvCache.dtype auto (restart), or a precision map that "
            "tidemark eval sensitivity writes. Overdue: see why its job does not run.",
            "丢失信息处恢复 16 位：spec.kvCache.dtype 设为 auto（重启），"
            "或使用 tidemark eval sensitivity 生成的精度映射。"
            "过期时请检查其任务为何没有运行。",
        ),
    )


def _last(service: Service, facts: Facts) -> tuple[float | None, bool | None, float | None]:
    """When, whether it passed, and how often one is made: of the service's status, else of the operator's metrics."""
    told = service.status.get("evaluation") or {}
    if told.get("time"):
        moment = datetime.datetime.fromisoformat(str(told["time"]).replace("Z", "+00:00"))
        return moment.timestamp(), told.get("passed"), told.get("intervalSeconds")
    labels = {"namespace": service.namespace, "service": service.name}
    for operator in facts.operators:
        if operator.scrape is not None and (when := operator.scrape.total(_TIME, **labels)):
            passed = operator.scrape.total(_PASSED, **labels)
            interval = operator.scrape.total(_INTERVAL, **labels)
            return when, None if passed is None else bool(passed), interval
    if check.has_history(facts, service) and (when := check.one(facts, WHEN, service)):
        passed = check.one(facts, PASSED, service)
        return when, None if passed is None else bool(passed), check.one(facts, INTERVAL, service)
    return None, None, told.get("intervalSeconds")


def _seconds(moment: str) -> float:
    """Since 1970."""
    return datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


CHECK = Check(
    name="evaluation",
    title=Text("Accuracy evaluation", "精度评估"),
    fine=Text("none is overdue or failed", "没有过期或未通过的评估"),
    of_service=find,
    queries=(WHEN, PASSED, INTERVAL),
)
