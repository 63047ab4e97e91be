"""The real engine with the real model in a pod under the restricted level answers through its Service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from bed import cluster, images, pods, running

IMAGE = "localhost/tidemark-bed/engine:1"
MODEL = "smollm2-135m"
PORT = 8000
START_SECONDS = 240.0
"""The kernels are compiled in the pod; the machine may be busy with other things."""
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 24,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def namespace(smollm2_path: Path, node_bed: running.Bed) -> Iterator[str]:
    """With a running engine in it, and a Service in front."""
    with node_bed.namespace("bed-engine") as made:
        engine = engine_pod(node_bed.load(images.host_python(IMAGE, ["tidemark"])))
        node_bed.apply(engine, pods.service("engine", PORT), namespace=made)
        pods.wait_until_ready(node_bed, "engine", made, START_SECONDS)
        yield made


@pytest.fixture
def url(node_bed: running.Bed, namespace: str) -> str:
    return pods.reachable_url(node_bed, "engine", namespace)


def engine_pod(image: str) -> cluster.Object:
    writable = {"/tmp": "tmp", "/var/cache/tidemark": "cache"}
    return pods.restricted(
        "engine",
        image,
        ["serve", MODEL, "--host", "0.0.0.0", "--port", str(PORT), "--threads", "1", "--memory", "2Gi"],
        limits={"cpu": "1", "memory": "2Gi"},
        container={
            "volumeMounts": [{"name": name, "mountPath": path} for path, name in writable.items()],
            "readinessProbe": {"httpGet": {"path": "/health/ready", "port": PORT}, "periodSeconds": 1},
        },
        spec={
            "volumes": [{"name": name, "emptyDir": {}} for name in writable.values()],
            "terminationGracePeriodSeconds": 10,
        },
    )


def test_a_chat_is_answered_through_the_service(url: str) -> None:
    answer = httpx.post(f"{url}/v1/chat/completions", json=QUESTION, timeout=60)
    assert answer.status_code == 200, answer.text
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]


def test_an_answer_is_streamed_through_the_service(url: str) -> None:
    with httpx.stream("POST", f"{url}/v1/chat/completions", json={**QUESTION, "stream": True}, timeout=60) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    pieces = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-1]]
    assert "Paris" in "".join(piece.get("content") or "" for piece in pieces)


def test_the_kernels_are_the_compiled_ones_and_belong_to_nobody(
    node_bed: running.Bed, namespace: str, url: str
) -> None:
    assert "cpu-c" in json.dumps(httpx.get(f"{url}/status", timeout=30).json()["kernelPaths"])
    program = "import os; print(os.getuid(), open('/proc/self/status').read())"
    said = node_bed.kubectl("exec", "engine", "-n", namespace, "--", "python", "-c", program)
    assert said.startswith("65532 ")
    assert "CapEff:\t0000000000000000" in said
    assert "NoNewPrivs:\t1" in said
    assert "Seccomp:\t2" in said
