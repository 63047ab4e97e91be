"""The chart with helm itself: rendered by tables of values, and installed, upgraded and removed on a real API server.

What needs no helm is tested in tests/unit/operator/chart.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chart
import manifests
import pytest
import yaml
from bed import build, control_plane, images, versions

from tidemark_operator import names, permissions
from tidemark_operator.commands import bundle_chart

if TYPE_CHECKING:
    from bed.cluster import Cluster
    from bed.running import Bed

KUBERNETES = f"--kube-version={versions.KUBERNETES}"
RELEASE = "tidemark"
CRD = f"{names.PLURAL}.{names.GROUP}"
IMAGE = "localhost/tidemark-bed/tidemark"
TAG = "chart"

Template = Callable[..., str]

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="session")
def helm() -> str:
    """The bed's, or with KUBECONFIG the one on PATH."""
    if os.environ.get("KUBECONFIG"):
        return "helm"
    build.build(lambda _: None)
    return control_plane.program("helm")


@pytest.fixture
def template(helm: str, tmp_path: Path) -> Template:
    """Renders with these values; fails the test with what helm says."""

    def render(values: dict[str, Any], source: Path = chart.CHART, release: str = RELEASE) -> str:
        done = helm_template(helm, tmp_path, values, source, release)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return render


def helm_template(
    helm: str, folder: Path, values: dict[str, Any], source: Path = chart.CHART, release: str = RELEASE
) -> subprocess.CompletedProcess[str]:
    file = folder / "values.json"
    file.write_text(json.dumps(values))  # not as YAML: Python and Go do not agree what is a number there
    command = [helm, "template", release, str(source), "-n", "tidemark-system", KUBERNETES, "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# -- rendered --


@pytest.mark.parametrize("case", chart.GOOD_VALUES)
def test_lint_finds_nothing(helm: str, tmp_path: Path, case: str) -> None:
    (tmp_path / "values.json").write_text(json.dumps(chart.GOOD_VALUES[case]))
    command = [helm, "lint", "--strict", "--quiet", str(chart.CHART), KUBERNETES, "-f", str(tmp_path / "values.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_defaults_are_the_golden_ones(template: Template) -> None:
    text = chart.golden_text(template({}))
    file = chart.GOLDEN / "defaults.yaml"
    if os.environ.get("TIDEMARK_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_the_inspection_is_the_golden_one(template: Template) -> None:
    """What unit tests look at without helm."""
    text = chart.golden_text(template(chart.GOOD_VALUES["inspection"]))
    text = "".join(f"---\n{part}" for part in text.split("---\n") if "inspection" in part)
    file = chart.GOLDEN / "inspection.yaml"
    if os.environ.get("TIDEMARK_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("case", chart.GOOD_VALUES)
def test_every_image_comes_from_the_one_block(template: Template, case: str) -> None:
    """B095: prefix, tag and digest everywhere; the list that a bundle makes is the list of what runs."""
    values = chart.merged(chart.GOOD_VALUES[case])["images"]
    prefix = values["registry"].rstrip("/")
    listed = {
        f"{prefix}/{image}" if prefix else image
        for image in (bundle_chart.image(values, name, "0.1.0") for name in ("operator", "engine"))
    }
    assert chart.images(chart.documents(template(chart.GOOD_VALUES[case]))) == listed


@pytest.mark.parametrize("case", chart.GOOD_VALUES)
def test_pull_secrets_reach_every_pod(template: Template, case: str) -> None:
    """B095: those of the chart, and by an option of the operator those that it makes."""
    wanted = [item["name"] for item in chart.merged(chart.GOOD_VALUES[case])["imagePullSecrets"]]
    specs = chart.pod_specs(chart.documents(template(chart.GOOD_VALUES[case])))
    assert len(specs) == {"no metrics service": 1, "inspection": 3}.get(case, 2)
    for spec in specs.values():
        assert [item["name"] for item in spec.get("imagePullSecrets", [])] == wanted
    words = [word for spec in specs.values() for item in spec["containers"] for word in item.get("args", [])]
    told = [word.partition("=")[2] for word in words if word.startswith("--image-pull-secret=")]
    assert told == wanted


@pytest.mark.parametrize("case", chart.BAD_VALUES)
def test_bad_values_are_refused_by_helm(helm: str, tmp_path: Path, case: str) -> None:
    done = helm_template(helm, tmp_path, chart.BAD_VALUES[case][0])
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_an_account_that_is_not_made_must_be_named(helm: str, tmp_path: Path) -> None:
    done = helm_template(helm, tmp_path, {"serviceAccount": {"create": False}})
    assert "serviceAccount.name: got nothing, expected the name of an existing ServiceAccount" in done.stderr


def test_texts_stay_texts(template: Template) -> None:
    """B075: whatever YAML would take for a number, a boolean, a comment or a template."""
    rendered = chart.documents(template(chart.GOOD_VALUES["everything"], release="123"))
    (deployment,) = [document for document in rendered if document["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    given = chart.GOOD_VALUES["everything"]
    assert deployment["metadata"]["name"] == "yes"
    assert pod["metadata"]["labels"]["app.kubernetes.io/instance"] == "123"
    assert pod["metadata"]["labels"]["team"] == "0123"
    assert pod["metadata"]["annotations"] == given["podAnnotations"]
    assert container["env"] == given["extraEnv"]
    assert "--model-store-host-path=/srv/models: #1" in container["args"]
    assert container["image"] == "example.com/own/operator:1"
    for key in ("tolerations", "nodeSelector", "topologySpreadConstraints"):
        assert pod["spec"][key] == given[key]


def test_with_namespaces_there_are_roles_in_them_and_nothing_cluster_wide(template: Template) -> None:
    rendered = chart.documents(template({"watchNamespaces": ["team-a", "123"]}))
    kinds = {document["kind"] for document in rendered}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding"}
    found = {
        (document["kind"], document["metadata"]["namespace"])
        for document in rendered
        if document["kind"] in ("Role", "RoleBinding")
    }
    assert found == {
        (kind, where) for kind in ("Role", "RoleBinding") for where in ("team-a", "123", "tidemark-system")
    }


def test_two_releases_have_no_name_in_common(template: Template) -> None:
    """B081: nor does the Service of one find the pods of the other."""
    one, other = (chart.documents(template({}, release=release)) for release in ("one", "two"))
    keys = [{(item["kind"], item["metadata"]["name"]) for item in rendered} for rendered in (one, other)]
    assert keys[0] & keys[1] == {("CustomResourceDefinition", CRD)}
    selectors = [item["spec"]["selector"] for item in (*one, *other) if item["kind"] == "Service"]
    assert selectors[0] != selectors[1]


def test_labels_for_a_monitoring_stack_can_be_set(template: Template) -> None:
    """B081."""
    rendered = chart.documents(template({"metrics": {"service": {"labels": {"release": "mon"}}}}))
    (service,) = [document for document in rendered if document["kind"] == "Service"]
    assert service["metadata"]["labels"]["release"] == "mon"


def test_the_packed_chart_renders_the_same(template: Template, tmp_path: Path) -> None:
    package = tmp_path / "chart.tgz"
    package.write_bytes(bundle_chart.package(chart.CHART))
    assert chart.golden_text(template({}, package)) == chart.golden_text(template({}))


# -- installed --


class Release:
    """One release in a namespace of its own."""

    def __init__(self, cluster: Cluster, helm: str, namespace: str) -> None:
        self._cluster = cluster
        self._helm = helm
        self.namespace = namespace

    def install(self, *options: str, source: Path = chart.CHART) -> str:
        # Other tests may have made the definition without helm.
        return self.run("upgrade", "--install", RELEASE, str(source), "--take-ownership", *options)

    def run(self, *words: str) -> str:
        return self._cluster.run([self._helm, *words, "-n", self.namespace], seconds=300).stdout

    def uninstall(self) -> str:
        return self.run("uninstall", RELEASE, "--wait")

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{RELEASE}"


@pytest.fixture
def release(api_cluster: Cluster, helm: str) -> Iterator[Release]:
    with api_cluster.namespace("chart") as namespace:
        made = Release(api_cluster, helm, namespace)
        yield made
        api_cluster.run([helm, "uninstall", RELEASE, "-n", namespace, "--ignore-not-found"], check=False)


def definition(cluster: Cluster) -> dict[str, Any]:
    found = cluster.get("crd", CRD)
    assert found is not None
    return found


def properties(cluster: Cluster) -> dict[str, Any]:
    schema = definition(cluster)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]["properties"]
    return found


def older_chart(folder: Path) -> Path:
    """This chart with a definition that does not know `spec.suspend` yet."""
    copy = folder / "older"
    for path in chart.CHART.rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(chart.CHART)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    file = copy / "templates/crd.yaml"
    first, condition, *lines, end = file.read_text().splitlines()
    document = yaml.safe_load("\n".join(lines))
    spec = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["suspend"]
    file.write_text("\n".join([first, condition, yaml.safe_dump(document), end]) + "\n")
    return copy


def test_upgrade_brings_the_definition_up_to_date_and_uninstall_leaves_it(
    api_cluster: Cluster, release: Release, tmp_path: Path
) -> None:
    """B093: with an object alive all the time, which keeps its uid; the second install finds it again."""
    release.install(source=older_chart(tmp_path))
    api_cluster.until_known(CRD)
    assert "suspend" not in properties(api_cluster)
    old = manifests.small()
    old["metadata"] = {"name": "kept"}
    api_cluster.apply(old, namespace=release.namespace)
    before = uid(api_cluster, release.namespace)
    release.install()
    assert "suspend" in properties(api_cluster)
    api_cluster.kubectl(
        "patch", "tide", "kept", "-n", release.namespace, "--type=merge", "-p", '{"spec":{"suspend":true}}'
    )
    assert uid(api_cluster, release.namespace) == before
    said = release.uninstall()
    assert "kept due to the resource policy" in said
    assert uid(api_cluster, release.namespace) == before
    left = api_cluster.kubectl("get", "deployment,service,role,rolebinding,secret,serviceaccount", "-o", "name",
                               "-n", release.namespace, "-l", f"app.kubernetes.io/instance={RELEASE}")  # fmt: skip
    assert left == ""
    assert api_cluster.get("clusterrole", RELEASE) is None
    release.run("install", RELEASE, str(chart.CHART))
    assert uid(api_cluster, release.namespace) == before


def uid(cluster: Cluster, namespace: str) -> str:
    found = cluster.get("tide", "kept", namespace)
    assert found is not None
    return str(found["metadata"]["uid"])


def test_an_upgrade_keeps_the_key(api_cluster: Cluster, release: Release) -> None:
    """With another one, every engine's token would be another."""
    release.install()
    before = api_cluster.get("secret", f"{RELEASE}-key", release.namespace)
    release.install("--set", "logLevel=debug")
    after = api_cluster.get("secret", f"{RELEASE}-key", release.namespace)
    assert before
    assert after
    assert before["data"] == after["data"]


def may(cluster: Cluster, account: str, question: permissions.Question) -> bool:
    """By a review: `kubectl auth can-i` takes the group of a kind that the cluster does not have for a part of its
    name."""
    resource, _, subresource = question.permission.resource.partition("/")
    about = {
        "group": question.permission.group,
        "resource": resource,
        "subresource": subresource,
        "verb": question.verb,
        "namespace": question.namespace,
    }
    spec = {"user": account, "groups": ["system:serviceaccounts", "system:authenticated"], "resourceAttributes": about}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    said = cluster.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed}", stdin=json.dumps(review))
    return said == "true"


@pytest.mark.parametrize("limited", [False, True], ids=["cluster-wide", "namespaced"])
def test_what_the_chart_grants_is_what_the_operator_asks(api_cluster: Cluster, release: Release, limited: bool) -> None:
    """B073: asked of the API server itself, for the account of the chart."""
    where = (release.namespace,) if limited else ("",)
    release.install(*(("--set", f"watchNamespaces={{{release.namespace}}}") if limited else ()))
    api_cluster.until_allowed(release.account, "patch", "configmaps", *where)
    api_cluster.until_allowed(release.account, "get", "leases.coordination.k8s.io", release.namespace)
    denied, granted = set(), set()
    for question in permissions.questions(where, release.namespace):
        (granted if may(api_cluster, release.account, question) else denied).add(question.permission.scope)
    assert denied == ({permissions.Scope.CLUSTER} if limited else set())
    assert permissions.Scope.SERVICES in granted
    read = ["auth", "can-i", "get", "secrets", "-n", release.namespace, f"--as={release.account}"]
    assert api_cluster.run([api_cluster.kubectl_program, *read], check=False).stdout.strip() == "no"


# -- running --


@pytest.fixture(scope="module")
def running(node_bed: Bed, helm: str) -> Iterator[Release]:
    """The operator's pod, from this checkout, in a namespace that takes restricted pods only. The last test removes
    it."""
    node_bed.load(images.host_python(f"{IMAGE}:{TAG}", ()))
    with node_bed.namespace("chart-node") as namespace:
        made = Release(node_bed, helm, namespace)
        made.install(
            f"--set=images.operator.repository={IMAGE},images.operator.tag={TAG},images.pullPolicy=Never",
            f"--set=images.engine.repository={IMAGE},images.engine.tag={TAG}",
            f"--set=watchNamespaces={{{namespace}}},metrics.service.labels.release=mon",
            "--wait",
            "--timeout=240s",
        )
        yield made
        made.run("uninstall", RELEASE, "--wait", "--ignore-not-found")


def test_the_operator_runs_and_helm_test_passes(node_bed: Bed, running: Release) -> None:
    said = running.run("test", RELEASE, "--timeout=150s")
    assert re.search(r"Phase:\s+Succeeded", said), said
    node_bed.eventually(  # uninstalling would leave it
        "the pod of the test is gone", lambda: node_bed.get("pod", f"{RELEASE}-test", running.namespace) is None
    )
    selector = "release=mon,kubernetes.io/service-name=tidemark"

    def targets() -> list[Any]:
        slices = node_bed.objects("endpointslice", running.namespace, selector)
        return [target for item in slices for target in item["endpoints"] or ()]

    # B081: every operator pod is exactly one target.
    assert len(node_bed.eventually("a target", targets)) == 1


def test_a_service_is_made_by_the_installed_operator_and_both_go_with_their_namespace(
    node_bed: Bed, running: Release
) -> None:
    """B063: nothing waits for the operator, which is being deleted itself."""
    document = manifests.small()
    document["metadata"] = {"name": "demo"}
    node_bed.apply(document, namespace=running.namespace)
    made = node_bed.eventually("a Deployment", lambda: node_bed.get("deployment", "demo", running.namespace))
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == f"{IMAGE}:{TAG}"
    log = node_bed.kubectl("logs", f"deployment/{RELEASE}", "-n", running.namespace)
    assert "forbidden" not in log.lower()
    node_bed.kubectl("delete", "namespace", running.namespace, "--timeout=240s", seconds=260)
