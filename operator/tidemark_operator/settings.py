"""Times and limits of the operator itself. Those of a service stand in its manifest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How often one object, and all together, may be reconciled."""

    min_interval_seconds: float = 0.2
    """Between two starts of the same key: a burst of child events becomes one pass."""
    backoff_seconds: float = 0.5
    """Before the first retry of a failed pass; doubles with each failure."""
    max_backoff_seconds: float = 60.0
    """A service that stays broken is looked at once a minute, so that the end of a fault is seen soon."""
    jitter_ratio: float = 0.2
    """Share of a retry's delay that is random, so that many failing services do not retry in step."""
    rate_per_second: float = 50.0
    """Passes of all keys together, on average: a thousand services that are as they should be are looked at within
    20 seconds of a start. A pass that finds nothing to do asks the API server nothing."""
    burst: int = 100
    """Passes of all keys together, at once."""
    max_concurrency: int = 4
    """Passes at the same time, each of another key."""
    urgent_in_a_row: int = 9
    """Passes because something happened, after which one that only looks again has its turn: however many services are
    in trouble, a tenth of the passes looks after the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How engines are asked for their status."""

    timeout_seconds: float = 2.0
    """One question, connection included."""
    max_concurrency: int = 8
    """Questions at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """How often a service is looked at although nothing happened."""

    unready_seconds: float = 1.0
    """While it is not Ready: loading progress is shown to somebody who waits."""
    patience_ratio: float = 0.1
    """... but a service that has not been Ready for long is looked at after this share of that time,"""
    max_unready_seconds: float = 30.0
    """... and at least so often. Everything but the engines' own words comes as an event anyway."""
    ready_seconds: float = 5.0
    """While it is Ready: queue and memory figures in status are at most this old."""
    volume_patience_seconds: float = 5.0
    """How long a pod may wait for its volumes before it is asked what they lack."""
    read_map_seconds: float = 30.0
    """Before a ConfigMap with a precision map is read again: it is not ours, and its changes come as no events."""
    push_again_seconds: float = 60.0
    """Before an engine that refused a configuration is given the same again."""
    rewrite_secrets_seconds: float = 3600.0
    """The operator may not read Secrets, so it cannot see that one was deleted or changed; it writes them anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The local backend of `tidemark up`, which stands for scheduler, kubelet and controllers."""

    probe_seconds: float = 0.5
    """Longest time between two probes, whatever the pod says: a pod of this machine should be Ready at once."""
    restart_backoff_seconds: float = 1.0
    """Before the first restart of a container that ended; doubles with each end (a kubelet takes 10)."""
    max_restart_backoff_seconds: float = 60.0
    """The longest wait before a restart (a kubelet takes 300)."""
    restart_reset_seconds: float = 120.0
    """A container that ran so long begins again with the first back-off."""
    log_bytes: int = 8 * 1024 * 1024
    """Size at which a pod's log starts over; one older file is kept beside it."""
    connect_seconds: float = 2.0
    """How long the proxy waits for a pod to accept a connection before it tries the next."""
    max_events: int = 200
    """Events kept in memory, the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """How the operator talks to an API server."""

    connect_seconds: float = 5.0
    """One connection, TLS included."""
    request_seconds: float = 15.0
    """One request that reads or writes one object."""
    list_seconds: float = 60.0
    """One page of a list."""
    list_page: int = 200
    """Objects of one page: as JSON they take ten times the memory that the cache has them in."""
    watch_seconds: int = 120
    """The API server ends a watch after this and it is opened anew: a watch that is quiet proves that it works."""
    watch_inactivity_seconds: float = 70.0
    """A watch without an event or bookmark for so long is dropped and opened anew; bookmarks come once a minute."""
    watch_age_limit_seconds: float = 270.0
    """`/health/live` fails when a watch was not known to work for so long: two openings and some patience."""
    resync_seconds: float = 600.0
    """Between two comparisons of the cache with lists; finds what no watch told. Reads only."""
    resync_jitter_ratio: float = 0.2
    """Share of it that is random, so that operators do not list together."""
    relist_delay_seconds: float = 2.0
    """Between a watch that had to begin anew with a list, and the comparison that this makes necessary."""
    optional_kinds_seconds: float = 30.0
    """Between two looks whether the cluster has got a kind that is not part of Kubernetes, such as PodMonitor."""
    nodes_seconds: float = 5.0
    """How long an answer about spare devices is used again."""
    pod_events_seconds: float = 10.0
    """How long what was read of a pod's events is used again."""
    drain_seconds: float = 20.0
    """At the end: how long running passes may take to finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Leadership; the numbers of Kubernetes' own controllers."""

    duration_seconds: int = 15
    """A lease that was not renewed for so long may be taken by another operator."""
    renew_seconds: float = 2.0
    """Between two renewals."""
    try_seconds: float = 4.0
    """One try to renew. After that it is made anew, on another connection: two fit between a renewal that is due and
    the deadline, so that one answer that never comes ends nobody."""
    deadline_seconds: float = 10.0
    """A leader that could not renew for so long ends: before anybody else may begin."""
    retry_seconds: float = 2.0
    """Between the starts of two tries, and between two looks of an operator that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """How many events one object, and all together, may have written."""

    queue: int = 256
    """Events that wait to be written; more are dropped and counted."""
    object_burst: int = 10
    """Writes about one object, at once."""
    object_per_second: float = 1 / 30
    """Writes about one object, on average."""
    burst: int = 50
    """Writes about all objects, at once."""
    per_second: float = 5.0
    """Writes about all objects, on average."""
    remembered: int = 1000
    """Events whose repetition raises a count instead of making a new one."""
    forget_seconds: float = 3000.0
    """After so long a repetition is a new event: the API server forgets events after an hour."""
