"""Golden objects: one file for each kind and manifest; `TIDEMARK_WRITE_GOLDEN=1` writes them again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import manifests
import pytest

from tidemark_operator import api, plan
from tidemark_operator.plan import history

ROOT = Path(__file__).resolve().parents[4]
GOLDEN = ROOT / "tests/golden/operator"
MODULES = {
    "ServiceAccount": "service_account",
    "Secret": "admin_secret",
    "ConfigMap": "config_map",
    "NetworkPolicy": "network_policy",
    "PodDisruptionBudget": "disruption_budget",
    "Service": "cluster_service",
    "Deployment": "deployment",
    "ControllerRevision": "history",
    "CronJob": "evaluation",
    "PodMonitor": "pod_monitor",
    "GrafanaDashboard": "dashboard",
}
"""Kind -> the module that builds it: one file a kind."""
FACTS = plan.Facts(
    image="registry.example.com/tidemark-runtime:1.2.3",
    admin_token="not-a-secret",
    operator_namespace="tidemark-system",
    monitoring_labels=(("release", "overwritten"), ("team", "monitoring")),
    monitoring_namespaces=("monitoring",),
    runbook_base_url="http://tidemark.tidemark-system:8080/runbooks",
)
WATCHED = ("small", "full")
"""Cases with what Prometheus and Grafana get."""
LONG = ("ConfigMap", "PrometheusRule")
"""Kinds of those that come from files that are compared with the code elsewhere."""


def with_folder(path: str) -> dict[str, Any]:
    return manifests.changed("spec.model.source", {"hostPath": {"path": path}})


CASES = {
    "small": (manifests.small(), FACTS),
    "full": (manifests.full(), FACTS),
    "host-folder": (with_folder("/srv/models/qwen"), FACTS),
    "host-file": (
        manifests.changed("spec.suspend", True, with_folder("/srv/models/a.gguf")),
        plan.Facts(image="x:1", admin_token="t", image_pull_policy="Never"),
    ),
    "store": (
        manifests.small(autoscaling={"min": 1, "max": 3}),
        plan.Facts(image="x:1", admin_token="t", model_store_host_path="/srv/store"),
    ),
}


def objects(case: str) -> dict[str, dict[str, Any]]:
    document, facts = CASES[case]
    service = api.parse(document)
    revision = history.build(service, history.current(service, ()))
    watching = plan.monitoring(service, facts) if case in WATCHED else []
    own = [item for item in watching if item["kind"] not in LONG]
    return {item["kind"]: item for item in (*plan.wanted(service, facts), revision, *own)}


FILES = [(case, kind) for case in CASES for kind in objects(case)]


@pytest.mark.parametrize(("case", "kind"), FILES)
def test_the_object_is_the_golden_one(case: str, kind: str) -> None:
    text = plan.to_yaml([objects(case)[kind]])
    file = GOLDEN / f"{case}-{kind.lower()}.yaml"
    if os.environ.get("TIDEMARK_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_there_is_no_golden_file_without_a_test() -> None:
    assert {file.name for file in GOLDEN.iterdir()} == {f"{case}-{kind.lower()}.yaml" for case, kind in FILES}


def test_every_kind_that_a_plan_may_hold_has_a_golden_file() -> None:
    files = (ROOT / "operator/tidemark_operator/plan").glob("*.py")
    builders = {file.stem for file in files if '"apiVersion": ' in file.read_text(encoding="utf-8")}
    assert builders - {"objects", "prometheus_rule"} == {MODULES[kind] for _, kind in FILES}
