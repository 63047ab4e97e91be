"""The Deployment: how many pods, and how they are replaced."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import engine_config, objects, pod
from tidemark_operator.plan import facts as facts_


def build(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": objects.metadata(service, names.deployment(service.name)),
        "spec": {
            **_replicas(service),
            "selector": {"matchLabels": names.selector(service.name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _strategy(service.spec, facts)},
            "progressDeadlineSeconds": service.spec.rollout.progress_deadline_seconds,
            "revisionHistoryLimit": 3,
            "template": pod.template(service, engine, facts),
        },
    }


def _replicas(service: api.InferenceService) -> dict[str, int]:
    """Nothing where an autoscaler decides: whoever writes the number beside it takes its pods away (B071)."""
    if service.spec.autoscaling is not None and not service.spec.suspend:
        return {}
    return {"replicas": service.replicas}


def _strategy(spec: api.Spec, facts: facts_.Facts) -> dict[str, int]:
    """auto: a new pod first where it will find its device, else the old one first, so one GPU is no deadlock."""
    surge = spec.rollout.strategy == "surge"
    if spec.rollout.strategy == "auto":
        surge = spec.hardware.resource_name == "cpu" if facts.spare_device is None else facts.spare_device
    return {"maxSurge": 1, "maxUnavailable": 0} if surge else {"maxSurge": 0, "maxUnavailable": 1}
