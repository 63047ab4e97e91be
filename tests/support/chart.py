"""The chart in tests: its files, its golden manifests, and values that were once misunderstood or must be refused."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/tidemark"
GOLDEN = ROOT / "tests/golden/chart"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"

GOOD_VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaced": {"watchNamespaces": ["team-a", "123"], "replicaCount": 2},
    "mirror": {
        "images": {
            "registry": "registry.example.com:5000/mirror/",
            "pullPolicy": "Never",
            "operator": {"digest": DIGEST},
            "engine": {"tag": "1.2"},
        },
        "imagePullSecrets": [{"name": "regcred"}, {"name": "second"}],
    },
    "everything": {
        "images": {"operator": {"repository": "example.com/own/operator", "tag": "1"}},
        "imagePullSecrets": [{"name": "regcred"}],
        "nameOverride": "tides",
        "fullnameOverride": "yes",
        "crds": {"create": False},
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "given", "annotations": {"example.com/a": "true"}},
        "operatorKey": {"existingSecret": "my-key", "key": "key.bin"},
        "modelStoreHostPath": "/srv/models: #1",
        "logFormat": "text",
        "logLevel": "debug",
        "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "example.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "priorityClassName": "high",
        "podAnnotations": {"example.com/on": "on"},
        "podLabels": {"team": "0123"},
        "extraEnv": [{"name": "A", "value": "1e3"}, {"name": "B", "value": 'quo"ted\n{{ not a template }}'}],
        "metrics": {"service": {"port": 9090, "labels": {"release": "mon"}, "annotations": {"a": "b"}}},
    },
    "monitoring": {
        "monitoring": {
            "enabled": True,
            "labels": {"release": "mon", "on": "0123"},
            "namespaces": ["monitoring", "123"],
            "runbookBaseUrl": "https://wiki.example.com/tidemark/",
            "language": "zh",
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Tidemark"}},
        },
    },
    "no metrics service": {"metrics": {"service": {"create": False}}},
    "inspection": {
        "inspection": {
            "enabled": True,
            "schedule": "@daily",
            "prometheusUrl": "https://prometheus.example.com/p",
            "prometheusTokenSecret": "prometheus-token",
            "prometheusCaConfigMap": "site-ca",
            "failOn": "warning",
            "language": "zh",
        },
    },
}
BAD_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt at the top": ({"image": {"tag": "1"}}, "/image"),
    "misspelt below": ({"metrics": {"service": {"prot": 1}}}, "/metrics/service/prot"),
    "misspelt image": ({"images": {"operator": {"digst": DIGEST}}}, "/images/operator/digst"),
    "pull secrets as texts": ({"imagePullSecrets": ["regcred"]}, "/imagePullSecrets/0"),
    "pull secrets as one object": ({"imagePullSecrets": {"name": "regcred"}}, "/imagePullSecrets"),
    "registry with a scheme": ({"images": {"registry": "https://example.com"}}, "/images/registry"),
    "tag that is a number": ({"images": {"engine": {"tag": 1.2}}}, "/images/engine/tag"),
    "tag in the repository": ({"images": {"engine": {"repository": "a/b:1"}}}, "/images/engine/repository"),
    "digest cut off": ({"images": {"engine": {"digest": "sha256:12"}}}, "/images/engine/digest"),
    "pull policy": ({"images": {"pullPolicy": "always"}}, "/images/pullPolicy"),
    "namespace that is a number": ({"watchNamespaces": [123]}, "/watchNamespaces/0"),
    "namespace twice": ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
    "namespaces in one text": ({"watchNamespaces": "a,b"}, "/watchNamespaces"),
    "replicas as text": ({"replicaCount": "2"}, "/replicaCount"),
    "label that is not text": ({"podLabels": {"a": True}}, "/podLabels/a"),
    "label of the selector": ({"podLabels": {"app.kubernetes.io/name": "x"}}, "/podLabels"),
    "label of the Service's own": ({"metrics": {"service": {"labels": {"helm.sh/chart": "x"}}}}, "/metrics"),
    "variable that is a number": ({"extraEnv": [{"name": "A", "value": 1}]}, "/extraEnv/0/value"),
    "toleration": ({"tolerations": [{"key": "a", "operator": "Equals"}]}, "/tolerations/0/operator"),
    "log level": ({"logLevel": "INFO"}, "/logLevel"),
    "relative folder": ({"modelStoreHostPath": "models"}, "/modelStoreHostPath"),
    "port": ({"metrics": {"service": {"port": 70_000}}}, "/metrics/service/port"),
    "schedule with a field too few": ({"inspection": {"schedule": "0 6 * *"}}, "/inspection/schedule"),
    "Prometheus without a scheme": ({"inspection": {"prometheusUrl": "p:9090"}}, "/inspection/prometheusUrl"),
    "inspection's severity": ({"inspection": {"failOn": "info"}}, "/inspection/failOn"),
    "monitoring by another word": ({"monitoring": {"enabled": "yes"}}, "/monitoring/enabled"),
    "label of the operator's own": ({"monitoring": {"labels": {"tidemark.dev/service": "x"}}}, "/monitoring/labels"),
    "label that is no label": ({"monitoring": {"labels": {"release": "a b"}}}, "/monitoring/labels/release"),
    "runbooks without a scheme": ({"monitoring": {"runbookBaseUrl": "wiki"}}, "/monitoring/runbookBaseUrl"),
    "null for a list": ({"imagePullSecrets": None}, "/imagePullSecrets"),
}


def defaults() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def merged(values: dict[str, Any]) -> dict[str, Any]:
    """Over the defaults, as helm does it: objects key by key, lists whole."""
    return _merged(defaults(), values)


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(old)
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _merged(made[key], value) if both else copy.deepcopy(value)
    return made


def golden_text(rendered: str) -> str:
    """What is compared: without CRD and roles, which are made from code and compared with it, and without the random
    key."""
    parts = [part.strip("\n") for part in re.split(r"^---$", rendered, flags=re.MULTILINE)]
    kept = [part for part in parts if part and not re.search(r"^kind: (\w+Definition|Role|ClusterRole)$", part, re.M)]
    text = "".join(f"---\n{part}\n" for part in kept)
    return re.sub(r'("operator\.key": )"[^"]+"', r'\1"RANDOM"', text)


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def pod_specs(rendered: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Kind/name -> spec of a pod, of whatever makes pods."""
    found = {}
    for document in rendered:
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", {}) if document["kind"] == "CronJob" else spec
        spec = spec if document["kind"] == "Pod" else spec.get("template", {}).get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            found[f"{document['kind']}/{document['metadata']['name']}"] = spec
    return found


def images(rendered: list[dict[str, Any]]) -> set[str]:
    """Every image that pods run, and those that the operator is told to let run."""
    containers = [item for spec in pod_specs(rendered).values() for item in spec["containers"]]
    words = [word for item in containers for word in item.get("args", [])]
    told = {word.removeprefix("--image=") for word in words if word.startswith("--image=")}
    return told | {item["image"] for item in containers}
