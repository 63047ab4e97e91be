"""B081, for what the chart makes: selected by a site's labels, and selecting exactly the operator's pods."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import chart
import pytest
from bed import build, control_plane, versions

from tidemark_operator import api, names, plan
from tidemark_operator.monitoring import dashboard_files
from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules.model import About
from tidemark_operator.monitoring.rules.thresholds import Thresholds

WANTED = {"monitoring": {"enabled": True, "labels": {"release": "mon"}, "dashboards": {"enabled": True}}}
PROMETHEUS, GRAFANA = "monitoring.coreos.com/v1", "grafana.integreatly.org/v1beta1"

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def helm(needs_a_bed: None) -> str:
    build.build(lambda _: None)
    return control_plane.program("helm")


def rendered(helm: str, folder: Path, values: dict[str, Any], release: str, *kinds: str) -> list[dict[str, Any]]:
    """`kinds`: groups and versions that the cluster has beside Kubernetes' own."""
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    command = [helm, "template", release, str(chart.CHART), "-n", "ops", f"--kube-version={versions.KUBERNETES}"]
    command += ["-f", str(file), *(f"--api-versions={kind}" for kind in kinds)]
    return chart.documents(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in found if item["kind"] == kind]


@pytest.mark.parametrize("release", ["one", "two"])
def test_a_site_selects_all_of_it_and_it_selects_the_operators_pods(helm: str, tmp_path: Path, release: str) -> None:
    found = rendered(helm, tmp_path, WANTED, release)
    (monitor,), (rule,), (deployment,) = (of(found, kind) for kind in ("PodMonitor", "PrometheusRule", "Deployment"))
    for item in (monitor, rule, *of(found, "ConfigMap")):
        assert item["metadata"]["labels"]["release"] == "mon"
        assert item["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    pod = deployment["spec"]["template"]
    selector = monitor["spec"]["selector"]["matchLabels"].items()
    assert selector == deployment["spec"]["selector"]["matchLabels"].items()
    assert not any(selector <= item["metadata"]["labels"].items() for item in of(found, "Pod"))
    assert not selector <= names.labels(release).items(), "no engine"
    assert "namespaceSelector" not in monitor["spec"]
    (endpoint,), (container,) = monitor["spec"]["podMetricsEndpoints"], pod["spec"]["containers"]
    assert endpoint["port"] in [port["name"] for port in container["ports"]]
    assert endpoint["honorLabels"] is True
    assert {"targetLabel": "job", "replacement": Thresholds().operator_jobs} in endpoint["relabelings"]
    groups = [group.name for group in catalog.groups(Thresholds(), About.OPERATOR)]
    assert [group["name"] for group in rule["spec"]["groups"]] == groups


def test_the_operator_is_told_what_the_chart_was(helm: str, tmp_path: Path) -> None:
    """So that what it makes for services is selected, too, and leads to the same runbooks."""
    found = rendered(helm, tmp_path, chart.GOOD_VALUES["monitoring"], "tidemark")
    (deployment,), (rule,) = of(found, "Deployment"), of(found, "PrometheusRule")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = [word for word in container["args"] if word.startswith(("--monitoring", "--runbook"))]
    assert given == [
        *("--monitoring-label=on=0123", "--monitoring-label=release=mon"),
        *("--monitoring-namespace=monitoring", "--monitoring-namespace=123"),
        "--runbook-base-url=https://wiki.example.com/tidemark",
    ]
    links = {
        item["annotations"]["runbook_url"]
        for group in rule["spec"]["groups"]
        for item in group["rules"]
        if "alert" in item
    }
    assert links
    assert all(link.startswith("https://wiki.example.com/tidemark/zh/Tidemark") for link in links)


def test_two_releases_have_links_to_their_own_runbooks(helm: str, tmp_path: Path) -> None:
    """Through the Service that the release has."""
    for release in ("one", "two"):
        found = rendered(helm, tmp_path, WANTED, release)
        (service,) = of(found, "Service")
        name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]
        text = json.dumps([of(found, "PrometheusRule"), of(found, "ConfigMap")])
        assert f"http://{name}.ops:{port}/runbooks" in text
        assert "tidemark.tidemark-system" not in text


@pytest.mark.parametrize("language", dashboard_files.LANGUAGES)
def test_every_dashboard_is_there_once_and_as_rendered(helm: str, tmp_path: Path, language: str) -> None:
    values = {"monitoring": {**WANTED["monitoring"], "language": language}}
    maps = of(rendered(helm, tmp_path, values, "tidemark"), "ConfigMap")
    contents = [json.loads(text) for item in maps for text in item["data"].values()]
    base = "http://tidemark.ops:8080/runbooks"
    expected = [json.loads(dashboard_files.read(name, language, base)) for name in dashboard_files.names()]
    assert sorted(contents, key=lambda item: item["uid"]) == sorted(expected, key=lambda item: item["uid"])
    assert all(item["metadata"]["labels"]["grafana_dashboard"] == "1" for item in maps)


@pytest.mark.parametrize(
    ("kinds", "made"),
    [
        ((), set()),
        ((PROMETHEUS,), {"PodMonitor", "PrometheusRule", "ConfigMap"}),
        ((GRAFANA,), {"ConfigMap", "GrafanaDashboard"}),
        ((PROMETHEUS, GRAFANA), {"PodMonitor", "PrometheusRule", "ConfigMap", "GrafanaDashboard"}),
    ],
)
def test_left_to_itself_it_follows_what_the_cluster_has(
    helm: str, tmp_path: Path, kinds: tuple[str, ...], made: set[str]
) -> None:
    found = rendered(helm, tmp_path, {}, "tidemark", *kinds)
    assert {item["kind"] for item in found} & {"PodMonitor", "PrometheusRule", "ConfigMap", "GrafanaDashboard"} == made
    off = {"monitoring": {"enabled": False, "dashboards": {"enabled": False}}}
    assert not of(rendered(helm, tmp_path, off, "tidemark", *kinds), "PodMonitor")
    assert not of(rendered(helm, tmp_path, off, "tidemark", *kinds), "ConfigMap")
    maps = {item["metadata"]["name"]: item for item in of(found, "ConfigMap")}
    for item in of(found, "GrafanaDashboard"):
        reference = item["spec"]["configMapRef"]
        assert reference["key"] in maps[reference["name"]]["data"]
        assert "grafana_dashboard" not in maps[reference["name"]]["metadata"]["labels"], "one of two is enough"


def test_chart_and_operator_share_no_object(helm: str, tmp_path: Path) -> None:
    """A service that is called as the release, in the release's namespace."""
    document = {
        "metadata": {"name": "tidemark", "namespace": "ops"},
        "spec": {"model": {"source": {"package": {"name": "smollm2-135m"}}}},
    }
    service = api.parse({"apiVersion": names.API_VERSION, "kind": names.KIND, **document})
    uids = {
        json.loads(text)["uid"]
        for item in plan.monitoring(service, plan.Facts(image="i"))
        if item["kind"] == "ConfigMap"
        for text in item["data"].values()
    }
    shared = {
        json.loads(text)["uid"]
        for item in of(rendered(helm, tmp_path, WANTED, "tidemark"), "ConfigMap")
        for text in item["data"].values()
    }
    assert not uids & shared
