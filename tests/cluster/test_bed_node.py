"""The whole node: pods from images made here run under the restricted level, Services reach them, devices count."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from bed import errors, images, layout, lifecycle, pods, processes, running, traces

HELLO = "localhost/tidemark-bed/hello:1"
PYTHON = "localhost/tidemark-bed/python:1"
PORT = 8080
POD_SECONDS = 180
"""For a pod that ends by itself: a second or two on an idle machine."""


@pytest.fixture(scope="module")
def hello(node_bed: running.Bed) -> str:
    """An image that is one static file and answers `hello from POD`."""
    return node_bed.load(images.pod_program(HELLO, "serve", f":{PORT}", "hello"))


@pytest.fixture(scope="module")
def python(node_bed: running.Bed) -> str:
    return node_bed.load(images.host_python(PYTHON))


@pytest.fixture
def namespace(node_bed: running.Bed) -> Iterator[str]:
    """Restricted pods only."""
    with node_bed.namespace("bed-node") as made:
        yield made


def test_a_service_answers_inside_and_outside(node_bed: running.Bed, namespace: str, hello: str) -> None:
    probe = {"readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1}}
    node_bed.apply(pods.restricted("web", hello, container=probe), pods.service("web", PORT), namespace=namespace)
    pods.wait_until_ready(node_bed, "web", namespace)
    url = pods.reachable_url(node_bed, "web", namespace) + "/"
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.read() == b"hello from web\n"
    asking = pods.restricted("asking", hello, command=[images.POD_PROGRAM, "get", url], spec={"restartPolicy": "Never"})
    node_bed.apply(asking, namespace=namespace)
    node_bed.kubectl(
        "wait",
        "pod/asking",
        "-n",
        namespace,
        "--for=jsonpath={.status.phase}=Succeeded",
        f"--timeout={POD_SECONDS}s",
        seconds=POD_SECONDS + 20,
    )
    assert node_bed.kubectl("logs", "asking", "-n", namespace) == "hello from web\n"


def test_a_pod_asks_the_api_server_under_its_own_account(node_bed: running.Bed, namespace: str, python: str) -> None:
    program = (
        "from kubernetes import client, config; config.load_incluster_config();"
        f"print([item.metadata.name for item in client.CoreV1Api().list_namespaced_config_map('{namespace}').items])"
    )
    spec = {"automountServiceAccountToken": True, "enableServiceLinks": True, "restartPolicy": "Never"}
    node_bed.kubectl("create", "role", "reader", "--verb=list", "--resource=configmaps", "-n", namespace)
    account = f"--serviceaccount={namespace}:default"
    node_bed.kubectl("create", "rolebinding", "reader", "--role=reader", account, "-n", namespace)
    node_bed.apply(pods.restricted("client", python, ["-c", program], spec=spec), namespace=namespace)
    node_bed.kubectl(
        "wait",
        "pod/client",
        "-n",
        namespace,
        "--for=jsonpath={.status.phase}=Succeeded",
        f"--timeout={POD_SECONDS}s",
        seconds=POD_SECONDS + 20,
    )
    assert "kube-root-ca.crt" in node_bed.kubectl("logs", "client", "-n", namespace)


def test_the_third_of_two_devices_waits_with_the_scheduler_s_sentence(
    node_bed: running.Bed, namespace: str, hello: str
) -> None:
    node_bed.set_devices({"nvidia.com/gpu": 2})
    for name in ("one", "two"):
        node_bed.apply(pods.restricted(name, hello, limits={"nvidia.com/gpu": "1"}), namespace=namespace)
        pods.wait_until_ready(node_bed, name, namespace)
    node_bed.apply(pods.restricted("three", hello, limits={"nvidia.com/gpu": "1"}), namespace=namespace)
    sentence = node_bed.eventually(
        "the scheduler says why", lambda: pods.why_unscheduled(node_bed.get("pod", "three", namespace))
    )
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu" in sentence
    # Not by a third device: the scheduler may see it before the kubelet does, which then refuses the pod for ever.
    node_bed.kubectl("delete", "pod", "one", "-n", namespace)
    pods.wait_until_ready(node_bed, "three", namespace)


def test_a_container_over_its_memory_is_killed_for_it(node_bed: running.Bed, namespace: str, python: str) -> None:
    greedy = pods.restricted(
        "greedy",
        python,
        ["-c", "data = bytearray(400 << 20); print(len(data))"],
        limits={"memory": "64Mi"},
        spec={"restartPolicy": "Never"},
    )
    node_bed.apply(greedy, namespace=namespace)
    path = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    reason = node_bed.eventually(
        "it ends", lambda: node_bed.kubectl("get", "pod", "greedy", "-n", namespace, "-o", path)
    )
    assert reason == "OOMKilled"


def test_commands_run_in_a_container(node_bed: running.Bed, namespace: str, python: str) -> None:
    node_bed.apply(pods.restricted("shell", python, ["-c", "import time; time.sleep(600)"]), namespace=namespace)
    pods.wait_until_ready(node_bed, "shell", namespace)
    program = "import os, yaml, tidemark_runtime; print(os.getuid(), os.access('/usr', os.W_OK))"
    said = node_bed.kubectl("exec", "shell", "-n", namespace, "--", "python", "-c", program)
    assert said == "65532 False\n"


def test_a_chart_is_installed_with_helm(node_bed: running.Bed, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: tiny\nversion: 1.0.0\n")
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}"}}
    (tmp_path / "templates/one.yaml").write_text(json.dumps(made))
    node_bed.run(["helm", "install", "mine", str(tmp_path), "-n", namespace])
    assert node_bed.get("configmap", "mine", namespace) is not None


def test_a_node_with_pods_that_was_killed_leaves_nothing(needs_a_bed: None) -> None:
    name = f"second-{os.getpid()}"
    bed = lifecycle.up(name, layout.Options(size="node"))
    try:
        image = bed.load(images.pod_program(HELLO, "serve", f":{PORT}", "hello"))
        bed.eventually("an account", lambda: bed.get("serviceaccount", "default", "default"))
        bed.apply(pods.restricted("web", image), namespace="default")
        pods.wait_until_ready(bed, "web", "default")
        groups = traces.cgroups(traces.container_ids(bed.layout))
        inside = sorted({int(pid) for group in groups for pid in (group / "cgroup.procs").read_text().split()})
        assert inside
        for part in reversed(list(bed.record.parts)):
            bed.kill(part)
        assert [pid for pid in inside if processes.is_running(pid)] == inside  # containers outlive their keepers
    finally:
        lifecycle.down(name)
    assert lifecycle.leftovers(name) == []
    assert [group for group in groups if group.exists()] == []
    assert [pid for pid in inside if processes.is_running(pid)] == []
    with pytest.raises(errors.BedError, match="there is no bed"):
        lifecycle.find(name)
