"""What the reconcile loop saw, as plain data, before a status is computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark_operator.status import conditions
from tidemark_operator.status import tightening as tightening_
from tidemark_runtime.contract.status import EngineStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Deployment and pods have Kubernetes' own shapes."""

    deployment: Mapping[str, Any] | None = None
    pods: Sequence[Mapping[str, Any]] = ()
    engines: Mapping[str, EngineStatus | None] = field(default_factory=dict)
    """Pod name -> its `/status` document; None: it did not answer."""
    complaints: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """Pod name -> reason and message of the cluster's warnings about a pod that waits for its volumes."""
    wanted_hash: str | None = None
    """`plan.config_hash`: what the engines should report."""
    restart_hash: str | None = None
    """`plan.restart_hash`: what an evaluation should have been of."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Pod name -> why its engine refused the configuration."""
    fits: bool | None = None
    """What the plan says before any pod exists; None: not known."""
    fit_message: str = ""
    """The sum; empty: it was not asked."""
    fit_reason: str = ""
    """Why there is no sum, where the precision map in a ConfigMap is the reason (`plan.precision`)."""
    paused: bool = False
    """The operator leaves the service alone."""
    failed: str = ""
    """Why the rollout of this spec failed; empty: it did not."""
    running_revision: int | None = None
    """Number of the last good revision, where the pods were given that instead of this spec."""
    retry: str = ""
    """What makes the operator try this spec again."""
    url: str | None = None
    """Where clients reach the service."""
    memory_pressure: conditions.Condition | None = None
    """None: nobody has looked."""
    tightened: tightening_.Tightened | None = None
    """The soft limit in place of the spec's; None: the spec's."""
    evaluation: Mapping[str, Any] | None = None
    """`status.evaluation`; None: no schedule asks for it."""
    monitoring: conditions.Condition | None = None
    """None: it is off."""
    warnings: Sequence[str] = ()
    """Sentences of `effects.unsupported` and of whoever observed."""
