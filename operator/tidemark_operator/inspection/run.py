"""Runs every check over the facts. The result names each check: found, fine, or not checked and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidemark_operator.inspection import check as check_
from tidemark_operator.inspection import registry
from tidemark_operator.inspection.check import Check, Finding
from tidemark_operator.inspection.facts import Facts
from tidemark_operator.inspection.text import Text


@dataclass(frozen=True, slots=True)
class Gap:
    """A check, or a part of one, that could not be made."""

    service: str
    """Empty: of the site."""
    why: Text


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one check."""

    check: Check
    findings: Sequence[Finding]
    gaps: Sequence[Gap]
    fine: Sequence[str]
    """Services with neither; one empty text for the site."""
    fine_means: Text
    """What may be said of those."""


@dataclass(frozen=True, slots=True)
class Report:
    """One inspection."""

    facts: Facts
    results: Sequence[Result]
    findings: Sequence[Finding] = field(default=())
    """Of all checks, the worst first, then by service."""


def inspect(facts: Facts, checks: Sequence[Check] = registry.CHECKS) -> Report:
    """All checks over all services."""
    results = [_result(check, facts) for check in checks]
    found = [finding for result in results for finding in result.findings]
    return Report(facts, results, sorted(found, key=lambda item: (item.severity.rank, item.service, item.pod)))


def _result(check: Check, facts: Facts) -> Result:
    findings: list[Finding] = []
    gaps: list[Gap] = []
    fine: list[str] = []
    if check.of_site is not None:
        _look(check.of_site(facts), "", findings, gaps, fine)
    if check.of_service is not None:
        for service in facts.services:
            _look(check.of_service(service, facts), service.title, findings, gaps, fine)
    without = any(service.title in fine and not check_.has_history(facts, service) for service in facts.services)
    means = check.fine_now if without and check.fine_now is not None else check.fine
    return Result(check, findings, gaps, fine, means)


def _look(found: Iterable[Finding], subject: str, findings: list[Finding], gaps: list[Gap], fine: list[str]) -> None:
    """`found` is a generator: what it yields before it gives up counts."""
    before = len(findings) + len(gaps)
    try:
        for finding in found:
            findings.append(finding)
    except check_.NotChecked as reason:
        gaps.append(Gap(subject, reason.why))
    if len(findings) + len(gaps) == before:
        fine.append(subject)
