"""Pure: what was observed gives the status of an InferenceService. No I/O, no clock of its own."""

from __future__ import annotations

from tidemark_operator.status.compute import compute, invalid
from tidemark_operator.status.conditions import Condition, timestamp
from tidemark_operator.status.finding import Finding
from tidemark_operator.status.findings import of_pod as finding_of
from tidemark_operator.status.observed import Observed
from tidemark_operator.status.rollout import Rollout
from tidemark_operator.status.rollout import read as rollout

__all__ = ["Condition", "Finding", "Observed", "Rollout", "compute", "finding_of", "invalid", "rollout", "timestamp"]
