"""Pure: what was observed gives the status of an InferenceService. No I/O, no clock of its own."""

from __future__ import annotations

from tidemark_operator.status.compute import compute, invalid
from tidemark_operator.status.observed import Observed

__all__ = ["Observed", "compute", "invalid"]
