"""The engine's container: command, environment, probes, resources."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import engine_config, layout, volumes
from tidemark_operator.plan import facts as facts_
from tidemark_runtime.contract import http

START_SECONDS = 120
"""Until the HTTP server listens. Loading the model comes after that and is no matter of liveness."""


def build(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> dict[str, Any]:
    scheme = engine.scheme.upper()
    return {
        "name": names.CONTAINER,
        "image": facts.image,
        "imagePullPolicy": facts.image_pull_policy,
        "command": ["tidemark"],
        "args": ["serve", "--config", layout.CONFIG_PATH],
        "env": _environment(service, facts),
        "ports": [{"name": names.PORT_NAME, "containerPort": http.CONTAINER_PORT, "protocol": "TCP"}],
        "resources": _resources(service.spec),
        "startupProbe": _probe(http.LIVE_PATH, scheme, period=2, failures=START_SECONDS // 2),
        "readinessProbe": _probe(http.READY_PATH, scheme, period=2, failures=1),
        "livenessProbe": _probe(http.LIVE_PATH, scheme, period=10, failures=3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": volumes.mounts(service, engine, facts),
    }


def _environment(service: api.InferenceService, facts: facts_.Facts) -> list[dict[str, Any]]:
    """Ours first, so that a site's variables of the same name win, as Kubernetes takes the last."""
    ours = {"TRITON_CACHE_DIR": f"{layout.CACHE_DIR}/triton"}
    if volumes.has_model_store(service, facts):
        ours[names.MODEL_STORE_VARIABLE] = layout.STORE_DIR
    theirs = service.spec.pod_template.env
    named = {item.name for item in theirs}
    made: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in ours.items() if key not in named]
    for item in theirs:
        if item.value_from is not None:
            made.append({"name": item.name, "valueFrom": item.value_from.model_dump(by_alias=True, exclude_none=True)})
        else:
            made.append({"name": item.name, "value": item.value or ""})
    return made


def _resources(spec: api.Spec) -> dict[str, dict[str, str]]:
    """Requests equal limits: an engine that is throttled or evicted serves nobody."""
    hardware, own = spec.hardware, spec.pod_template.resources
    amounts = {hardware.resource_name: str(hardware.count)}
    if hardware.resource_name == "cpu" and hardware.memory:
        amounts["memory"] = hardware.memory
    return {
        "requests": dict(sorted({**amounts, **own.requests}.items())),
        "limits": dict(sorted({**amounts, **own.limits}.items())),
    }


def _probe(path: str, scheme: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": names.PORT_NAME, "scheme": scheme},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }
