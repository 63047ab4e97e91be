"""The operator process against an API server: it finds, makes, repairs, is quiet, leads alone and ends in order."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crd_cases
import manifests
import operator_runs
import pytest
import yaml

from tidemark_operator import api, names, permissions, plan
from tidemark_operator.permissions import Scope

if TYPE_CHECKING:
    from bed.cluster import Cluster
    from bed.running import Bed

NAME = "demo"
CHILDREN = ("configmap", "controllerrevision", "deployment", "secret", "service", "serviceaccount")
QUIET_SECONDS = 30.0

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(api_cluster: Cluster) -> Cluster:
    crd_cases.install(api_cluster)
    return api_cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("operator", labels={}) as made:
        yield made


def limited_to(namespace: str) -> tuple[str, ...]:
    return ("--namespace", namespace, "--lease-namespace", namespace)


def submit(cluster: Cluster, namespace: str, **spec: Any) -> None:
    document = manifests.small(**spec)
    document["metadata"] = {"name": NAME}
    cluster.apply(document, namespace=namespace)


def children(cluster: Cluster, namespace: str) -> dict[str, str]:
    """`Kind/name` -> uid of everything that carries the service's label."""
    kinds = ",".join(CHILDREN)
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["uid"]
        for item in cluster.objects(kinds, namespace, f"{names.SERVICE_LABEL}={NAME}")
    }


def kinds_of(found: dict[str, str]) -> set[str]:
    return {key.split("/")[0].lower() for key in found}


def complete(cluster: Cluster, namespace: str) -> dict[str, str] | None:
    found = children(cluster, namespace)
    return found if kinds_of(found) == set(CHILDREN) else None


def uid(cluster: Cluster, namespace: str, kind: str = "deployment") -> str:
    found = cluster.get(kind, NAME, namespace)
    return str(found["metadata"]["uid"]) if found else ""


