"""The PodDisruptionBudget, only where it helps."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api, names, plan


def budgets(**spec: Any) -> list[dict[str, Any]]:
    wanted = plan.wanted(api.parse(manifests.small(**spec)), plan.Facts(image="x"))
    return [item for item in wanted if item["kind"] == "PodDisruptionBudget"]


@pytest.mark.parametrize(
    "spec",
    [{}, {"replicas": 1}, {"replicas": 0}, {"replicas": None}, {"autoscaling": {"min": 1, "max": 1}}],
)
def test_one_pod_never_blocks_the_drain_of_its_node(spec: dict[str, Any]) -> None:
    assert budgets(**spec) == []


@pytest.mark.parametrize(
    "spec", [{"replicas": 2}, {"replicas": 2, "suspend": True}, {"autoscaling": {"min": 1, "max": 3}}]
)
def test_several_pods_go_one_after_the_other(spec: dict[str, Any]) -> None:
    (budget,) = budgets(**spec)
    assert budget["spec"] == {
        "selector": {"matchLabels": names.selector("demo")},
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
