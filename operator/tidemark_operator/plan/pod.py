"""The pod template: one engine container under the restricted Pod Security level."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import container, engine_config, volumes
from tidemark_operator.plan import facts as facts_

GRACE_AFTER_DRAIN_SECONDS = 15
"""Between the end of draining and SIGKILL: the last answers leave, the engine process ends."""
USER_ID = 65532
"""As `nonroot` of the usual base images; any other number would do."""


def template(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> dict[str, Any]:
    """Changes only with what needs a new process: hot settings live in the ConfigMap alone."""
    own = service.spec.pod_template
    return {
        "metadata": {
            "labels": {**dict(sorted(own.labels.items())), **names.labels(service.name)},
            "annotations": {
                **dict(sorted(own.annotations.items())),
                names.RESTART_HASH_ANNOTATION: engine.restart_hash,
            },
        },
        "spec": _spec(service, engine, facts),
    }


def _spec(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> dict[str, Any]:
    spec, own = service.spec, service.spec.pod_template
    made: dict[str, Any] = {
        "serviceAccountName": own.service_account_name or names.service_account(service.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": _grace_seconds(spec),
        "containers": [container.build(service, engine, facts)],
        "volumes": volumes.build(service, engine, facts),
    }
    optional = {
        "nodeSelector": dict(sorted(spec.hardware.node_selector.items())),
        "tolerations": [_toleration(item) for item in spec.hardware.tolerations],
        "runtimeClassName": spec.hardware.runtime_class_name,
        "priorityClassName": own.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in _pull_secrets(service, facts)],
    }
    made.update({key: value for key, value in optional.items() if value})
    return made


def _grace_seconds(spec: api.Spec) -> int:
    """No preStop hook: the engine itself goes on serving for a while after SIGTERM."""
    return engine_config.LAME_DUCK_SECONDS + spec.rollout.drain_seconds + GRACE_AFTER_DRAIN_SECONDS


def _pull_secrets(service: api.InferenceService, facts: facts_.Facts) -> list[str]:
    """Those of the operator and those of the service, each once."""
    own = [item.name for item in service.spec.pod_template.image_pull_secrets]
    return list(dict.fromkeys([*facts.image_pull_secrets, *own]))


def _toleration(item: api.Toleration) -> dict[str, Any]:
    return item.model_dump(by_alias=True, exclude_none=True)
