"""The CronJob that compares what a service quantizes with the unquantized model."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, effects, names
from tidemark_operator.api import operations
from tidemark_operator.plan import engine_config, layout, objects, pod, volumes
from tidemark_operator.plan import facts as facts_

DEADLINE_SECONDS = 6 * 3600
"""A run that takes longer, waiting for a device included, has failed."""
LATE_SECONDS = 3600
"""A run that could not begin for so long is left out."""
VERDICT_PATH = "/dev/termination-log"
"""Where Kubernetes takes a container's last words from: the pod needs no right to write anywhere."""
_NOT_MOUNTED = frozenset({"admin", "api-keys", "tls"})
"""Secrets of the server: nobody connects to this pod."""


def build(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> dict[str, Any] | None:
    """None where no schedule asks for it, or nothing is quantized.

    The pod asks for what one engine's pod asks for, a device too: without a spare one it waits for `DEADLINE_SECONDS`
    and has failed then, of which `TidemarkEvaluationFailed` tells.
    """
    wanted = service.spec.evaluation
    if wanted is None or wanted.schedule is None or not effects.is_quantized(service):
        return None
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": objects.metadata(service, names.evaluation(service.name)),
        "spec": {
            "schedule": wanted.schedule,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": LATE_SECONDS,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "suspend": service.spec.suspend,
            "jobTemplate": {
                "metadata": {"labels": names.labels(service.name)},
                "spec": {
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": DEADLINE_SECONDS,
                    "template": _template(service, engine, facts, wanted),
                },
            },
        },
    }


def _template(
    service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts, wanted: operations.Evaluation
) -> dict[str, Any]:
    """An engine's pod with another command, that no Service sends requests to and no Deployment counts."""
    template = pod.template(service, engine, facts)
    (container,) = template["spec"]["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe", "ports"):
        del container[probe]
    container["args"] = [
        *("eval", "configuration", layout.CONFIG_PATH),
        *("--max-kl", f"{wanted.max_kl:g}", "--max-perplexity-rise", f"{wanted.max_perplexity_rise:g}"),
        *("--results", f"{layout.CACHE_DIR}/evaluation", "--verdict-file", VERDICT_PATH),
    ]
    container["volumeMounts"] = [item for item in container["volumeMounts"] if item["name"] not in _NOT_MOUNTED]
    made = {**template["spec"], "restartPolicy": "Never", "terminationGracePeriodSeconds": 10}
    made["volumes"] = [item for item in volumes.build(service, engine, facts) if item["name"] not in _NOT_MOUNTED]
    return {"metadata": {"labels": names.evaluation_labels(service.name)}, "spec": made}
