"""The Service: one address for all replicas."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import objects


def build(service: api.InferenceService) -> dict[str, Any]:
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
                    "port": names.SERVICE_PORT,
                    "protocol": "TCP",
                    "targetPort": names.PORT_NAME,
                    "appProtocol": "http",
                }
            ],
        },
    }
