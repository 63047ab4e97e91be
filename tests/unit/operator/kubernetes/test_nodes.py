from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tidemark_operator import errors, settings
from tidemark_operator.cluster.kubernetes import nodes

GPU = "nvidia.com/gpu"


def node(name: str, devices: int, **spec: Any) -> nodes.Node:
    labels = {"pool": spec.pop("pool", "a")}
    made = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": {GPU: str(devices)}}}
    return msgspec.convert(made, nodes.Node)


def pod(on: str | None, devices: int, phase: str = "Running", **more: Any) -> nodes.Pod:
    container = {"resources": {"requests": {GPU: str(devices)}}}
    made = {"spec": {"nodeName": on, "containers": [container], **more}, "status": {"phase": phase}}
    return msgspec.convert(made, nodes.Pod)


@pytest.mark.parametrize(
    ("pods", "count", "spare"),
    [
        ([], 2, True),
        ([], 3, False),
        ([pod("a", 1)], 1, True),
        ([pod("a", 1)], 2, False),
        ([pod("a", 2, phase="Succeeded"), pod("a", 2, phase="Failed")], 2, True),
        ([pod("b", 2)], 2, True),
        ([pod(None, 2, phase="Pending")], 2, True),
        ([pod("a", 2, phase="Pending")], 1, False),
        ([pod("a", 0, initContainers=[{"resources": {"limits": {GPU: 2}}}])], 1, False),
        ([pod("a", 1, initContainers=[{"resources": {"limits": {GPU: 1}}, "restartPolicy": "Always"}])], 1, False),
    ],
)
def test_devices_of_one_node_are_counted_as_the_scheduler_does(pods: list[nodes.Pod], count: int, spare: bool) -> None:
    assert nodes.has_spare([node("a", 2)], pods, GPU, count, {}) is spare


def test_devices_of_two_nodes_do_not_add_up() -> None:
    assert not nodes.has_spare([node("a", 1), node("b", 1)], [], GPU, 2, {})


def test_nodes_that_take_no_pods_do_not_count() -> None:
    assert not nodes.has_spare([node("a", 1, unschedulable=True)], [], GPU, 1, {})


def test_the_node_selector_decides() -> None:
    assert not nodes.has_spare([node("a", 1)], [], GPU, 1, {"pool": "b"})
    assert nodes.has_spare([node("a", 1, pool="b")], [], GPU, 1, {"pool": "b"})


def test_a_node_without_such_devices_has_none() -> None:
    assert not nodes.has_spare([node("a", 4)], [], "amd.com/gpu", 1, {})


async def test_it_is_asked_when_somebody_asks_and_the_answer_kept_for_seconds(
    api: Any, clock: Any, made: Callable[..., dict[str, Any]]
) -> None:
    taken = [{"name": "c", "resources": {"limits": {GPU: "2"}}}]
    api.put(made("Pod", "x", 1, service=None, spec={"nodeName": "a", "containers": taken}))
    api.put(made("Node", "a", 1, service=None, status={"allocatable": {GPU: "2"}}))
    asked = nodes.Nodes(api, settings.KubernetesSettings(nodes_seconds=5), clock)
    assert api.calls == []
    assert await asked.has_spare_device(GPU, 1, {}) is False
    assert await asked.has_spare_device(GPU, 2, {}) is False
    assert api.calls == [("list", "Node "), ("list", "Pod ")]
    await clock.advance(6)
    await asked.has_spare_device(GPU, 1, {})
    assert len(api.calls) == 4


async def test_where_no_node_is_large_enough_ending_a_pod_would_not_help(
    api: Any, clock: Any, made: Callable[..., dict[str, Any]]
) -> None:
    api.put(made("Node", "a", 1, service=None, status={"allocatable": {GPU: "2"}}))
    asked = nodes.Nodes(api, settings.KubernetesSettings(), clock)
    assert await asked.has_spare_device(GPU, 3, {}) is True
    assert await asked.has_spare_device(GPU, 1, {"pool": "nowhere"}) is True


def test_processors_are_counted_in_parts() -> None:
    """Pods of others ask for `250m`, and nodes offer `3920m`."""
    here = msgspec.convert({"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "3920m"}}}, nodes.Node)
    other = {"spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": "950m"}}}]}}
    pods = [msgspec.convert(other, nodes.Pod)] * 2
    assert nodes.has_spare([here], pods, "cpu", 2, {})
    assert not nodes.has_spare([here], pods, "cpu", 3, {})


async def test_not_being_allowed_to_look_is_no_answer(api: Any, clock: Any) -> None:
    api.fails = [errors.Refused("forbidden")]
    assert await nodes.Nodes(api, settings.KubernetesSettings(), clock).has_spare_device(GPU, 1, {}) is None
