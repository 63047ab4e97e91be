"""The result of an inspection as plain values: what `--output json` prints, and what text and HTML are made from. Pure.

`schemaVersion` rises when a key changes its meaning or goes away; new keys may come at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark_operator.inspection.check import Finding, Severity
from tidemark_operator.inspection.run import Report, Result
from tidemark_operator.monitoring import runbooks
from tidemark_operator.monitoring.rules.model import Language

SCHEMA_VERSION = 1


def build(
    report: Report, source: Mapping[str, Any], language: Language, runbook_base_url: str, version: str
) -> dict[str, Any]:
    """`source`: who was asked, as `tidemark status` says it."""
    facts = report.facts
    checks = [_check(result, language) for result in report.results]
    return {
        "schemaVersion": SCHEMA_VERSION,
        "version": version,
        "at": f"{facts.now:%Y-%m-%dT%H:%M:%SZ}",
        "language": language.value,
        "source": dict(source),
        "prometheus": facts.history.url or None,
        "prometheusError": None if facts.history.why_none is None else facts.history.why_none.of(language),
        "services": [
            {
                "name": service.title,
                "origin": service.origin.value,
                "url": service.url or None,
                "engines": [engine.name for engine in service.engines],
                "answered": sum(engine.status is not None for engine in service.engines),
            }
            for service in facts.services
        ],
        "summary": {
            **{severity.value: _count(report, severity) for severity in Severity},
            "checks": len(checks),
            **{state: sum(check["state"] == state for check in checks) for state in _STATES},
        },
        "findings": [
            _finding(result.check.name, finding, language, runbook_base_url) for finding, result in _in_order(report)
        ],
        "checks": checks,
    }


_STATES = ("fine", "found", "notChecked")
"""Of a check. One that looked at some services and could not look at others is `fine` or `found`; its `notChecked`
lists those."""


def _count(report: Report, severity: Severity) -> int:
    return sum(finding.severity is severity for finding in report.findings)


def _in_order(report: Report) -> list[tuple[Finding, Result]]:
    """As `report.findings`, each with its check."""
    by_id = {id(finding): result for result in report.results for finding in result.findings}
    return [(finding, by_id[id(finding)]) for finding in report.findings]


def _finding(check: str, finding: Finding, language: Language, base: str) -> dict[str, Any]:
    return {
        "check": check,
        "severity": finding.severity.value,
        "service": finding.service or None,
        "pod": finding.pod or None,
        "what": finding.what.of(language),
        "evidence": list(finding.evidence),
        "advice": finding.advice.of(language),
        "runbook": finding.runbook or None,
        "runbookUrl": runbooks.url(base, finding.runbook, language) if finding.runbook else None,
    }


def _check(result: Result, language: Language) -> dict[str, Any]:
    state = "found" if result.findings else "fine" if result.fine or not result.gaps else "notChecked"
    return {
        "name": result.check.name,
        "title": result.check.title.of(language),
        "state": state,
        "findings": len(result.findings),
        "fine": [service for service in result.fine if service],
        "fineMeans": result.fine_means.of(language),
        "notChecked": [{"service": gap.service or None, "why": gap.why.of(language)} for gap in result.gaps],
    }
