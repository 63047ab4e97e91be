"""The ServiceAccount of the pods: an identity without rights and without a token."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import objects


def build(service: api.InferenceService) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": objects.metadata(service, names.service_account(service.name)),
        "automountServiceAccountToken": False,
    }
