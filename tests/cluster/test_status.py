"""`kubectl tidemark status` against an API server: objects as an operator and a kubelet leave them, made by kubectl."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crd_cases
import manifests
import pytest
import yaml

from tidemark_operator import api, names, plan, status
from tidemark_operator.plan import history

if TYPE_CHECKING:
    from bed.cluster import Cluster
    from bed.running import Bed

NAME = "demo"
POD = "demo-7f9c-abcde"
PROGRAMS = Path(sys.executable).parent
LINE = "RuntimeError: the weights are cut off"
NOW = datetime.datetime.now(datetime.UTC)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(api_cluster: Cluster) -> Cluster:
    crd_cases.install(api_cluster)
    return api_cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("status", labels={}) as made:
        yield made


def asked(
    cluster: Cluster, *words: str, kubeconfig: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """As a user types it: kubectl finds our executable on PATH."""
    environment = cluster.environment()
    environment["PATH"] = f"{PROGRAMS}:{environment['PATH']}"
    if kubeconfig is not None:
        environment["KUBECONFIG"] = str(kubeconfig)
    command = [cluster.kubectl_program, "tidemark", "status", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def make(cluster: Cluster, namespace: str, port: int = 8000, **spec: Any) -> api.InferenceService:
    """The service as the API server has it, with what belongs to it but pods."""
    document = manifests.small(**spec)
    document["metadata"] = {"name": NAME}
    cluster.apply(document, namespace=namespace)
    stored = cluster.get("tide", NAME, namespace)
    assert stored is not None
    service = api.parse(stored)
    restart_hash = plan.restart_hash(service)
    pod_labels = {"labels": names.labels(NAME), "annotations": {names.RESTART_HASH_ANNOTATION: restart_hash}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": names.selector(NAME)},
            "template": {"metadata": pod_labels, "spec": pod_spec(port)},
        },
    }
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.config_map(NAME, restart_hash),
            "annotations": {names.CONFIG_HASH_ANNOTATION: plan.config_hash(service)},
        },
    }
    revision = history.build(service, history.current(service, []))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, **pod_labels}, "spec": pod_spec(port)}
    cluster.apply(deployment, config_map, pod, namespace=namespace)
    revision["metadata"] = {**revision["metadata"], "namespace": namespace}
    revision["metadata"].pop("ownerReferences", None)
    cluster.apply(revision, namespace=namespace)
    return service


def pod_spec(port: int) -> dict[str, Any]:
    container = {"name": names.CONTAINER, "image": "engine", "ports": [{"name": "http", "containerPort": port}]}
    return {"containers": [container], "nodeSelector": {"nowhere": "true"}}


def tell_pod(cluster: Cluster, namespace: str, **told: Any) -> dict[str, Any]:
    """Give the pod a status, as a kubelet does."""
    patch = json.dumps({"status": told})
    cluster.kubectl("patch", "pod", POD, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    found = cluster.get("pod", POD, namespace)
    assert found is not None
    return found


def tell(cluster: Cluster, namespace: str, service: api.InferenceService, pod: dict[str, Any], **more: Any) -> None:
    """Give the service the status that the operator computes."""
    deployment = cluster.get("deployment", NAME, namespace)
    observed = status.Observed(
        deployment=deployment, pods=[pod], engines={POD: None}, wanted_hash=plan.config_hash(service), **more
    )
    patch = json.dumps({"status": status.compute(service, observed, NOW)})
    cluster.kubectl("patch", "tide", NAME, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


def container(**told: Any) -> dict[str, Any]:
    return {
        "name": names.CONTAINER,
        "image": "engine",
        "imageID": "",
        "ready": False,
        "restartCount": 4,
        **told,
    }


def crashed() -> dict[str, Any]:
    when = status.timestamp(NOW)
    ended = {"exitCode": 1, "reason": "Error", "message": LINE, "startedAt": when, "finishedAt": when}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 40s"}
    return container(state={"waiting": waiting}, lastState={"terminated": ended})


def event(namespace: str, reason: str, message: str) -> dict[str, Any]:
    """As an operator of today writes it."""
    when = NOW.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    about = {"apiVersion": "v1", "kind": "Pod", "name": POD, "namespace": namespace}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{POD}.{reason.lower()}"},
        "eventTime": when,
        "reportingController": "tests",
        "reportingInstance": "one",
        "action": "Test",
        "regarding": about,
        "reason": reason,
        "note": message,
        "type": "Warning",
        "series": {"count": 6, "lastObservedTime": when},
    }


def test_a_crash_loop_on_one_screen(cluster: Cluster, namespace: str) -> None:
    service = make(cluster, namespace)
    pod = tell_pod(cluster, namespace, containerStatuses=[crashed()], conditions=[])
    tell(cluster, namespace, service, pod)
    cluster.apply(event(namespace, "Nagging", "again and again"), namespace=namespace)
    shown = asked(cluster, NAME, "-n", namespace, code=1).stdout
    first, second, *_ = shown.splitlines()
    assert first.startswith("cluster: context ")
    assert f", namespace {namespace} (http" in first
    assert second == "demo: CrashLoopBackOff"
    todo = shown.partition("What to do\n")[2].partition("\n\n")[0]
    assert todo.splitlines() == [
        f"  The engine ended with exit code 1, 4 restarts. The last line of its log: {LINE}",
        f"    kubectl logs -n {namespace} {POD} -c engine --previous",
    ]
    assert f"Pod {POD}: not ready, 4 restarts" in shown
    assert f"{plan.config_hash(service)} (ConfigMap demo-" in shown
    assert "     1  has not served yet, 1 pod, the spec of now" in shown
    assert f"Pod/{POD} Nagging ×6: again and again" in shown
    assert "Not shown" not in shown


def test_an_engine_that_the_api_server_does_not_reach(cluster: Cluster, namespace: str) -> None:
    service = make(cluster, namespace)
    running = container(ready=True, restartCount=0, state={"running": {"startedAt": status.timestamp(NOW)}})
    ready = {"type": "Ready", "status": "True"}
    pod = tell_pod(cluster, namespace, containerStatuses=[running], conditions=[ready], podIP="192.0.2.1")
    tell(cluster, namespace, service, pod)
    found = json.loads(asked(cluster, NAME, "-n", namespace, "-o", "json", code=1).stdout)
    assert found["pods"][0]["engine"] is None
    assert "API server" in found["pods"][0]["notAsked"]
    assert found["configuration"]["pods"] == [{"name": POD, "state": "unknown"}]
    assert found["source"]["namespace"] == namespace


def test_the_engines_own_words_come_through_the_api_server(
    api_bed: Bed, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    document = {"version": "1", "state": "ready", "message": "serving 3 requests", "model": {"name": "m", "source": ""}}
    document["memory"] = {"pagesTotal": 200, "pagesUsed": 50, "pageBytes": 1 << 20, "blockSize": 16}
    with engine(str(api_bed.net.link_outside.ip), document) as (port, asked_for):
        service = make(cluster, namespace, port)
        document["config"] = {"hash": plan.config_hash(service), "generation": 2}
        running = container(ready=True, restartCount=0, state={"running": {"startedAt": status.timestamp(NOW)}})
        ready = {"type": "Ready", "status": "True"}
        address = str(api_bed.net.link_outside.ip)
        pod = tell_pod(
            cluster,
            namespace,
            containerStatuses=[running],
            conditions=[ready],
            podIP=address,
            podIPs=[{"ip": address}],
        )
        tell(cluster, namespace, service, pod)
        shown = asked(cluster, NAME, "-n", namespace, code=1).stdout
        assert "engine    ready: serving 3 requests" in shown
        assert "25% 50 of 200 pages of 16 tokens, 200 MiB" in shown
        assert "in force in 1 of 1 pods" in shown
        assert asked_for == ["/status"]
        path = account(cluster, namespace, tmp_path, "get", "list", resource="pods")
        shown = asked(cluster, NAME, "-n", namespace, kubeconfig=path, code=1).stdout
        assert f"engine    (not asked: not permitted: get pods/proxy in namespace {namespace})" in shown
        assert asked_for == ["/status"]


@contextmanager
def engine(address: str, document: dict[str, Any]) -> Iterator[tuple[int, list[str]]]:
    """Port and paths asked for, of something that answers as an engine does."""
    asked_for: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_for.append(self.path)
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer((address, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, asked_for
        server.shutdown()
        thread.join()


def test_does_not_fit(cluster: Cluster, namespace: str) -> None:
    service = make(cluster, namespace, hardware={"resourceName": "cpu", "count": 2, "memory": "64Mi"})
    pod = tell_pod(cluster, namespace, conditions=[])
    fit = plan.fit(service, {})
    tell(cluster, namespace, service, pod, fits=fit.fits, fit_message=fit.message)
    shown = asked(cluster, NAME, "-n", namespace, code=1).stdout
    assert fit.message in shown.partition("What to do\n")[2].partition("Conditions")[0]


def test_a_user_who_may_read_the_service_only(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    make(cluster, namespace)
    path = account(cluster, namespace, tmp_path, "get", "list")
    shown = asked(cluster, NAME, "-n", namespace, kubeconfig=path, code=1).stdout
    missing = shown.partition("Not shown\n")[2].splitlines()
    assert [line.split()[0] for line in missing] == ["Deployment", "pods", "revisions", "events"]
    assert all("(not asked: not permitted: " in line for line in missing)
    assert "no operator has said anything about it" in shown
    assert f"{names.PLURAL}.{names.GROUP}" in asked(cluster, "-A", kubeconfig=path, code=1).stderr


def test_the_role_view_has_what_the_page_says(cluster: Cluster) -> None:
    role = cluster.get("clusterrole", "view")
    assert role is not None
    granted = {
        f"{resource}.{group}".rstrip(".")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if {"get", "list"} <= set(rule["verbs"])
    }
    assert {"pods", "deployments.apps", "configmaps", "controllerrevisions.apps", "events"} <= granted
    assert "pods/proxy" not in granted


def account(cluster: Cluster, namespace: str, folder: Path, *verbs: str, resource: str = "") -> Path:
    """A kubeconfig of somebody with these verbs on InferenceServices, on one more resource, and on nothing else."""
    cluster.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    where = ("-n", namespace)
    allowed = [f"--verb={','.join(verbs)}", f"--resource={names.PLURAL}.{names.GROUP}"]
    allowed += [f"--resource={resource}"] if resource else []
    cluster.kubectl("create", "role", "reader", *allowed, *where)
    cluster.kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader", *where)
    allowed_account = f"system:serviceaccount:{namespace}:reader"
    cluster.until_allowed(allowed_account, verbs[0], f"{names.PLURAL}.{names.GROUP}", namespace)
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", "reader", *where).strip()
    for user in document["users"]:
        user["user"] = {"token": token}
    path = folder / "reader.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_table_and_names_that_are_not_there(cluster: Cluster, namespace: str) -> None:
    make(cluster, namespace)
    rows = asked(cluster, "-n", namespace, code=1).stdout.splitlines()[2:]
    assert [row.split()[:3] for row in rows] == [[NAME, "Unknown", "NoStatus"]]
    assert f"{namespace} " in asked(cluster, "-A", code=1).stdout
    said = asked(cluster, "other", "-n", namespace, code=1).stderr
    assert f"no InferenceService 'other' in namespace '{namespace}'. There are: {NAME}" in said
    said = asked(cluster, NAME, "--context", "nowhere", code=1).stderr
    assert "--context: got 'nowhere', expected one of the kubeconfig" in said
