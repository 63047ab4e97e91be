"""The CRD as kubectl shows and uses it: apply, get, explain, scale, status, wait."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import crd_cases
import pytest

from tidemark_operator import api, status

if TYPE_CHECKING:
    from bed.cluster import Cluster


N = ("-n", crd_cases.NAMESPACE)
NAME = "shown"
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "1 of 1 replicas answer.",
    "observedGeneration": 1,
    "lastTransitionTime": "2025-03-04T05:06:07Z",
}


@pytest.fixture(scope="module")
def cluster(api_cluster: Cluster) -> Cluster:
    crd_cases.install(api_cluster)
    return api_cluster


@pytest.fixture
def shown(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """A service that is stored, without `spec.replicas`."""
    document = crd_cases.made("metadata.name", NAME)
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    stored = cluster.get("tide", NAME, crd_cases.NAMESPACE)
    assert stored is not None
    yield stored
    cluster.kubectl("delete", "tide", NAME, *N)


def write_status(cluster: Cluster, made: dict[str, Any]) -> dict[str, Any]:
    """As the operator does, by merge patch of the subresource; what is stored then."""
    patch = json.dumps({"status": made})
    text = cluster.kubectl("patch", "tide", NAME, *N, "--subresource=status", "--type=merge", "-p", patch, "-o", "json")
    return dict(json.loads(text)["status"])


def test_applying_the_crd_by_hand_again_changes_nothing(cluster: Cluster) -> None:
    assert "unchanged" in cluster.kubectl("apply", "-f", str(crd_cases.CRD_FILE))


def test_the_columns(cluster: Cluster, shown: dict[str, Any]) -> None:
    write_status(
        cluster,
        {
            "conditions": [READY],
            "model": "demo",
            "readyReplicas": 1,
            "devices": "1 × nvidia.com/gpu",
            "kv": "int8, 12 % of 2000 pages",
            "url": "http://shown.example",
            "phase": "Ready",
        },
    )
    head, row = cluster.kubectl("get", "tide", NAME, *N).splitlines()
    assert head.split() == ["NAME", "READY", "REASON", "MODEL", "REPLICAS", "DEVICES", "KV", "URL", "AGE"]
    assert row.split()[:5] == [NAME, "True", "Ready", "demo", "1"]
    for cell in ("1 × nvidia.com/gpu", "int8, 12 % of 2000 pages", "http://shown.example"):
        assert cell in row
    assert "PHASE" in cluster.kubectl("get", "tide", NAME, *N, "-o", "wide")


def test_the_whole_status_of_the_operator_is_stored_as_written(cluster: Cluster, shown: dict[str, Any]) -> None:
    observed = status.Observed(wanted_hash="abc", url="http://shown.example", warnings=("one",))
    made = status.compute(api.parse(shown), observed, datetime.datetime(2025, 3, 4, tzinfo=datetime.UTC))
    assert write_status(cluster, made) == made
    stored = cluster.get("tide", NAME, crd_cases.NAMESPACE)
    assert stored is not None
    assert stored["metadata"]["generation"] == shown["metadata"]["generation"]


def test_waiting_for_ready_works(cluster: Cluster, shown: dict[str, Any]) -> None:
    write_status(cluster, {"conditions": [READY]})
    assert "condition met" in cluster.kubectl("wait", "--for=condition=Ready", f"tide/{NAME}", *N, "--timeout=10s")


def test_kubectl_scale_works_without_replicas_in_the_spec(cluster: Cluster, shown: dict[str, Any]) -> None:
    assert "replicas" not in shown["spec"]
    write_status(cluster, {"replicas": 1, "selector": "a=b"})
    cluster.kubectl("scale", f"tide/{NAME}", "--replicas=3", *N)
    stored = cluster.get("tide", NAME, crd_cases.NAMESPACE)
    assert stored is not None
    assert stored["spec"]["replicas"] == 3
    path = f"/apis/{shown['apiVersion']}/namespaces/{crd_cases.NAMESPACE}/inferenceservices/{NAME}/scale"
    scale = json.loads(cluster.kubectl("get", "--raw", path))
    assert (scale["spec"]["replicas"], scale["status"]) == (3, {"replicas": 1, "selector": "a=b"})


def test_reading_the_scale_needs_replicas_in_the_spec(cluster: Cluster, shown: dict[str, Any]) -> None:
    """Why the manual tells users of a HorizontalPodAutoscaler to set it."""
    path = f"/apis/{shown['apiVersion']}/namespaces/{crd_cases.NAMESPACE}/inferenceservices/{NAME}/scale"
    done = cluster.run([cluster.kubectl_program, "get", "--raw", path], check=False)
    assert "does not exist" in done.stderr


def test_scaling_out_of_the_autoscalers_range_is_refused(cluster: Cluster, shown: dict[str, Any]) -> None:
    cluster.kubectl("patch", "tide", NAME, *N, "--type=merge", "-p", '{"spec": {"autoscaling": {"max": 2}}}')
    done = cluster.run([cluster.kubectl_program, "scale", f"tide/{NAME}", "--replicas=3", *N], check=False)
    assert "expected from autoscaling.min to autoscaling.max, 1 to 2" in done.stderr


def test_explain_tells_type_range_and_default(cluster: Cluster) -> None:
    explain = [cluster.kubectl_program, "explain", "tide.spec.kvCache"]
    # What `explain` reads is published a moment after the definition.
    text = " ".join(cluster.eventually("an explanation", lambda: cluster.run(explain, check=False).stdout).split())
    assert "Tokens of one page. A whole number from 1 to 256, in tokens. Default: 16." in text
    assert "enum: auto, float32" in text


def test_nothing_of_the_spec_is_added_by_the_api_server(cluster: Cluster, shown: dict[str, Any]) -> None:
    """A default in the schema could not be told from a value of the user's."""
    assert shown["spec"] == crd_cases.made("metadata.name", NAME)["spec"]
