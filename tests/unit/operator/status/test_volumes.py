"""A pod that waits for its volumes says which, and which field names it."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_operator.status import findings, volumes

MAP = 'MountVolume.SetUp failed for volume "precision" : configmap "maps" not found'
TLS = 'MountVolume.SetUp failed for volume "tls" : secret "site-tls" not found'
FOLDER = 'MountVolume.SetUp failed for volume "model" : hostPath type check failed: /models/x is not a directory'
KEY = 'MountVolume.SetUp failed for volume "scales" : references non-existent config key: scales.json'
SANDBOX = "Failed to create pod sandbox: rpc error: code = Unknown desc = no CNI"


def pod(*, sandbox: str = "", running: bool = False) -> dict[str, Any]:
    state = {"running": {}} if running else {"waiting": {"reason": "ContainerCreating"}}
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    if sandbox:
        conditions.append({"type": "PodReadyToStartContainers", "status": sandbox})
    return {
        "metadata": {"name": "p"},
        "status": {"phase": "Pending", "conditions": conditions, "containerStatuses": [{"state": state}]},
    }


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        (MAP, "ConfigMapNotFound", ("ConfigMap maps", "spec.kvCache.precision.mapRef")),
        (TLS, "SecretNotFound", ("Secret site-tls", "spec.access.tlsSecretRef")),
        (FOLDER, "FailedMount", ("/models/x is not a directory", "spec.model.source")),
        (KEY, "FailedMount", ("references non-existent config key: scales.json", "spec.kvCache.scalesRef")),
    ],
)
def test_the_cause_stands_in_the_finding(said: str, reason: str, words: tuple[str, ...]) -> None:
    found = findings.of_pod(pod(), complaints=[("FailedMount", said)])
    assert found is not None
    assert found.problem
    assert found.reason == reason
    for word in words:
        assert word in found.message


def test_a_network_that_is_not_there_is_told_too() -> None:
    found = findings.of_pod(pod(sandbox="False"), complaints=[("FailedCreatePodSandBox", SANDBOX)])
    assert found is not None
    assert found.reason == "FailedCreatePodSandBox"
    assert "no CNI" in found.message


def test_the_latest_of_those_about_volumes_counts() -> None:
    found = findings.of_pod(pod(), complaints=[("Evicted", "x"), ("FailedMount", TLS), ("FailedMount", MAP)])
    assert found is not None
    assert found.reason == "SecretNotFound"


SUMMARY = (
    "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[], failed to process volumes=[]: "
    "timed out waiting for the condition"
)


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        ((SUMMARY.format("tls"), MAP, TLS), "SecretNotFound", "Secret site-tls"),
        ((SUMMARY.format("tls precision"), MAP, TLS), "ConfigMapNotFound", "ConfigMap maps"),
        ((SUMMARY.format("tls"), MAP), "FailedMount", "Check spec.access.tlsSecretRef."),
        ((SUMMARY.format("x"),), "FailedMount", "Ask whoever runs the nodes."),
        ((SUMMARY.format("tls model"),), "FailedMount", "Check spec.access.tlsSecretRef and spec.model.source."),
        ((TLS, SUMMARY.format("tls")), "SecretNotFound", "Secret site-tls"),
    ],
)
def test_the_cause_is_told_and_not_what_sums_it_up(said: tuple[str, ...], reason: str, words: str) -> None:
    found = findings.of_pod(pod(), complaints=[("FailedMount", message) for message in said])
    assert found is not None
    assert found.reason == reason
    assert words in found.message


@pytest.mark.parametrize("ready", [pod(sandbox="True"), pod(running=True)])
def test_old_complaints_do_not_count_once_the_volumes_are_there(ready: dict[str, Any]) -> None:
    assert not volumes.is_waiting(ready)
    found = findings.of_pod(ready, complaints=[("FailedMount", MAP)])
    assert found is not None
    assert found.reason == "Starting"


def test_without_a_complaint_the_pod_starts() -> None:
    found = findings.of_pod(pod(), complaints=[("BackOff", "x")])
    assert found is not None
    assert (found.reason, found.problem) == ("Starting", False)
