"""One file a topic; `groups` has them all, in the order in which somebody on call reads them."""

from __future__ import annotations

from tidemark_operator.monitoring.rules.alerts import (
    configuration,
    device,
    engine,
    evaluation,
    expiry,
    memory,
    operator,
    requests,
    service,
)
from tidemark_operator.monitoring.rules.model import Group
from tidemark_operator.monitoring.rules.thresholds import Thresholds


def groups(thresholds: Thresholds) -> tuple[Group, ...]:
    """Every group with alerts."""
    topics = (service, memory, engine, device, requests, configuration, expiry, evaluation, operator)
    return tuple(topic.group(thresholds) for topic in topics)
