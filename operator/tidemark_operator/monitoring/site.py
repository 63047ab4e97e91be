"""The files of a site with a plain Prometheus: rules, scrape and routing to copy from, runbooks to serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark_operator import names
from tidemark_operator.monitoring import inhibition, runbooks
from tidemark_operator.monitoring.rules import catalog, render
from tidemark_operator.monitoring.rules.model import Language
from tidemark_operator.monitoring.rules.thresholds import Thresholds

RULES = "tidemark.rules.yaml"
PROMETHEUS_RULE = "prometheusrule.yaml"
PROMETHEUS = "prometheus.example.yaml"
PROMETHEUS_ON_KUBERNETES = "prometheus.kubernetes.example.yaml"
ALERTMANAGER = "alertmanager.example.yaml"

ENGINE_JOB = "tidemark-engine"
OPERATOR_JOB = "tidemark-operator"
_OPERATOR_PORT = "8080"


def rules(thresholds: Thresholds) -> dict[str, str]:
    """The two files of rules, by name."""
    groups = catalog.groups(thresholds)
    return {
        RULES: render.rule_file(groups, thresholds),
        PROMETHEUS_RULE: render.prometheus_rule_file("tidemark", groups, thresholds),
    }


def examples() -> dict[str, str]:
    """What a site copies from, by name."""
    return {
        PROMETHEUS: _text("Prometheus beside engines started by hand: put in your addresses.", _by_hand()),
        PROMETHEUS_ON_KUBERNETES: _text("Prometheus in a cluster, without its operator.", _on_kubernetes()),
        ALERTMANAGER: _text("Alertmanager: one message for each cause. Put in your receivers.", _alertmanager()),
    }


def files(thresholds: Thresholds) -> dict[str, str]:
    """Everything, by its path in the folder: rules, examples, and runbooks as `runbooks/LANGUAGE/ALERT.md`."""
    found = {**rules(thresholds), **examples()}
    for language in Language:
        for alert in runbooks.names(language):
            text = runbooks.text(alert, language)
            if text is not None:
                found[f"runbooks/{language.value}/{alert}.md"] = text
    return found


def _prometheus(scrape: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "30s"},
        "rule_files": [RULES],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
        "scrape_configs": scrape,
    }


def _by_hand() -> dict[str, Any]:
    """Rules tell services apart by the labels `namespace` and `service`; somebody must give them to engines."""
    labels = {"namespace": "default", "service": "smollm2"}
    return _prometheus(
        [
            {"job_name": ENGINE_JOB, "static_configs": [{"targets": ["127.0.0.1:8000"], "labels": labels}]},
            {
                "job_name": OPERATOR_JOB,
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{_OPERATOR_PORT}"]}],
            },
        ]
    )


def _on_kubernetes() -> dict[str, Any]:
    sd = [{"role": "pod"}]
    service_label = "__meta_kubernetes_pod_label_" + names.SERVICE_LABEL.translate(str.maketrans("./-", "___"))
    placed = [_copy("__meta_kubernetes_namespace", "namespace"), _copy("__meta_kubernetes_pod_name", "pod")]
    engine = [_keep(service_label, ".+"), _keep("__meta_kubernetes_pod_container_port_name", names.PORT_NAME)]
    operator = [
        _keep("__meta_kubernetes_pod_label_app_kubernetes_io_component", "operator"),
        _keep("__meta_kubernetes_pod_label_app_kubernetes_io_part_of", "tidemark"),
        _keep("__meta_kubernetes_pod_container_port_name", "http"),
    ]
    return _prometheus(
        [
            {
                "job_name": ENGINE_JOB,
                "kubernetes_sd_configs": sd,
                "relabel_configs": [*engine, *placed, _copy(service_label, "service")],
            },
            {
                "job_name": OPERATOR_JOB,
                "honor_labels": True,
                "kubernetes_sd_configs": sd,
                "relabel_configs": [*operator, *placed],
            },
        ]
    )


def _keep(source: str, regex: str) -> dict[str, Any]:
    return {"source_labels": [source], "regex": regex, "action": "keep"}


def _copy(source: str, target: str) -> dict[str, Any]:
    return {"source_labels": [source], "target_label": target}


def _alertmanager() -> dict[str, Any]:
    by = ["alertname", "cluster", "namespace", "service"]
    return {
        "route": {
            "receiver": "on-call",
            "group_by": by,
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "4h",
            "routes": [
                {"matchers": ['severity="warning"'], "receiver": "office-hours", "repeat_interval": "1d"},
                {"matchers": ['severity="info"'], "receiver": "office-hours", "repeat_interval": "7d"},
            ],
        },
        "inhibit_rules": [rule.dump() for rule in inhibition.RULES],
        "receivers": [{"name": "on-call"}, {"name": "office-hours"}],
    }


def _text(title: str, value: Mapping[str, Any]) -> str:
    return f"# {title}\n{render.to_yaml(dict(value))}"
