"""What a plan needs to know beside the spec: the image, and where things lie inside a pod."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.monitoring.rules.thresholds import RUNBOOK_BASE_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Observed or configured by whoever asks for a plan."""

    image: str
    """Container image of the engine."""
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets that every engine pod pulls its image with, beside those its own spec names."""
    spare_device: bool | None = None
    """Whether a pod more than now would find a device; None: not known. Decides rollout strategy `auto`."""
    admin_token: str = ""
    """What `/admin` of this service's engines asks for; it is written into a Secret and never read back."""
    operator_namespace: str | None = None
    """Where the operator runs: a NetworkPolicy must let it in. None: outside the cluster."""
    model_store_host_path: str | None = None
    """Folder on every node with models that `tidemark models` fetched; None: the image holds them."""
    monitoring_labels: tuple[tuple[str, str], ...] = ()
    """On what Prometheus and Grafana select by labels, beside those of the service's own spec."""
    monitoring_namespaces: tuple[str, ...] = ()
    """Where Prometheus runs: a NetworkPolicy must let it in."""
    runbook_base_url: str = RUNBOOK_BASE_URL
    """Where alerts find their runbooks, unless the service's own spec says otherwise."""
