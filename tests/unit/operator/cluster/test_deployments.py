"""From a Deployment and its pods to the next move."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import deployments, store


def deployment(replicas: int = 1, image: str = "new", **rolling: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default", "uid": "u", "generation": 1},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling or {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "image": image, "env": [{"name": "A", "value": "1"}]}]},
            },
        },
    }


def pod(name: str, image: str = "new", ready: bool = True, ending: bool = False) -> dict[str, Any]:
    hash_ = deployments.template_hash(deployment(image=image))
    metadata: dict[str, Any] = {"name": name, "labels": {deployments.TEMPLATE_HASH_LABEL: hash_}}
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}


SURGE = {"maxSurge": 1, "maxUnavailable": 0}
DRAIN = {"maxSurge": 0, "maxUnavailable": 1}
STUCK = {"maxSurge": 0, "maxUnavailable": 0}


@pytest.mark.parametrize(
    ("replicas", "rolling", "pods", "start", "stop"),
    [
        pytest.param(2, SURGE, [], 2, (), id="from nothing"),
        pytest.param(1, SURGE, [pod("a")], 0, (), id="as wanted"),
        pytest.param(1, SURGE, [pod("a", "old")], 1, (), id="surge starts the new one first"),
        pytest.param(1, SURGE, [pod("a", "old"), pod("b", ready=False)], 0, (), id="surge waits until it is ready"),
        pytest.param(1, SURGE, [pod("a", "old"), pod("b")], 0, ("a",), id="surge stops the old one then"),
        pytest.param(1, DRAIN, [pod("a", "old")], 0, ("a",), id="drain stops the old one first"),
        pytest.param(1, DRAIN, [pod("a", "old", ending=True)], 0, (), id="drain waits until it is gone"),
        pytest.param(1, DRAIN, [], 1, (), id="drain starts the new one then"),
        pytest.param(1, SURGE, [pod("a", "old", ready=False)], 1, ("a",), id="a broken old one is not kept"),
        pytest.param(0, SURGE, [pod("a"), pod("b")], 0, ("a", "b"), id="to nothing"),
        pytest.param(1, SURGE, [pod("a"), pod("b", ready=False)], 0, ("b",), id="too many: the unready one goes"),
        pytest.param(2, DRAIN, [pod("a", "old"), pod("b", "old")], 0, ("a",), id="one at a time"),
        pytest.param(4, {}, [pod(n, "old") for n in "abcd"], 1, ("a",), id="a quarter each by default"),
        pytest.param(1, STUCK, [pod("a", "old")], 0, ("a",), id="no margin is no deadlock"),
    ],
)
def test_decide(
    replicas: int, rolling: dict[str, int], pods: list[dict[str, Any]], start: int, stop: tuple[str, ...]
) -> None:
    wanted = deployment(replicas)
    wanted["spec"]["strategy"]["rollingUpdate"] = rolling
    assert deployments.decide(wanted, pods) == deployments.Decision(start, stop)


def test_recreate_ends_all_before_it_starts_any() -> None:
    wanted = deployment(2)
    wanted["spec"]["strategy"] = {"type": "Recreate"}
    old = [pod("a", "old"), pod("b", "old")]
    assert deployments.decide(wanted, old) == deployments.Decision(0, ("a", "b"))
    assert deployments.decide(wanted, [pod("a", "old", ending=True)]) == deployments.Decision(1, ())
    assert deployments.decide(wanted, []) == deployments.Decision(2, ())


def test_order_of_keys_does_not_change_the_hash_b061() -> None:
    one, other = deployment(), deployment()
    container = other["spec"]["template"]["spec"]["containers"][0]
    other["spec"]["template"]["spec"]["containers"][0] = dict(reversed(container.items()))
    assert deployments.template_hash(one) == deployments.template_hash(other)


def controller(objects: store.Store) -> deployments.DeploymentController:
    numbers = itertools.count()
    return deployments.DeploymentController(objects, clock_.SystemClock(), lambda: f"{next(numbers)}")


def stored(manifest: dict[str, Any]) -> dict[str, Any]:
    manifest = copy.deepcopy(manifest)
    manifest["metadata"] = {"name": "d", "namespace": "default"}
    return manifest


def test_an_idle_deployment_causes_no_writes() -> None:
    objects = store.Store()
    made = objects.apply(stored(deployment(2)), "m")
    work = controller(objects)
    work.sync(made)
    version = objects.version
    for _ in range(20):
        work.sync(objects.list("Deployment")[0])
    assert objects.version == version
    assert len(objects.list("Pod")) == 2


def test_pods_carry_template_owner_and_hash() -> None:
    objects = store.Store()
    made = objects.apply(stored(deployment()), "m")
    controller(objects).sync(made)
    [found] = objects.list("Pod", labels={"app": "d"})
    assert found["spec"] == made["spec"]["template"]["spec"]
    assert (interface.controller_of(found) or {})["uid"] == made["metadata"]["uid"]
    assert found["metadata"]["labels"][deployments.TEMPLATE_HASH_LABEL] == deployments.template_hash(made)


def test_status_speaks_of_the_generation_it_acted_on_b069() -> None:
    wanted = {**deployment(2), "metadata": {"generation": 7}}
    found = deployments.status(wanted, [pod("a"), pod("b", "old"), pod("c", ready=False)], clock_.SystemClock().now())
    assert found["observedGeneration"] == 7
    assert (found["replicas"], found["updatedReplicas"], found["readyReplicas"]) == (3, 2, 2)
