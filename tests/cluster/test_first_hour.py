"""What a site does first, word for word as the documentation has it: install, apply the example, wait, chat, remove."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chart
import httpx
import pytest
import yaml
from bed import control_plane, errors, images, pods

from tidemark_operator import names

if TYPE_CHECKING:
    from bed.running import Bed

NAME = "smollm2"
EXAMPLE = chart.ROOT / "examples" / "smollm2.yaml"
IMAGES = ("localhost/tidemark/operator:0.1.0", "localhost/tidemark/engine:0.1.0")
"""As `images.registry=localhost` makes the chart name them."""
START_SECONDS = 400
"""The kernels are compiled in the pod; the machine may be busy with other things."""
ALWAYS_THERE = {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}
"""In every namespace, made by Kubernetes."""
KEPT = {f"Lease/{names.FIELD_MANAGER}"}
"""What the operator made for itself, and no release knows; it says that nobody leads."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def site(smollm2_path: Path, node_bed: Bed) -> Iterator[tuple[str, str]]:
    """Two namespaces that take restricted pods only, the operator's and a user's, on a node that has the images.

    The images are links to this checkout's `tidemark` and models, see `images.host_python`.
    """
    for image in IMAGES:
        node_bed.load(images.host_python(image, ["tidemark"]))
    with node_bed.namespace("system") as system, node_bed.namespace("user") as user:
        yield system, user
        node_bed.run([helm(), "uninstall", "tidemark", "-n", system, "--ignore-not-found"], check=False)


def test_from_helm_install_to_an_answer_and_back(node_bed: Bed, site: tuple[str, str], tmp_path: Path) -> None:
    system, user = site
    before = cluster_wide(node_bed)
    # Other tests may have made the definition by hand.
    options = ("--take-ownership", "--set=images.registry=localhost", "--set=images.pullPolicy=Never")
    wait = ("--wait", "--timeout=240s")
    said = node_bed.run(
        [helm(), "install", "tidemark", str(chart.CHART), "-n", system, *options, *wait], seconds=300
    ).stdout
    assert "kind: InferenceService" in said  # what to paste

    node_bed.kubectl("apply", "-n", user, "-f", str(example(tmp_path)))
    until = ("--for=condition=Ready", f"--timeout={START_SECONDS}s")
    wanted = f"{names.PLURAL}.{names.GROUP}/{NAME}"
    try:
        node_bed.kubectl("wait", wanted, "-n", user, *until, seconds=START_SECONDS + 20)
    except errors.CommandFailed as cause:
        raise AssertionError(node_bed.kubectl("get", "tide,pods,events", "-n", user, "-o", "yaml")) from cause
    url = pods.reachable_url(node_bed, NAME, user)
    assert "Paris" in streamed_answer(f"{url}/v1/chat/completions")
    assert "cpu-c" in json.dumps(httpx.get(f"{url}/status", timeout=30, trust_env=False).json()["kernelPaths"])
    assert_engine_belongs_to_nobody(node_bed, user)
    log = node_bed.kubectl("logs", "deployment/tidemark", "-n", system)
    assert "orbidden" not in log, log  # in every refusal of an API server
    assert "Traceback" not in log, log

    node_bed.kubectl("delete", "-n", user, "-f", str(EXAMPLE))
    node_bed.eventually("nothing of the service is left", lambda: contents(node_bed, user) == ALWAYS_THERE)
    node_bed.run([helm(), "uninstall", "tidemark", "-n", system, "--wait"], seconds=300)
    node_bed.eventually("nothing of the operator", lambda: contents(node_bed, system) == ALWAYS_THERE | KEPT)
    assert cluster_wide(node_bed) == before | {f"CustomResourceDefinition/{names.PLURAL}.{names.GROUP}"}


def assert_engine_belongs_to_nobody(bed: Bed, namespace: str) -> None:
    """What the kernel says of the engine's process; that the namespace took the pod says it of the manifest."""
    (pod,) = bed.objects("pods", namespace, f"{names.SERVICE_LABEL}={NAME}")
    program = "import os; print(os.getuid(), open('/proc/1/status').read())"
    said = bed.kubectl("exec", pod["metadata"]["name"], "-n", namespace, "--", "python", "-c", program)
    assert said.startswith("65532 ")
    assert "CapEff:\t0000000000000000" in said
    assert "NoNewPrivs:\t1" in said
    assert "Seccomp:\t2" in said


def helm() -> str:
    """The bed's."""
    return control_plane.program("helm")


def example(folder: Path) -> Path:
    """The example, but for what the scheduler counts: it wants two cores, which is all that the bed's node may have."""
    document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    document["spec"]["podTemplate"] = {"resources": {"requests": {"cpu": "100m", "memory": "512Mi"}}}
    adapted = folder / EXAMPLE.name
    adapted.write_text(yaml.safe_dump(document))
    return adapted


def streamed_answer(url: str) -> str:
    """What the model says, put together from more than one piece."""
    question = {
        "model": NAME,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 24,
        "stream": True,
    }
    with httpx.Client(trust_env=False, timeout=120) as client, client.stream("POST", url, json=question) as streamed:
        lines = [line for line in streamed.iter_lines() if line]
        assert streamed.status_code == 200, lines
    assert lines[-1] == "data: [DONE]"
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-1]]
    pieces = [delta["content"] for delta in deltas if delta.get("content")]
    assert len(pieces) > 3
    return "".join(pieces)


def contents(bed: Bed, namespace: str) -> set[str]:
    """`kind/name` of everything in a namespace, whatever kinds there are; events and metrics, which are views, not."""
    kinds = bed.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    wanted = [kind for kind in kinds if not kind.startswith("events")]
    return _names(bed, ",".join(wanted), "-n", namespace)


def cluster_wide(bed: Bed) -> set[str]:
    """The same of what is in no namespace and could be the chart's."""
    kinds = "clusterroles.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io"
    return _names(bed, f"{kinds},customresourcedefinitions.apiextensions.k8s.io,priorityclasses.scheduling.k8s.io")


def _names(bed: Bed, kinds: str, *where: str) -> set[str]:
    columns = r'jsonpath={range .items[*]}{.kind} {.metadata.name}{"\n"}{end}'
    lines = bed.kubectl("get", kinds, *where, "-o", columns).splitlines()
    return {"/".join(line.split()) for line in lines}
