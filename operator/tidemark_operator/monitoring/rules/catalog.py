"""All rules together, and which of them a file holds."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.monitoring.rules import alerts, conditions, recording, services
from tidemark_operator.monitoring.rules.model import About, Alert, Group
from tidemark_operator.monitoring.rules.thresholds import Thresholds


def groups(thresholds: Thresholds, about: About | None = None) -> tuple[Group, ...]:
    """What is recorded comes before what reads it. `about` None: those of services and of the operator."""
    every = (conditions.group(), services.group(), *recording.groups(thresholds), *alerts.groups(thresholds))
    return tuple(group for group in every if about in (None, group.about))


def alerts_of(found: Iterable[Group]) -> tuple[Alert, ...]:
    """In the order of the groups."""
    return tuple(alert for group in found for alert in group.alerts)
