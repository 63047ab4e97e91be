"""What the chart's files say, checked without helm; rendering is tested in tests/cluster/test_chart.py."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import chart
import pytest
import typer
import yaml

from tidemark_operator import api, names, permissions, plan
from tidemark_operator.commands import bundle_chart, operator

TEMPLATES = chart.CHART / "templates"


@pytest.fixture
def rendered() -> list[dict[str, Any]]:
    """The golden manifests; that helm renders these is tested where helm is."""
    return chart.documents((chart.GOLDEN / "defaults.yaml").read_text())


def one(rendered: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [document for document in rendered if document["kind"] == kind]
    return found


def test_chart_images_and_distribution_have_one_version() -> None:
    project = tomllib.loads((chart.ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = bundle_chart.read(chart.CHART)
    assert (found.version, found.app_version) == (project, project)


@pytest.mark.parametrize("scope", permissions.Scope)
def test_roles_are_the_permission_table(scope: permissions.Scope) -> None:
    """B073: no verb too few, none too many, in the right one of the three scopes."""
    text = (TEMPLATES / "_rules.tpl").read_text()
    (block,) = re.findall(rf'define "tidemark\.rules\.{scope.value}" -}}}}\n(.*?){{{{- end }}}}', text, re.DOTALL)
    granted = {
        (group, resource, verb)
        for rule in yaml.safe_load(block)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {(row.group, row.resource, verb) for row in permissions.TABLE if row.scope is scope for verb in row.verbs}
    assert granted == needed


def test_no_role_reads_secrets() -> None:
    rules = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "", (TEMPLATES / "_rules.tpl").read_text()))
    verbs = {verb for rule in rules if "secrets" in rule["resources"] for verb in rule["verbs"]}
    assert verbs == {"create", "patch"}


def test_the_crd_is_the_checked_in_one_and_is_kept() -> None:
    """B093: upgraded with the chart, and not deleted with it."""
    lines = (TEMPLATES / "crd.yaml").read_text().splitlines()
    assert lines[1] == "{{- if .Values.crds.create }}"
    assert lines[-1] == "{{- end }}"
    found = yaml.safe_load("\n".join(lines[2:-1]))
    assert found["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert found == yaml.safe_load((chart.ROOT / f"crds/{names.GROUP}_{names.PLURAL}.yaml").read_text())


def test_the_chart_takes_the_clusters_that_the_crd_needs() -> None:
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    needed = re.search(r"needs Kubernetes (\S+) or later", (chart.ROOT / "docs/operations/crd.md").read_text())
    assert needed
    assert about["kubeVersion"] == f">={needed[1]}.0-0"


def test_the_images_are_those_of_the_one_block(rendered: list[dict[str, Any]]) -> None:
    assert chart.images(rendered) == set(bundle_chart.read(chart.CHART).images.values())


def test_no_template_names_an_image_itself() -> None:
    for path in TEMPLATES.rglob("*.yaml"):
        images = re.findall(r"^\s*image: (.*)$", path.read_text(), re.MULTILINE) if path.name != "crd.yaml" else []
        assert [image for image in images if "tidemark.image" not in image] == []


def test_every_option_given_is_one_of_the_operators() -> None:
    text = (TEMPLATES / "deployment.yaml").read_text()
    given = set(re.findall(r'(?:"|- )(--[a-z-]+)=', text))
    app = typer.Typer()
    app.command()(operator.command)
    known = {word for option in typer.main.get_command(app).params for word in option.opts}
    assert len(given) > 8
    assert given <= known


def test_every_pod_is_restricted(rendered: list[dict[str, Any]]) -> None:
    specs = chart.pod_specs(rendered)
    assert set(specs) == {"Deployment/tidemark", "Pod/tidemark-test"}
    for spec in specs.values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {kind for volume in spec.get("volumes", []) for kind in volume if kind != "name"} <= {
            "secret",
            "emptyDir",
        }
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True


def test_the_service_finds_the_operators_pods_and_no_others(rendered: list[dict[str, Any]]) -> None:
    """B081: the selector fits, the port's name exists, and neither engines nor the test's pod are targets."""
    service, deployment, test = one(rendered, "Service"), one(rendered, "Deployment"), one(rendered, "Pod")
    selector = service["spec"]["selector"].items()
    assert selector == deployment["spec"]["selector"]["matchLabels"].items()
    assert selector <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert selector <= service["metadata"]["labels"].items()
    assert not selector <= test["metadata"]["labels"].items()
    assert not selector <= names.labels("tidemark").items()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [port["name"] for port in container["ports"]]


def test_the_notes_show_a_manifest_that_is_valid() -> None:
    text = (TEMPLATES / "NOTES.txt").read_text()
    (manifest,) = re.findall(r"<<'MANIFEST'\n(.*?)\n  MANIFEST", text, re.DOTALL)
    service = api.parse(yaml.safe_load(manifest))
    assert plan.wanted(service, plan.Facts(image="x", admin_token="t"))


def test_the_golden_file_belongs_to_this_version(rendered: list[dict[str, Any]]) -> None:
    found = bundle_chart.read(chart.CHART)
    labels = {document["metadata"]["labels"]["helm.sh/chart"] for document in rendered}
    assert labels == {f"{bundle_chart.NAME}-{found.version}"}
