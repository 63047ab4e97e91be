"""What a plan needs to know beside the spec: the image, and where things lie inside a pod."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Observed or configured by whoever asks for a plan."""

    image: str
    """Container image of the engine."""
    image_pull_policy: str = "IfNotPresent"
    spare_device: bool | None = None
    """Whether a pod more than now would find a device; None: not known. Decides rollout strategy `auto`."""
    model_store_host_path: str | None = None
    """Folder on every node with models that `tidemark models` fetched; None: the image holds them."""
