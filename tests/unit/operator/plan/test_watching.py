"""What a service's PodMonitor, PrometheusRule and dashboard say."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import manifests
import promtool
import pytest
import yaml

from tidemark_operator import api, names, plan
from tidemark_operator.monitoring import dashboard_files, site
from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules.model import About
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_operator.plan import dashboard, watching

SELECTOR = r"[\w:]+\{[^}]*\}"
FACTS = plan.Facts(image="i", monitoring_labels=(("release", "mon"), ("team", "a")))


def built(spec: dict[str, Any] | None = None, kinds: tuple[str, ...] = watching.KINDS) -> dict[str, dict[str, Any]]:
    document = manifests.small(**(spec or {}))
    document["metadata"] = {"name": "contracts", "namespace": "team-a", "uid": "u"}
    return {item["kind"]: item for item in plan.monitoring(api.parse(document), FACTS, kinds)}


def endpoint(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    (found,) = built(spec)["PodMonitor"]["spec"]["podMetricsEndpoints"]
    return dict(found)


def test_the_site_labels_are_on_all_and_the_services_own_come_first() -> None:
    """B081: and none of them takes the place of a label that selectors use."""
    own = {"release": "other", "cost-centre": "7"}
    for item in built({"monitoring": {"labels": own}}).values():
        labels = item["metadata"]["labels"]
        assert {"release": "other", "team": "a", "cost-centre": "7"}.items() <= labels.items()
        assert names.labels("contracts").items() <= labels.items()


def test_the_pods_are_found_by_what_they_carry_b081() -> None:
    """B081: selector, port and namespace."""
    document = manifests.small()
    document["metadata"] = {"name": "contracts", "namespace": "team-a"}
    service = api.parse(document)
    (deployment,) = [item for item in plan.wanted(service, FACTS) if item["kind"] == "Deployment"]
    monitor = built()["PodMonitor"]
    template = deployment["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert "namespaceSelector" not in monitor["spec"], "its own namespace"
    (container,) = template["spec"]["containers"]
    assert endpoint()["port"] in [port["name"] for port in container["ports"]]


def test_the_targets_are_what_rules_and_dashboards_expect() -> None:
    """The same as in the example for a Prometheus without its operator."""
    relabelled = {item["targetLabel"]: item["replacement"] for item in endpoint()["relabelings"]}
    assert relabelled == {"job": Thresholds().engine_jobs, "service": "contracts"}
    example = yaml.safe_load(site.examples()[site.PROMETHEUS_ON_KUBERNETES])
    assert relabelled["job"] in [scrape["job_name"] for scrape in example["scrape_configs"]]


def test_with_tls_it_is_https() -> None:
    assert (endpoint()["scheme"], "tlsConfig" in endpoint()) == ("http", False)
    found = endpoint({"access": {"tlsSecretRef": {"name": "t"}}})
    assert (found["scheme"], found["tlsConfig"]) == ("https", {"insecureSkipVerify": True})


def test_the_rules_are_those_of_services_and_each_looks_at_one() -> None:
    rule = built()["PrometheusRule"]
    groups = rule["spec"]["groups"]
    expected = catalog.groups(Thresholds(), About.SERVICE)
    assert [group["name"] for group in groups] == [group.name for group in expected]
    for item in (item for group in groups for item in group["rules"]):
        selectors = re.findall(SELECTOR, item["expr"])
        assert selectors
        for selector in selectors:
            assert 'namespace="team-a"' in selector, item
            assert 'service="contracts"' in selector, item
        assert "tidemark_" not in re.sub(SELECTOR, "", item["expr"]), "a series without a selector"


def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Any) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(built()["PrometheusRule"]["spec"]))
    command = [promtool.program(), "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_and_language_are_the_services_own() -> None:
    text = json.dumps(built({"monitoring": {"runbookBaseUrl": "http://wiki/t", "language": "zh"}})["PrometheusRule"])
    assert set(re.findall(r'"runbook_url": "(.*?)/Tidemark\w+\.md"', text)) == {"http://wiki/t/zh"}


def content(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    found = built(spec)["ConfigMap"]
    assert list(found["data"]) == [names.DASHBOARD_FILE]
    return dict(json.loads(found["data"][names.DASHBOARD_FILE]))


@pytest.mark.parametrize("language", dashboard_files.LANGUAGES)
def test_the_dashboard_is_the_overview_set_to_the_service(language: str) -> None:
    found = content({"monitoring": {"language": language}})
    overview = json.loads(dashboard_files.read("overview", language))
    assert found["panels"] == overview["panels"]
    variables = {item["name"]: item for item in found["templating"]["list"]}
    assert [item["name"] for item in overview["templating"]["list"]] == list(variables)
    for name, value in (("namespace", "team-a"), ("service", "contracts")):
        assert variables[name]["type"] == "custom"
        assert variables[name]["query"] == variables[name]["current"]["value"] == value
    assert "contracts" in found["title"]


def test_each_service_has_a_uid_of_its_own_that_stays() -> None:
    uids = {}
    for namespace, name in (("a", "b"), ("a", "c"), ("b", "b"), ("a-b", "c"), ("a", "b-c")):
        document = manifests.small()
        document["metadata"] = {"name": name, "namespace": namespace}
        uids[namespace, name] = dashboard.uid(api.parse(document))
    shared = {dashboard_files.uid(name, each) for name in dashboard_files.names() for each in dashboard_files.LANGUAGES}
    assert len(set(uids.values()) | shared) == len(uids) + len(shared)
    assert all(len(uid) <= 40 for uid in uids.values())


def test_the_runbooks_of_the_dashboard_are_the_services_own() -> None:
    variables = {
        item["name"]: item for item in content({"monitoring": {"runbookBaseUrl": "http://w"}})["templating"]["list"]
    }
    assert variables[dashboard_files.RUNBOOKS_VARIABLE]["query"] == "http://w"


def test_only_one_of_sidecar_and_grafanas_operator_brings_the_dashboard() -> None:
    assert names.DASHBOARD_LABEL not in built()["ConfigMap"]["metadata"]["labels"]
    alone = built(kinds=("PodMonitor", "PrometheusRule"))
    assert "GrafanaDashboard" not in alone
    assert alone["ConfigMap"]["metadata"]["labels"][names.DASHBOARD_LABEL] == "1"
    asked = built({"monitoring": {"labels": {names.DASHBOARD_LABEL: "yes"}}})
    assert asked["ConfigMap"]["metadata"]["labels"][names.DASHBOARD_LABEL] == "yes"


def test_grafanas_operator_is_led_to_the_config_map() -> None:
    found = built()
    reference = found["GrafanaDashboard"]["spec"]["configMapRef"]
    assert reference["name"] == found["ConfigMap"]["metadata"]["name"]
    assert reference["key"] in found["ConfigMap"]["data"]


def test_switched_off_there_is_nothing() -> None:
    assert built({"monitoring": {"enabled": False}}) == {}
