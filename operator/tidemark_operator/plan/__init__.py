"""Pure: an InferenceService and facts give the Kubernetes objects that should exist. No I/O, no client, no clock."""

from __future__ import annotations

from tidemark_operator.plan.capacity import Fit, fit
from tidemark_operator.plan.engine_config import build as engine_document
from tidemark_operator.plan.engine_config import config_hash, restart_hash, soft_limit
from tidemark_operator.plan.facts import Facts
from tidemark_operator.plan.precision import FIELD as MAP_FIELD
from tidemark_operator.plan.precision import Map
from tidemark_operator.plan.precision import read as read_map
from tidemark_operator.plan.wanted import to_yaml, wanted
from tidemark_operator.plan.watching import objects as monitoring

__all__ = [
    "MAP_FIELD",
    "Facts",
    "Fit",
    "Map",
    "config_hash",
    "engine_document",
    "fit",
    "monitoring",
    "read_map",
    "restart_hash",
    "soft_limit",
    "to_yaml",
    "wanted",
]
