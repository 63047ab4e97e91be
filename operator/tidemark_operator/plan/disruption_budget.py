"""The PodDisruptionBudget: a drain of nodes takes one pod of the service at a time."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import objects


def helps(service: api.InferenceService) -> bool:
    """Whether there is more than one pod to take in turns. With one, a budget either says nothing or blocks the drain
    of its node for ever."""
    spec = service.spec
    most = spec.autoscaling.max if spec.autoscaling is not None else spec.replicas or 1
    return most > 1


def build(service: api.InferenceService) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": objects.metadata(service, names.disruption_budget(service.name)),
        "spec": {
            "selector": {"matchLabels": names.selector(service.name)},
            "maxUnavailable": 1,
            # Pods that serve nobody may always go: one that crashes again and again must not keep a node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
