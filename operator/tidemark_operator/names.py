"""Every name of the API, spelled once: group, labels, annotations, child objects, paths inside a pod.

The label domain occurs in this file only.
"""

from __future__ import annotations

import re

GROUP = "tidemark.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "InferenceService"
PLURAL = "inferenceservices"
SINGULAR = "inferenceservice"
SHORT_NAMES = ("tide",)

FIELD_MANAGER = "tidemark-operator"
"""Field manager of server-side apply."""

SERVICE_LABEL = f"{GROUP}/service"
"""Name of the InferenceService an object belongs to; the only label of our domain that selectors use."""
RESTART_HASH_ANNOTATION = f"{GROUP}/restart-hash"
"""On the pod template: names the settings that need a new process. Hot settings do not change it."""
CONFIG_HASH_ANNOTATION = f"{GROUP}/config-hash"
"""On the ConfigMap: names all settings; the engine reports the same hash once they are in force."""
MANIFEST_HASH_ANNOTATION = f"{GROUP}/manifest-hash"
"""On every child: names the manifest that was applied, so that a pass can tell without writing whether to write."""
PAUSED_ANNOTATION = f"{GROUP}/paused"
"""On an InferenceService: "true" makes the operator leave everything of it alone and say so."""
REVISION_GOOD_ANNOTATION = f"{GROUP}/became-ready"
"""On a ControllerRevision: when this spec served with all its replicas for the first time."""
REVISION_FAILED_ANNOTATION = f"{GROUP}/failed"
"""On a ControllerRevision: why its rollout failed. As long as the spec stays, it is not tried again."""

NAME_PATTERN = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""DNS-1035: a Kubernetes Service may not begin with a digit, and ours carries this name."""
MAX_NAME_LENGTH = 40
"""A label value and a pod's host name hold 63 characters; 23 are kept for what is appended to children and pods."""

CONTAINER = "engine"
PORT_NAME = "http"
SERVICE_PORT = 80
CONFIG_FILE = "engine.yaml"
DASHBOARD_FILE = "dashboard.json"
DASHBOARD_LABEL = "grafana_dashboard"
"""By this label Grafana's sidecar finds ConfigMaps, as its charts configure it."""
ADMIN_TOKEN_FILE = "token"
"""The entry of the Secret with the token that `/admin` asks for."""
KEYS_FILE = "keys"
"""The default entry of the Secret named by `access.apiKeysSecretRef`: one API key a line."""
MODEL_STORE_VARIABLE = "TIDEMARK_MODELS"
"""Tells an engine where fetched models lie."""


def is_own(key: str) -> bool:
    """Whether a label or annotation key belongs to us or to the recommended labels that we set ourselves."""
    domain = key.partition("/")[0]
    return domain == GROUP or domain.endswith(f".{GROUP}") or domain == "app.kubernetes.io"


def deployment(service: str) -> str:
    return service


def service(service: str) -> str:
    return service


def service_account(service: str) -> str:
    return service


def config_map(service: str, restart_hash: str) -> str:
    """One for each set of restart settings: a pod of the old revision that restarts during a rollout finds its own."""
    return f"{service}-{restart_hash}"


def admin_secret(service: str) -> str:
    """Unlike any name a site would choose: the operator cannot see whether a Secret exists, and would write over it."""
    return f"{service}-tidemark-admin"


def network_policy(service: str) -> str:
    return service


def pod_monitor(service: str) -> str:
    return service


def prometheus_rule(service: str) -> str:
    return service


def dashboard(service: str) -> str:
    """ConfigMap and GrafanaDashboard. No engine's configuration ends like this: a hash has no `s`."""
    return f"{service}-dashboard"


def disruption_budget(service: str) -> str:
    return service


def evaluation(service: str) -> str:
    """The CronJob: its own name may have 52 characters, because Jobs append eleven."""
    return f"{service}-evaluation"


def revision(service: str, revision_hash: str) -> str:
    return f"{service}-{revision_hash}"


def selector(service: str) -> dict[str, str]:
    """What a Deployment and a Service select pods by. Never changed: a Deployment's selector is immutable (B077)."""
    return {SERVICE_LABEL: service}


def labels(service: str) -> dict[str, str]:
    """On every object we create."""
    return {
        "app.kubernetes.io/component": "engine",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
        "app.kubernetes.io/name": "tidemark",
        SERVICE_LABEL: service,
    }


def evaluation_labels(service: str) -> dict[str, str]:
    """On pods of evaluations: not the label that a Service and a Deployment select by."""
    made = {**labels(service), "app.kubernetes.io/component": "evaluation"}
    del made[SERVICE_LABEL]
    return made
