"""`tidemark inspect` on a node: two services, one of them broken; from outside, and by the chart's CronJob in a pod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chart
import operator_runner
import pytest
from bed import build, control_plane, images

if TYPE_CHECKING:
    from bed.running import Bed

IMAGE, TAG = "localhost/tidemark-bed/tidemark", "inspection"
RELEASE, JOB = "tidemark", "tidemark-inspection"
FINE, BROKEN = "fine", "broken"

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def namespace(node_bed: Bed, image: str) -> Iterator[str]:
    """The operator, its CronJob and both services, where only restricted pods are taken."""
    build.build(lambda _: None)
    helm = control_plane.program("helm")
    node_bed.load(images.host_python(f"{IMAGE}:{TAG}", ()))
    repository, _, tag = image.rpartition(":")
    values = [
        f"images.operator.repository={IMAGE},images.operator.tag={TAG},images.pullPolicy=Never",
        f"images.engine.repository={repository},images.engine.tag={tag}",
        "inspection.enabled=true",
    ]
    with node_bed.namespace("inspection") as made:
        words = ["upgrade", "--install", RELEASE, str(chart.CHART), "--take-ownership"]
        sets = [f"--set={value}" for value in (*values, f"watchNamespaces={{{made}}}")]
        node_bed.run([helm, *words, *sets, "-n", made])
        node_bed.eventually("the operator is there", lambda: is_ready(node_bed, made))
        node_bed.apply(
            operator_runner.small(FINE), operator_runner.small(BROKEN, model={"name": "crashes"}), namespace=made
        )
        for name, reason in ((FINE, "Ready"), (BROKEN, "CrashLoopBackOff")):
            node_bed.eventually(
                f"{name} is {reason}", lambda name=name, reason=reason: is_(node_bed, made, name, reason)
            )
        yield made
        node_bed.run([helm, "uninstall", RELEASE, "-n", made, "--wait", "--ignore-not-found"], seconds=180)


def is_ready(bed: Bed, namespace: str) -> bool:
    found = bed.get("deployment", RELEASE, namespace) or {}
    return bool(found.get("status", {}).get("readyReplicas"))


def is_(bed: Bed, namespace: str, name: str, reason: str) -> bool:
    found = bed.get("tide", name, namespace)
    conditions = (found or {}).get("status", {}).get("conditions", [])
    ready = next((item for item in conditions if item["type"] == "Ready"), {})
    return bool(ready.get("reason") == reason or (reason != "Ready" and ready.get("reason") == "ModelNotFound"))


def check(found: dict[str, Any], namespace: str) -> None:
    """Both are there; only the broken one has something wrong, and the engine of the other was asked."""
    fine, broken = f"{namespace}/{FINE}", f"{namespace}/{BROKEN}"
    answered = {service["name"]: service["answered"] for service in found["services"]}
    assert answered == {fine: 1, broken: 0}
    wrong = {(item["check"], item["service"], item["severity"]) for item in found["findings"]}
    assert ("conditions", broken, "critical") in wrong
    assert not {item for item in wrong if item[1] != broken and item[2] != "info"}, found["findings"]
    states = {item["name"]: item for item in found["checks"]}
    assert fine in states["configuration-drift"]["fine"]
    assert states["operator"]["state"] == "fine", states["operator"]


def test_from_outside_through_the_api_server(node_bed: Bed, namespace: str, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "tidemark"), "inspect", "-n", namespace, "-o", "json"]
    environment = {**node_bed.environment(), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    check(json.loads(done.stdout), namespace)


def test_the_cron_job_keeps_what_it_found(node_bed: Bed, namespace: str) -> None:
    """With the rights of the chart and no others; engines are asked at their own addresses."""
    node_bed.kubectl("create", "job", "now", f"--from=cronjob/{JOB}", "-n", namespace)

    def ended() -> list[dict[str, Any]]:
        job = node_bed.get("job", "now", namespace) or {}
        conditions = job.get("status", {}).get("conditions", [])  # FailureTarget stands before the pods are gone
        return [item for item in conditions if item["status"] == "True" and item["type"] in {"Complete", "Failed"}]

    ended_as = node_bed.eventually("the job has ended", ended)
    log = node_bed.kubectl("logs", "job/now", "-n", namespace)
    assert "Failed" in {item["type"] for item in ended_as}, log  # something critical was found
    kept = node_bed.get("configmap", JOB, namespace)
    assert kept is not None, log
    found = json.loads(kept["data"]["report.json"])
    check(found, namespace)
    assert found["source"]["asked"][0]["context"] == "(the service account of this pod)"
    assert kept["data"]["report.txt"].strip() in log
    assert kept["data"]["report.html"].startswith("<!doctype html>")
    assert kept["metadata"]["labels"]["app.kubernetes.io/component"] == "inspection"  # of the chart, still there
