"""Every check, in the order in which a person would look."""

from __future__ import annotations

from tidemark_operator.inspection.check import Check, Query
from tidemark_operator.inspection.checks import (
    alerts,
    answers,
    conditions,
    devices,
    drift,
    evaluation,
    expiry,
    fragmentation,
    kernels,
    limits,
    lines,
    lossy,
    operator,
    plan_measured,
    refused,
    restarts,
    suspended,
    targets,
    trend,
)

CHECKS: tuple[Check, ...] = (
    conditions.CHECK,
    answers.CHECK,
    alerts.CHECK,
    lines.CHECK,
    restarts.MEMORY_CHECK,
    restarts.RESTARTS_CHECK,
    kernels.CHECK,
    plan_measured.CHECK,
    trend.FILL_CHECK,
    trend.WAIT_CHECK,
    fragmentation.CHECK,
    limits.CHECK,
    drift.CHECK,
    refused.CHECK,
    suspended.CHECK,
    evaluation.CHECK,
    lossy.CHECK,
    expiry.CERTIFICATE_CHECK,
    expiry.KEY_CHECK,
    devices.CHECK,
    targets.CHECK,
    operator.CHECK,
)


def queries(checks: tuple[Check, ...] = CHECKS) -> tuple[Query, ...]:
    """Each question once, whoever needs it."""
    return tuple({query.name: query for check in checks for query in check.queries}.values())
