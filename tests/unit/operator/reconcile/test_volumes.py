"""Pods that wait for a volume are asked about it, after a while, and the status says what they lack."""

from __future__ import annotations

from typing import Any

from reconcile_bench import Bench, settled

from tidemark_operator.cluster import interface

COMPLAINT = interface.Complaint(
    "FailedMount", 'MountVolume.SetUp failed for volume "precision" : configmap "maps" not found'
)


async def waiting(clock: Any) -> Bench:
    bench = await settled(clock)
    bench.cluster.pods_become_ready = False
    since = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in bench.pods():
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
        bench.cluster.objects.patch_status(
            interface.key_of(pod), {"phase": "Pending", "conditions": [scheduled], "containerStatuses": []}
        )
        bench.cluster.said_of_pods[pod["metadata"]["name"]] = [COMPLAINT]
    return bench


async def test_the_status_names_what_is_missing(clock: Any) -> None:
    bench = await waiting(clock)
    await bench.run()
    assert "ConfigMap" not in bench.condition("Degraded")["message"]  # a mount takes a moment
    await clock.advance(6)
    await bench.run()
    degraded = bench.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ConfigMapNotFound")
    assert "spec.kvCache.precision.mapRef" in degraded["message"]
