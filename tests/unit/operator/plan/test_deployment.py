"""The Deployment: replicas, strategy, and the time that pods get to end."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api, plan
from tidemark_operator.plan import engine_config


def deployment(document: dict[str, Any], spare: bool | None = None) -> dict[str, Any]:
    found: dict[str, Any] = plan.wanted(api.parse(document), plan.Facts(image="x", spare_device=spare))[-1]["spec"]
    return found


@pytest.mark.parametrize("more", [{}, {"replicas": 5}, {"replicas": None}])
def test_b071_with_an_autoscaler_replicas_are_never_written(more: dict[str, Any]) -> None:
    document = manifests.small(autoscaling={"min": 4, "max": 8}, **more)
    assert "replicas" not in deployment(document)
    assert deployment({**document, "spec": {**document["spec"], "suspend": True}})["replicas"] == 0


@pytest.mark.parametrize(("spec", "replicas"), [({}, 1), ({"replicas": 3}, 3), ({"replicas": 3, "suspend": True}, 0)])
def test_replicas_of_the_spec(spec: dict[str, Any], replicas: int) -> None:
    assert deployment(manifests.small(**spec))["replicas"] == replicas


SURGE, REPLACE = {"maxSurge": 1, "maxUnavailable": 0}, {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize(
    ("strategy", "resource", "spare", "expected"),
    [
        ("surge", "nvidia.com/gpu", False, SURGE),
        ("replace", "cpu", True, REPLACE),
        ("auto", "cpu", None, SURGE),
        ("auto", "nvidia.com/gpu", None, REPLACE),
        ("auto", "nvidia.com/gpu", True, SURGE),
        ("auto", "cpu", False, REPLACE),
    ],
)
def test_one_device_is_no_deadlock(strategy: str, resource: str, spare: bool | None, expected: dict[str, int]) -> None:
    document = manifests.changed(
        "spec.hardware.resourceName", resource, manifests.small(rollout={"strategy": strategy})
    )
    assert deployment(document, spare)["strategy"] == {"type": "RollingUpdate", "rollingUpdate": expected}


@pytest.mark.parametrize("drain", [0, 1, 120])
def test_whoever_came_in_last_has_the_whole_drain_time_before_the_kill(drain: int) -> None:
    document = manifests.small(rollout={"drainSeconds": drain})
    server = engine_config.parse(api.parse(document)).server
    assert server.lame_duck_seconds == 5
    assert server.drain_seconds == server.lame_duck_seconds + drain
    pod = deployment(document)["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == server.drain_seconds + 15
    assert "lifecycle" not in pod["containers"][0], "the engine itself goes on serving; one of the two is enough"


def test_a_failed_rollout_has_a_deadline_and_a_short_history() -> None:
    spec = deployment(manifests.small(rollout={"progressDeadlineSeconds": 61}))
    assert (spec["progressDeadlineSeconds"], spec["revisionHistoryLimit"]) == (61, 3)