def test_children_are_made_repaired_and_go_with_their_service(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with operator_runs.started(cluster.environment(), tmp_path, *limited_to(namespace)) as operator:
        operator.leading()
        submit(cluster, namespace)
        operator.until("all children", lambda: complete(cluster, namespace))
        before = uid(cluster, namespace)
        cluster.kubectl("delete", "deployment", NAME, "-n", namespace, "--wait=false")
        operator.until("another Deployment", lambda: uid(cluster, namespace) not in ("", before))
        ports = [{"name": "http", "port": 81, "targetPort": "http"}]
        patch = json.dumps({"spec": {"ports": ports}})
        cluster.kubectl("patch", "service", NAME, "-n", namespace, "--type=merge", "-p", patch)
        operator.until("its port again", lambda: _ports(cluster, namespace) == [80])
        patch = json.dumps({"spec": {"selector": {"app": "somebody-else"}}})  # one more, and it finds no pod
        cluster.kubectl("patch", "service", NAME, "-n", namespace, "--type=merge", "-p", patch)
        operator.until("its selector again", lambda: "app" not in _selector(cluster, namespace))
        of_service = (
            "service_condition",
            "replicas",
            "rollbacks_total",
            "engine_restarts_total",
            "soft_limit_tightened",
        )
        for name in of_service:
            operator.until(name, lambda name=name: operator.samples(f"tidemark_operator_{name}"))
        cluster.kubectl("delete", "tide", NAME, "-n", namespace)
        operator.until("nothing left", lambda: not children(cluster, namespace))
        for name in of_service:  # B091
            operator.until(f"{name} gone", lambda name=name: not operator.samples(f"tidemark_operator_{name}"))
        assert "Traceback" not in operator.log
        assert operator.end() == 0


def _selector(cluster: Cluster, namespace: str) -> dict[str, str]:
    found = cluster.get("service", NAME, namespace)
    return dict(found["spec"]["selector"]) if found else {}


def _ports(cluster: Cluster, namespace: str) -> list[int]:
    found = cluster.get("service", NAME, namespace)
    return [item["port"] for item in found["spec"]["ports"]] if found else []


def test_the_admin_token_is_written_and_derived_from_the_key(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with operator_runs.started(cluster.environment(), tmp_path, *limited_to(namespace)) as operator:
        submit(cluster, namespace)
        operator.until("all children", lambda: complete(cluster, namespace))
        secret = cluster.get("secret", names.admin_secret(NAME), namespace)
        assert secret is not None
        first = secret["data"]
        cluster.kubectl("delete", "secret", names.admin_secret(NAME), "-n", namespace)
        assert operator.end() == 0
    with operator_runs.started(cluster.environment(), tmp_path, *limited_to(namespace)) as operator:
        again = operator.until("the token", lambda: cluster.get("secret", names.admin_secret(NAME), namespace))
        assert again["data"] == first


def test_nothing_is_written_while_nothing_happens(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with operator_runs.started(cluster.environment(), tmp_path, *limited_to(namespace)) as operator:
        submit(cluster, namespace)
        operator.until("all children", lambda: complete(cluster, namespace))
        operator.until("a status", lambda: (cluster.get("tide", NAME, namespace) or {}).get("status"))
        operator.settle(lambda: _versions(cluster, namespace))  # which the cluster's own controllers raise, too
        writes, versions = operator.writes, _versions(cluster, namespace)
        time.sleep(QUIET_SECONDS)
        assert operator.writes == writes
        assert _versions(cluster, namespace) == versions


def _versions(cluster: Cluster, namespace: str) -> dict[str, str]:
    kinds = ",".join((*CHILDREN, "tide", "events.events.k8s.io"))
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for item in cluster.objects(kinds, namespace)
    }


def test_a_second_operator_waits_and_takes_over_at_once(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with operator_runs.started(cluster.environment(), tmp_path, *limited_to(namespace)) as first:
        first.leading()
        with operator_runs.started(cluster.environment(), tmp_path, *limited_to(namespace)) as second:
            second.waiting()
            second.until("it says so", lambda: second.probe("/health/ready") == (200, "waiting to lead\n"))
            assert second.samples("tidemark_operator_leader") == {"": 0.0}
            assert first.samples("tidemark_operator_leader") == {"": 1.0}
            assert first.end() == 0
            second.leading()
            submit(cluster, namespace)
            second.until("all children", lambda: complete(cluster, namespace))
            assert second.end() == 0


def test_a_lost_lease_ends_the_operator(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with operator_runs.started(cluster.environment(), tmp_path, *limited_to(namespace)) as operator:
        operator.leading()
        patch = json.dumps({"spec": {"holderIdentity": "somebody-else"}})
        lease = ("lease", names.FIELD_MANAGER, "-n", namespace)
        cluster.kubectl("patch", *lease, "--type=merge", "-p", patch)
        assert operator.process.wait(60) == 1
        assert "somebody-else holds it now; this operator ends" in operator.log
        found = cluster.get("lease", names.FIELD_MANAGER, namespace)
        assert found is not None
        assert found["spec"]["holderIdentity"] == "somebody-else"  # it is not released by who has lost it


def test_a_selector_that_cannot_change_is_told_and_tried_ever_more_rarely(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """B077: a Deployment as another version might have made it. The API server takes no other selector; the way out is
    to delete it."""
    submit(cluster, namespace)
    cluster.apply(other_selector(cluster, namespace), namespace=namespace)
    with operator_runs.started(cluster.environment(), tmp_path, *limited_to(namespace)) as operator:
        operator.until("it is told", lambda: "field is immutable" in _warnings(cluster, namespace))
        for number in range(3):  # labels of the user's own are no reason to try more often
            labels = {"podTemplate": {"labels": {"team": str(number)}}}
            cluster.kubectl("patch", "tide", NAME, "-n", namespace, "--type=merge", "-p", json.dumps({"spec": labels}))
        operator.settle()
        before = _failed_passes(operator)
        time.sleep(10)
        assert _failed_passes(operator) - before <= 3
        before_uid = uid(cluster, namespace)
        cluster.kubectl("delete", "deployment", NAME, "-n", namespace, "--wait=false")
        operator.until("another Deployment", lambda: uid(cluster, namespace) not in ("", before_uid))
        operator.until("nothing to tell", lambda: "field is immutable" not in _warnings(cluster, namespace))
        assert "Traceback" not in operator.log


def other_selector(cluster: Cluster, namespace: str) -> dict[str, Any]:
    service = api.parse(cluster.get("tide", NAME, namespace) or {})
    made: dict[str, Any] = plan.wanted(service, plan.Facts(image=operator_runs.IMAGE, admin_token="t"))[-1]
    assert made["kind"] == "Deployment"
    made["spec"]["selector"] = {"matchLabels": {"app": NAME}}
    made["spec"]["template"]["metadata"]["labels"]["app"] = NAME
    return made


def _warnings(cluster: Cluster, namespace: str) -> str:
    found = cluster.get("tide", NAME, namespace) or {}
    return " ".join(found.get("status", {}).get("warnings", []))


def _failed_passes(operator: operator_runs.Operator) -> float:
    samples = operator.samples("tidemark_operator_reconciles_total")
    return sum(value for series, value in samples.items() if 'result="failed"' in series)


def test_an_api_server_that_restarts_is_survived(api_bed: Bed, namespace: str, tmp_path: Path) -> None:
    with operator_runs.patient(api_bed.environment(), tmp_path, namespace) as operator:
        operator.leading()
        submit(api_bed, namespace)
        operator.until("all children", lambda: complete(api_bed, namespace))
        before = uid(api_bed, namespace)
        api_bed.restart("apiserver")
        api_bed.kubectl("delete", "deployment", NAME, "-n", namespace, "--wait=false")
        operator.until("another Deployment", lambda: uid(api_bed, namespace) not in ("", before))
        assert operator.process.poll() is None


def test_an_object_that_vanished_while_no_watch_stood_is_noticed(api_bed: Bed, namespace: str, tmp_path: Path) -> None:
    """Its watches are cut, it hears nothing of the deletion, and the history of that is gone when it watches again: it
    begins anew with lists, and those say nothing about what is not there any more."""
    with operator_runs.patient(api_bed.environment(), tmp_path, namespace) as operator:
        operator.leading()
        submit(api_bed, namespace)
        operator.until("all children", lambda: complete(api_bed, namespace))
        operator.settle()
        before = uid(api_bed, namespace)
        operator.process.send_signal(signal.SIGSTOP)
        try:
            api_bed.restart("apiserver")
            api_bed.kubectl("delete", "deployment", NAME, "-n", namespace, "--wait=false")
            api_bed.eventually("its end", lambda: not uid(api_bed, namespace))
            api_bed.compact()
            api_bed.restart("apiserver")
        finally:
            operator.process.send_signal(signal.SIGCONT)
        operator.until("another Deployment", lambda: uid(api_bed, namespace) not in ("", before))
        assert f"Deployment {namespace}/{NAME} vanished unseen" in operator.log


def test_missing_permissions_are_named_all_at_once(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    environment = account(cluster, namespace, tmp_path, ())
    with operator_runs.started(environment, tmp_path, *limited_to(namespace)) as operator:
        assert operator.process.wait(90) == 1
        said = operator.log
    assert f"create, get, list, patch, watch deployments of apps in namespace {namespace}: runs the engine" in said
    assert f"list, watch pods in namespace {namespace}: their troubles are told" in said
    assert f"create, get, update leases of coordination.k8s.io in namespace {namespace}" in said
    assert "Traceback" not in said


def test_roles_in_one_namespace_are_enough(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """B073: the permissions of the table, and no others."""
    granted = [row for row in permissions.TABLE if row.scope is not Scope.CLUSTER]
    environment = account(cluster, namespace, tmp_path, granted)
    with operator_runs.started(environment, tmp_path, *limited_to(namespace)) as operator:
        operator.leading()
        assert "list nodes in all namespaces: without it rollouts of strategy `auto` stop the old pod" in operator.log
        submit(cluster, namespace)
        operator.until("all children", lambda: complete(cluster, namespace))
        operator.until("an event", lambda: cluster.objects("events.events.k8s.io", namespace))
        before = uid(cluster, namespace)
        cluster.kubectl("delete", "deployment", NAME, "-n", namespace, "--wait=false")
        operator.until("another Deployment", lambda: uid(cluster, namespace) not in ("", before))
        operator.settle()
        refused = {
            series for series in operator.samples("tidemark_operator_api_requests_total") if 'code="403"' in series
        }
        assert refused == set()
        assert operator.end() == 0


def account(cluster: Cluster, namespace: str, folder: Path, granted: Any) -> dict[str, str]:
    """Environment of an account that may do just that, in this namespace."""
    rules = [{"apiGroups": [row.group], "resources": [row.resource], "verbs": list(row.verbs)} for row in granted]
    subject = {"kind": "ServiceAccount", "name": "limited", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    role: dict[str, Any] = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "limited"}, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "limited"},
        "subjects": [subject],
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "limited"},
    }
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "limited"}}
    cluster.apply(made, role, binding, namespace=namespace)
    if granted:
        cluster.until_allowed(f"system:serviceaccount:{namespace}:limited", "patch", "configmaps", namespace)
    token = cluster.kubectl("create", "token", "limited", "-n", namespace).strip()
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in document["users"]:
        user["user"] = {"token": token}
    path = folder / "limited.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return {**cluster.environment(), "KUBECONFIG": str(path)}
