"""Alerts of Tidemark that fire now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tidemark_operator.inspection import check
from tidemark_operator.inspection.check import Check, Finding, Severity
from tidemark_operator.inspection.facts import Facts
from tidemark_operator.inspection.text import Text, same

_SEVERITIES: Mapping[str, Severity] = MappingProxyType({severity.value: severity for severity in Severity})
"""Of a site's own rule with another word, a warning is made."""


def find(facts: Facts) -> Iterator[Finding]:
    if not facts.history.url:
        raise check.NotChecked(check.NO_PROMETHEUS)
    if isinstance(facts.history.alerts, Text):
        raise check.NotChecked(facts.history.alerts)
    for alert in facts.history.alerts:
        if alert.state != "firing":
            continue
        service = facts.service_of(alert.labels)
        if service is None and alert.labels.get("service") and not facts.everything:
            continue
        about = "/".join(alert.labels[key] for key in ("namespace", "service") if alert.labels.get(key))
        labels = " ".join(f"{key}={value}" for key, value in sorted(alert.labels.items()))
        yield Finding(
            severity=_SEVERITIES.get(alert.severity, Severity.WARNING),
            service=service.title if service is not None else about,
            what=Text(f"{alert.name} fires: {alert.description}", f"{alert.name} 正在触发：{alert.description}"),
            evidence=(f"since {alert.since}", *([labels] if labels else [])),
            advice=same(alert.runbook) if alert.runbook else Text("See its runbook.", "参见其运行手册。"),
            runbook=alert.name,
        )


CHECK = Check(
    name="alerts",
    title=Text("Alerts that fire now", "正在触发的告警"),
    fine=Text("none fires", "没有告警"),
    of_site=find,
)
