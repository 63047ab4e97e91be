"""The PodMonitor: the Prometheus operator makes a scrape of it, as the rules and dashboards expect one."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.monitoring import site
from tidemark_operator.plan import engine_config, objects
from tidemark_operator.plan import facts as facts_
from tidemark_runtime.contract import http


def build(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> dict[str, Any]:
    """Every pod of the service is one target of job `tidemark-engine`. The Prometheus operator itself sets `namespace`
    and `pod`, and a job of its own, which ours takes the place of."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": objects.monitoring_metadata(service, names.pod_monitor(service.name), facts),
        "spec": {
            "selector": {"matchLabels": names.selector(service.name)},
            "podMetricsEndpoints": [_endpoint(service, engine.scheme)],
        },
    }


def _endpoint(service: api.InferenceService, scheme: str) -> dict[str, Any]:
    """With TLS the certificate is not verified: Prometheus connects to a pod's address, which no certificate names, and
    whether the Secret holds the issuer's certificate is not known here. Nothing secret is sent to `/metrics`."""
    return {
        "port": names.PORT_NAME,
        "path": http.METRICS_PATH,
        "scheme": scheme,
        **({"tlsConfig": {"insecureSkipVerify": True}} if scheme == "https" else {}),
        "relabelings": [
            {"targetLabel": "job", "replacement": site.ENGINE_JOB},
            {"targetLabel": "service", "replacement": service.name},
        ],
    }
