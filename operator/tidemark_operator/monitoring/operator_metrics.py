"""Every metric that the operator exports: name, kind, unit, labels, meaning, and where it is set.

Rules, dashboards and the page `docs/reference/operator-metrics.md` read this table; `cluster.kubernetes.metrics` makes
the families from it and nothing else; `where` is a file under `operator/tidemark_operator/`. Pure.
"""

from __future__ import annotations

from tidemark_runtime.contract import metrics

PREFIX = f"{metrics.PREFIX}operator_"
SERVICE = ("namespace", "service")
"""Labels of a series about one service. It vanishes with the service."""

_COUNTER, _GAUGE, _HISTOGRAM = metrics.Kind.COUNTER, metrics.Kind.GAUGE, metrics.Kind.HISTOGRAM
_SERIES = "cluster/kubernetes/service_series.py"
_COUNTS = "cluster/kubernetes/service_counts.py"

API_REQUESTS = metrics.Metric(
    name=f"{PREFIX}api_requests_total",
    kind=_COUNTER,
    unit="requests",
    labels=("verb", "kind", "code"),
    help="Requests to the API server; code 0: no answer.",
    where="cluster/kubernetes/connection.py",
)
CACHED_OBJECTS = metrics.Metric(
    name=f"{PREFIX}cached_objects",
    kind=_GAUGE,
    unit="objects",
    labels=("kind",),
    help="Objects held in memory.",
    where="cluster/kubernetes/cache.py",
)
ENGINE_RESTARTS = metrics.Metric(
    name=f"{PREFIX}engine_restarts_total",
    kind=_COUNTER,
    unit="restarts",
    labels=SERVICE,
    help="Engines that ended and were started again in their pod, since this process began to watch.",
    where=_COUNTS,
)
EVALUATION_INTERVAL = metrics.Metric(
    name=f"{PREFIX}evaluation_interval_seconds",
    kind=_GAUGE,
    unit="seconds",
    labels=SERVICE,
    help="Longest time between two evaluations by the schedule; there is no series without a schedule.",
    where=_SERIES,
)
EVALUATION_PASSED = metrics.Metric(
    name=f"{PREFIX}evaluation_passed",
    kind=_GAUGE,
    unit="state",
    labels=SERVICE,
    help="1 when the last evaluation kept to its limits, 0 when it did not; there is no series before the first.",
    where=_SERIES,
)
EVALUATION_TIME = metrics.Metric(
    name=f"{PREFIX}evaluation_timestamp_seconds",
    kind=_GAUGE,
    unit="seconds",
    labels=SERVICE,
    help="When the last evaluation ended, since 1970; there is no series before the first.",
    where=_SERIES,
)
EVENTS_DROPPED = metrics.Metric(
    name=f"{PREFIX}events_dropped_total",
    kind=_COUNTER,
    unit="events",
    labels=("reason",),
    help="Events that were not recorded, by reason.",
    where="cluster/kubernetes/recorder.py",
)
LEADER = metrics.Metric(
    name=f"{PREFIX}leader",
    kind=_GAUGE,
    unit="state",
    help="1 in the process that holds the lease and works, 0 in one that waits.",
    where="commands/operator_process.py",
)
QUEUE_DEPTH = metrics.Metric(
    name=f"{PREFIX}queue_depth",
    kind=_GAUGE,
    unit="services",
    help="Services that wait for a pass, those of a later time included.",
    where="reconcile/queue.py",
)
RECONCILE_DURATION = metrics.Metric(
    name=f"{PREFIX}reconcile_duration_seconds",
    kind=_HISTOGRAM,
    unit="seconds",
    help="One pass over one service.",
    where="commands/operator_passes.py",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
RECONCILES = metrics.Metric(
    name=f"{PREFIX}reconciles_total",
    kind=_COUNTER,
    unit="passes",
    labels=("result",),
    help="Passes, by result: done, gone, failed.",
    where="commands/operator_passes.py",
)
REPLICAS = metrics.Metric(
    name=f"{PREFIX}replicas",
    kind=_GAUGE,
    unit="pods",
    labels=(*SERVICE, "state"),
    help="Pods by state: wanted (0 while suspended), ready (they answer), updated (they have the current spec; no "
    "series until the cluster has seen the last change).",
    where=_SERIES,
)
ROLLBACKS = metrics.Metric(
    name=f"{PREFIX}rollbacks_total",
    kind=_COUNTER,
    unit="rollbacks",
    labels=SERVICE,
    help="Revisions that failed and were replaced by the last good one, since this process leads.",
    where=_COUNTS,
)
SERVICE_CONDITION = metrics.Metric(
    name=f"{PREFIX}service_condition",
    kind=_GAUGE,
    unit="state",
    labels=(*SERVICE, "condition", "status"),
    help="1 for the value that a condition of a service has, 0 for the two it has not.",
    where=_SERIES,
)
SERVICE_REASON = metrics.Metric(
    name=f"{PREFIX}service_reason",
    kind=_GAUGE,
    unit="info",
    labels=(*SERVICE, "condition", "reason"),
    help="1 for the reason of each condition that is not as it should be, in one word such as OutOfMemory.",
    where=_SERIES,
)
TIGHTENED = metrics.Metric(
    name=f"{PREFIX}soft_limit_tightened",
    kind=_GAUGE,
    unit="state",
    labels=SERVICE,
    help="1 while memory pressure holds the limit of running requests below that of the spec (response: tighten).",
    where=_SERIES,
)
WATCH_AGE = metrics.Metric(
    name=f"{PREFIX}watch_age_seconds",
    kind=_GAUGE,
    unit="seconds",
    labels=("kind",),
    help="Since a watch of this kind was last known to work.",
    where="cluster/kubernetes/activity.py",
)

OF_PROCESS = (
    LEADER,
    RECONCILES,
    RECONCILE_DURATION,
    QUEUE_DEPTH,
    WATCH_AGE,
    CACHED_OBJECTS,
    API_REQUESTS,
    EVENTS_DROPPED,
)
"""Of one process of the operator."""
OF_SERVICE = (
    SERVICE_CONDITION,
    SERVICE_REASON,
    REPLICAS,
    ENGINE_RESTARTS,
    ROLLBACKS,
    TIGHTENED,
    EVALUATION_TIME,
    EVALUATION_PASSED,
    EVALUATION_INTERVAL,
)
"""Of each service, exported by the process that leads."""
TABLE = OF_PROCESS + OF_SERVICE
"""All of them."""
