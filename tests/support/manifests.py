"""Manifests for tests: a small one, a full one, and how to change one value."""

from __future__ import annotations

import copy
from typing import Any

from tidemark_operator import names

NOTHING = object()
"""Given to `changed`: the key is removed."""


def small(**spec: Any) -> dict[str, Any]:
    """The least that is valid, with `spec` on top."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "demo", "namespace": "team-a", "uid": "0f0f-11", "generation": 3},
        "spec": {
            "model": {"source": {"package": {"name": "smollm2-135m"}}},
            "hardware": {"resourceName": "cpu", "count": 2, "memory": "2Gi"},
            **spec,
        },
    }


def full() -> dict[str, Any]:
    """Every section set."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": "contracts",
            "namespace": "legal",
            "uid": "7f7f-22",
            "generation": 12,
            "labels": {"team": "legal"},
            "resourceVersion": "77",
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {
            "model": {
                "name": "contracts-7b",
                "source": {"pvc": {"claimName": "models", "path": "qwen2.5-7b"}},
                "weights": {"dtype": "bfloat16", "quantization": "none"},
                "maxContextTokens": 32768,
            },
            "hardware": {
                "resourceName": "nvidia.com/gpu",
                "count": 1,
                "memory": "24Gi",
                "nodeSelector": {"gpu": "true", "zone": "a", "disk": "1e3"},
                "tolerations": [
                    {"key": "example.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
                ],
                "runtimeClassName": "nvidia",
            },
            "replicas": 2,
            "kvCache": {
                "dtype": "int8",
                "blockSize": 32,
                "memoryUtilization": 0.85,
                "prefixCaching": True,
                "evictionPolicy": "lruBlock",
                "swapSpace": "8Gi",
                "precision": {"keepLayers": [0, 1], "keepHeads": {"7": [2]}},
            },
            "scheduler": {
                "policy": "continuous",
                "maxNumSeqs": 256,
                "maxNumBatchedTokens": 8192,
                "maxConcurrencySoft": 48,
                "longRequestTokens": 4096,
                "longRequestShare": 0.5,
                "agingSeconds": 20,
                "fairness": "apiKey",
                "preemption": {"policy": "priority", "mode": "auto", "maxPerRequest": 3},
                "targetStepSeconds": 0.1,
            },
            "watermarks": {"queue": 0.70, "preempt": 0.90, "hysteresis": 0.05, "response": "tighten"},
            "overload": {
                "maxQueuedRequests": 512,
                "maxQueuedTokens": 2000000,
                "maxQueueSeconds": 30,
                "retryShare": 0.1,
                "degrade": [
                    {"at": "queue", "keys": ["batch", "night.jobs"], "maxTokens": 512},
                    {"at": "preempt", "maxPriority": -1, "maxRequests": 2},
                ],
            },
            "speculative": {"method": "ngram", "tokens": 4},
            "rollout": {
                "strategy": "auto",
                "drainSeconds": 30,
                "progressDeadlineSeconds": 600,
                "autoRollback": True,
                "canary": {"steps": [5, 25, 100], "holdSeconds": 300, "gate": {"maxErrorRatio": 0.02}},
            },
            "evaluation": {"schedule": "0 3 * * 0", "maxKl": 0.02, "maxPerplexityRise": 0.01},
            "access": {
                "apiKeysSecretRef": {"name": "keys"},
                "tlsSecretRef": {"name": "tls"},
                "allowFrom": [{"namespaceSelector": {"matchLabels": {"team": "apps"}}}],
            },
            "monitoring": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "runbookBaseUrl": "https://wiki.example.com/runbooks",
            },
            "podTemplate": {
                "env": [
                    {"name": "SWITCH", "value": "on"},
                    {"name": "OCTAL", "value": "0123"},
                    {"name": "FLOAT", "value": "1e3"},
                    {"name": "NULL", "value": "null"},
                    {"name": "EMPTY", "value": ""},
                    {"name": "ODD", "value": 'a "quoted"\nline {{ x }}'},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "labels": {"cost-centre": "0042", "spot": "true"},
                "annotations": {"example.com/note": "yes"},
                "resources": {"requests": {"memory": "32Gi", "cpu": "4"}, "limits": {"memory": "32Gi"}},
                "priorityClassName": "batch",
                "imagePullSecrets": [{"name": "registry"}],
            },
            "suspend": False,
        },
    }


def changed(path: str, value: Any, document: dict[str, Any] | None = None) -> dict[str, Any]:
    """A copy with the value at `path` (`spec.podTemplate.env.0.name`) replaced, or removed."""
    made = copy.deepcopy(small() if document is None else document)
    *parents, last = path.split(".")
    here: Any = made
    for part in parents:
        here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
    if value is NOTHING:
        del here[last]
    elif isinstance(here, list):
        here[int(last)] = value
    else:
        here[last] = value
    return made
