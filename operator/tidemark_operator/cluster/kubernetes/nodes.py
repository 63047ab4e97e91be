"""Is there a device to spare? Nodes and all their pods are looked at when somebody asks, and at no other time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from tidemark_operator import errors
from tidemark_operator import settings as settings_
from tidemark_operator.api import quantities
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import kinds

_ENDED = ("Succeeded", "Failed")


class _Resources(msgspec.Struct):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None

    def count(self, resource: str) -> Decimal:
        """Devices are whole numbers, `cpu` is not (`250m`); a limit alone is a request too."""
        for amounts in (self.requests, self.limits):
            if amounts and resource in amounts:
                return quantities.to_number(str(amounts[resource]))
        return Decimal(0)


class _Container(msgspec.Struct, rename="camel"):
    resources: _Resources = msgspec.field(default_factory=_Resources)
    restart_policy: str | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class Pod(msgspec.Struct):
    """What matters here of a pod; everything else is skipped while its JSON is read."""

    spec: _PodSpec
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    def count(self, resource: str) -> Decimal:
        """What the scheduler counts for it."""
        init = self.spec.init_containers or []
        together = [*self.spec.containers, *(item for item in init if item.restart_policy == "Always")]
        running = sum((item.resources.count(resource) for item in together), Decimal(0))
        return max([running, *(item.resources.count(resource) for item in init)])


class _NodeMetadata(msgspec.Struct):
    name: str
    labels: dict[str, str] | None = None


class _NodeSpec(msgspec.Struct):
    unschedulable: bool = False


class _NodeStatus(msgspec.Struct):
    allocatable: dict[str, Any] | None = None


class Node(msgspec.Struct):
    """What matters here of a node."""

    metadata: _NodeMetadata
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


def has_spare(
    nodes: Iterable[Node], pods: Iterable[Pod], resource: str, count: int, node_selector: Mapping[str, str]
) -> bool:
    """Whether one of the nodes that the selector allows and that take pods has `count` of `resource` left."""
    used: dict[str, Decimal] = defaultdict(Decimal)
    for pod in pods:
        if pod.spec.node_name and pod.status.phase not in _ENDED:
            used[pod.spec.node_name] += pod.count(resource)
    return any(size - used[name] >= count for name, size in _sizes(nodes, resource, node_selector).items())


def could_have(nodes: Iterable[Node], resource: str, count: int, node_selector: Mapping[str, str]) -> bool:
    """Whether one of those nodes had `count` of `resource` if it were empty."""
    return any(size >= count for size in _sizes(nodes, resource, node_selector).values())


def _sizes(nodes: Iterable[Node], resource: str, node_selector: Mapping[str, str]) -> dict[str, Decimal]:
    return {
        node.metadata.name: quantities.to_number(str((node.status.allocatable or {}).get(resource, 0)))
        for node in nodes
        if not node.spec.unschedulable and node_selector.items() <= (node.metadata.labels or {}).items()
    }


class Nodes:
    """Asks the API server."""

    def __init__(self, api: api_.Api, settings: settings_.KubernetesSettings, clock: clock_.Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._known: tuple[float, list[Node], list[Pod]] | None = None

    async def has_spare_device(self, resource: str, count: int, node_selector: Mapping[str, str]) -> bool | None:
        """None: not allowed to look at nodes or at the pods of all namespaces. Also True where no node could ever hold
        so many: to end a pod that serves would not help. Raises `errors.ClusterError`."""
        now = self._clock.monotonic()
        if self._known is None or now - self._known[0] > self._settings.nodes_seconds:
            try:
                nodes = await self._all("Node", Node)
                pods = await self._all("Pod", Pod)
            except errors.Refused:
                return None
            self._known = (now, nodes, pods)
        _, found, taken = self._known
        return has_spare(found, taken, resource, count, node_selector) or not could_have(
            found, resource, count, node_selector
        )

    async def _all(self, kind: str, type_: type[Any]) -> list[Any]:
        found: list[Any] = []
        after = ""
        while True:
            page = await self._api.page(kinds.TABLE[kind], "", after=after)
            found += [msgspec.json.decode(raw, type=type_) for raw in page.items]
            after = page.next
            if not after:
                return found
