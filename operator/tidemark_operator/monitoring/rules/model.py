"""What a rule is, before it becomes YAML: plain values, all of them final."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

ALERT_NAME = re.compile(r"Tidemark[A-Z][A-Za-z]+")


class Severity(StrEnum):
    """`critical`: somebody gets up for it. `warning`: somebody looks at it today. `info`: somebody should know."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Language(StrEnum):
    """Of runbooks."""

    EN = "en"
    ZH = "zh"


class About(StrEnum):
    """What a group watches: rules of a service are made once for each where they differ, those of the operator once."""

    SERVICE = "service"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. Its runbook is `runbooks/<language>/<name>.md`."""

    name: str
    expr: str
    for_seconds: int
    """How long the expression must hold."""
    severity: Severity
    summary: str
    """One line for a phone."""
    summary_zh: str
    """The same in Chinese."""
    description: str
    """With the numbers: what is seen, what the limit is, what to look at first."""
    keep_seconds: int = 0
    """Hysteresis: it goes on firing for so long after the expression ceased to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A series computed in advance. Its name says `level:metric:operation`."""

    record: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()
    help: str
    """For the table of the documentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, in this order: an alert may use what was recorded above it."""

    name: str
    about: About
    recording: tuple[RecordingRule, ...] = ()
    alerts: tuple[Alert, ...] = ()
    interval_seconds: int | None = None
    """None: as Prometheus is configured."""
