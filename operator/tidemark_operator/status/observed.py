"""What the reconcile loop saw, as plain data, before a status is computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark_runtime.contract.status import EngineStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Deployment and pods have Kubernetes' own shapes."""

    deployment: Mapping[str, Any] | None = None
    pods: Sequence[Mapping[str, Any]] = ()
    engines: Mapping[str, EngineStatus | None] = field(default_factory=dict)
    """Pod name -> its `/status` document; None: it did not answer."""
    wanted_hash: str | None = None
    """`plan.config_hash`: what the engines should report."""
    url: str | None = None
    """Where clients reach the service."""
    warnings: Sequence[str] = ()
    """Sentences of `effects.unsupported` and of whoever observed."""
