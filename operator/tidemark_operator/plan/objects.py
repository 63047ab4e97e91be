"""What all objects share: metadata with names, labels and the owner."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import facts as facts_


def metadata(service: api.InferenceService, name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Metadata of a child. Without a uid (`tidemark render`) there is no owner to refer to."""
    made: dict[str, Any] = {"name": name}
    if service.metadata.namespace:
        made["namespace"] = service.metadata.namespace
    made["labels"] = names.labels(service.name)
    if annotations:
        made["annotations"] = dict(sorted(annotations.items()))
    if service.metadata.uid:
        made["ownerReferences"] = [owner(service)]
    return made


def monitoring_metadata(service: api.InferenceService, name: str, facts: facts_.Facts) -> dict[str, Any]:
    """Of a child that Prometheus or Grafana select by a site's labels (B081): the operator's, then the service's."""
    made = metadata(service, name)
    sites = {**dict(facts.monitoring_labels), **service.spec.monitoring.labels}
    made["labels"] = {**dict(sorted(sites.items())), **made["labels"]}
    return made


def owner(service: api.InferenceService) -> dict[str, Any]:
    """The reference by which the cluster deletes children together with the service."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": service.name,
        "uid": service.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
