"""The Service: one address for all replicas."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import engine_config, objects

TLS_PORT = 443


def build(service: api.InferenceService, engine: engine_config.Engine) -> dict[str, Any]:
    """Plain HTTP on `names.SERVICE_PORT`, HTTPS on 443, so that a URL needs no port."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": objects.metadata(service, names.service(service.name)),
        "spec": {
            "type": "ClusterIP",
            "selector": names.selector(service.name),
            "ports": [
                {
                    "name": names.PORT_NAME,
                    "port": TLS_PORT if engine.scheme == "https" else names.SERVICE_PORT,
                    "protocol": "TCP",
                    "targetPort": names.PORT_NAME,
                    "appProtocol": engine.scheme,
                }
            ],
        },
    }
