"""The operator's own health: exactly one works, it hears of every kind, it is ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidemark_operator.inspection import check, text
from tidemark_operator.inspection.check import Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules.thresholds import Thresholds

OLD_SECONDS = Thresholds().watch_seconds
_LEADER, _WATCH_AGE = operator_metrics.LEADER.name, operator_metrics.WATCH_AGE.name

LEADER = Query("operator_leader", lambda scope: f"sum by (cluster) ({scope.select(_LEADER)})")
WATCH_AGE = Query("operator_watch_age", lambda scope: f"max by (kind) ({scope.select(_WATCH_AGE)})")


def find(facts: Facts) -> Iterator[Finding]:
    asked = [operator for operator in facts.operators if operator.scrape is not None]
    silent = [operator for operator in facts.operators if operator.scrape is None]
    if asked:
        leaders = sum(operator.scrape.total(_LEADER) or 0.0 for operator in asked if operator.scrape)
        ages: dict[str, float] = {}
        for operator in asked:
            for series in operator.scrape.of(_WATCH_AGE) if operator.scrape is not None else ():
                kind = series.labels.get("kind", "?")
                ages[kind] = max(ages.get(kind, 0.0), series.value)
        yield from _judge(leaders, ages, [f"/metrics of {operator.name}" for operator in asked], bool(silent))
        for operator in asked:
            if operator.ready and len(asked) == 1:
                yield _not_ready(operator.name, operator.ready)
    elif facts.history.url and (known := check.answer(facts, LEADER)):
        ages = {item.labels.get("kind", "?"): item.value for item in check.answer(facts, WATCH_AGE)}
        yield from _judge(max(item.value for item in known), ages, ["Prometheus"], False)
    if silent:
        listed = "; ".join(f"{operator.name}: {operator.why_not}" for operator in silent)
        raise check.NotChecked(Text(f"no /metrics of {listed}", f"没有 /metrics：{listed}"))
    if not asked and not facts.history.url:
        raise check.NotChecked(facts.why_no_operators)
    if not asked and not check.answer(facts, LEADER):
        why = facts.why_no_operators
        raise check.NotChecked(
            Text(
                f"{why.en}, and Prometheus has no {_LEADER}",
                f"{why.zh}，Prometheus 中也没有 {_LEADER}",
            )
        )


def _judge(leaders: float, ages: Mapping[str, float], evidence: Sequence[str], partly: bool) -> Iterator[Finding]:
    if leaders > 1 or (leaders < 1 and not partly):
        yield Finding(
            severity=Severity.CRITICAL,
            what=Text(
                f"{leaders:.0f} processes of the operator lead (1 is right).",
                f"有 {leaders:.0f} 个 operator 进程为主（应为 1）。",
            ),
            evidence=(f"{_LEADER} = {leaders:.0f}", *evidence),
            advice=Text(
                "kubectl get lease -A shows who holds it; restart the operator's Deployment.",
                "kubectl get lease -A 可查看持有者；重启 operator 的 Deployment。",
            ),
            runbook="TidemarkOperatorLeaders",
        )
    old = {kind: age for kind, age in ages.items() if age > OLD_SECONDS}
    for kind, age in sorted(old.items()):
        yield Finding(
            severity=Severity.CRITICAL,
            what=Text(
                f"The operator has not heard of {kind} for {text.seconds(age)} (limit {text.seconds(OLD_SECONDS)}).",
                f"operator 已有 {text.seconds(age)} 没有收到 {kind} 的变化（上限 {text.seconds(OLD_SECONDS)}）。",
            ),
            evidence=(f'{_WATCH_AGE}{{kind="{kind}"}} = {age:.0f}', *evidence),
            advice=Text(
                "Restart the operator; look for errors of the API server in its log.",
                "重启 operator；检查其日志中 API server 的错误。",
            ),
            runbook="TidemarkOperatorWatchStale",
        )


def _not_ready(name: str, why: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        what=Text(f"Operator {name} is not ready: {why}", f"operator {name} 未就绪：{why}"),
        evidence=("/health/ready",),
        advice=Text("See its log.", "查看其日志。"),
        runbook="TidemarkOperatorDown",
    )


CHECK = Check(
    name="operator",
    title=Text("The operator", "Operator"),
    fine=Text("one leads, and hears of every kind", "恰有一个为主，且能收到各类变化"),
    of_site=find,
    queries=(LEADER, WATCH_AGE),
)
