"""Names of what the operator exports. They are made in `cluster`, above this layer, so a test compares the two."""

from __future__ import annotations

from tidemark_runtime.contract import metrics

_OPERATOR = f"{metrics.PREFIX}operator_"

API_REQUESTS = f"{_OPERATOR}api_requests_total"
LEADER = f"{_OPERATOR}leader"
RECONCILES = f"{_OPERATOR}reconciles_total"
RECONCILE_DURATION = f"{_OPERATOR}reconcile_duration_seconds"
SERVICE_CONDITION = f"{_OPERATOR}service_condition"
WATCH_AGE = f"{_OPERATOR}watch_age_seconds"
EVENTS_DROPPED = f"{_OPERATOR}events_dropped_total"
