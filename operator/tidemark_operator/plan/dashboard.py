"""The dashboard of one service: a ConfigMap, and where Grafana's operator is, an object that leads there."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tidemark_operator import api, names
from tidemark_operator.monitoring import dashboard_files
from tidemark_operator.plan import facts as facts_
from tidemark_operator.plan import objects


def config_map(service: api.InferenceService, facts: facts_.Facts, *, labelled: bool) -> dict[str, Any]:
    """The overview, set to this service. `labelled`: Grafana's sidecar is to find it. Of two that bring the same
    dashboard into one Grafana neither can change it, so next to a `grafana_dashboard` it is not."""
    metadata = objects.monitoring_metadata(service, names.dashboard(service.name), facts)
    if labelled:
        metadata["labels"] = {names.DASHBOARD_LABEL: "1", **metadata["labels"]}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {names.DASHBOARD_FILE: _content(service, facts)},
    }


def grafana_dashboard(service: api.InferenceService, facts: facts_.Facts) -> dict[str, Any]:
    """For every Grafana that its operator keeps, in whichever namespace."""
    return {
        "apiVersion": "grafana.integreatly.org/v1beta1",
        "kind": "GrafanaDashboard",
        "metadata": objects.monitoring_metadata(service, names.dashboard(service.name), facts),
        "spec": {
            "instanceSelector": {},
            "allowCrossNamespaceImport": True,
            "configMapRef": {"name": names.dashboard(service.name), "key": names.DASHBOARD_FILE},
        },
    }


def _content(service: api.InferenceService, facts: facts_.Facts) -> str:
    """The title and the uid are the service's own, and the variables that choose a service have one value: links to the
    other dashboards, which are there once for all services, take them along."""
    wanted = service.spec.monitoring
    base_url = wanted.runbook_base_url or facts.runbook_base_url
    content = json.loads(dashboard_files.read(dashboard_files.names()[0], wanted.language, base_url))
    fixed = {"namespace": service.namespace, "service": service.name}
    content["uid"] = uid(service)
    content["title"] = f"Tidemark: {service.name} ({service.namespace})"
    content["tags"] = ["tidemark", "tidemark-service"]  # not among the links of those that are there once
    content["templating"]["list"] = [
        _fixed(variable, fixed[variable["name"]]) if variable["name"] in fixed else variable
        for variable in content["templating"]["list"]
    ]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def uid(service: api.InferenceService) -> str:
    """By which Grafana knows it, at most 40 characters; the same for as long as the service has its name."""
    digest = hashlib.sha256(f"{service.namespace}/{service.name}".encode()).hexdigest()
    return f"tidemark-{digest[:24]}"


def _fixed(variable: dict[str, Any], value: str) -> dict[str, Any]:
    """A variable that nobody chooses: not of type `constant`, which links leave out."""
    only = {"selected": True, "text": value, "value": value}
    kept: dict[str, Any] = {key: variable[key] for key in ("name", "label", "description") if key in variable}
    return {**kept, "type": "custom", "hide": 2, "query": value, "current": only, "options": [only]}
