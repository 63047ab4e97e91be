"""Pure: an InferenceService and facts give the Kubernetes objects that should exist. No I/O, no client, no clock."""

from __future__ import annotations

from tidemark_operator.plan.facts import Facts
from tidemark_operator.plan.wanted import config_hash, to_yaml, wanted

__all__ = ["Facts", "config_hash", "to_yaml", "wanted"]
