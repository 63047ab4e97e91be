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
    rate_per_second: float = 20.0
    """Passes of all keys together, on average."""
    burst: int = 40
    """Passes of all keys together, at once."""
    max_concurrency: int = 4
    """Passes at the same time, each of another key."""


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
    ready_seconds: float = 5.0
    """While it is Ready: queue and memory figures in status are at most this old."""


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
