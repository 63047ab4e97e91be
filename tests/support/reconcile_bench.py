"""A cluster in memory with one InferenceService, and passes of the reconciler over it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from tidemark_operator import errors, names, plan, settings
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import deployments, event_log, store
from tidemark_operator.plan import watching
from tidemark_operator.reconcile import reconciler
from tidemark_runtime.contract import status as contract

KEY = interface.Key(names.KIND, "default", "base")
BASE: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "base", "namespace": "default"},
    "spec": {
        "model": {"source": {"pvc": {"claimName": "models"}}},
        "hardware": {"resourceName": "cpu", "count": 2, "memory": "2Gi"},
    },
}


class FakeCluster:
    """The local store behind the interface, with a deployment controller but no kubelet; fails where told to."""

    def __init__(self, clock: Any) -> None:
        numbers = itertools.count()
        self.objects = store.Store(now=clock.now)
        self.events = event_log.EventLog(self.objects, 100, clock)
        self.controller = deployments.DeploymentController(self.objects, clock, lambda: f"{next(numbers)}")
        self.failing: dict[str, errors.ClusterError] = {}
        self.applied: list[str] = []
        self.engines: dict[str, contract.EngineStatus] = {}
        self.answers: dict[str, interface.ConfigAnswer | None] = {}
        self.pushed: list[tuple[str, dict[str, Any], str]] = []
        self.spare: bool | None = None
        self.pods_of_jobs: dict[str, list[interface.Object]] = {}
        self.said_of_pods: dict[str, list[interface.Complaint]] = {}
        self.pods_become_ready = True
        self.lacking = {kind: interface.Lack("NotInstalled", f"no {kind}") for kind in watching.KINDS}
        """A copy of a service's rules takes longer than all the rest of a pass: who wants them empties this."""

    async def get(self, key: interface.Key) -> interface.Object | None:
        return self.objects.get(key)

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[interface.Object]:
        return self.objects.list(kind, namespace, labels)

    async def apply(self, manifest: interface.Object) -> interface.Object:
        self.applied.append(manifest["kind"])
        if manifest["kind"] in self.failing:
            raise self.failing[manifest["kind"]]
        return self.objects.apply(manifest, names.FIELD_MANAGER)

    async def delete(self, key: interface.Key) -> None:
        self.objects.delete(key)

    async def patch_status(self, key: interface.Key, status: Mapping[str, Any]) -> interface.Object | None:
        return self.objects.patch_status(key, status)

    async def lacks(self, kind: str, namespace: str) -> interface.Lack | None:
        return self.lacking.get(kind)

    async def watch(self, kind: str, namespace: str) -> AsyncIterator[interface.WatchEvent]:
        async for event in self.objects.watch(kind):
            yield event

    async def record_event(self, about: interface.Object, type_: str, reason: str, message: str) -> None:
        self.events.record(about, type_, reason, message)

    async def pods_of_job(self, job: interface.Key) -> Sequence[interface.Object]:
        return self.pods_of_jobs.get(job.name, [])

    async def complaints(self, pod: interface.Object) -> Sequence[interface.Complaint]:
        return self.said_of_pods.get(pod["metadata"]["name"], [])

    async def engine_status(self, pod: interface.Object) -> contract.EngineStatus | None:
        return self.engines.get(pod["metadata"]["name"])

    async def configure_engine(
        self, pod: interface.Object, document: Mapping[str, Any], token: str
    ) -> interface.ConfigAnswer | None:
        name = pod["metadata"]["name"]
        self.pushed.append((name, dict(document), token))
        return self.answers.get(name)

    async def has_spare_device(self, resource: str, count: int, node_selector: Mapping[str, str]) -> bool | None:
        return self.spare

    async def endpoint(self, namespace: str, name: str) -> str | None:
        return "http://127.0.0.1:8000"

    def let_pods_be_ready(self) -> None:
        """What controller and kubelet would do."""
        for _ in range(4 if self.pods_become_ready else 0):
            for deployment in self.objects.list("Deployment"):
                self.controller.sync(deployment)
            for pod in self.objects.list("Pod"):
                key = interface.key_of(pod)
                if "deletionTimestamp" in pod["metadata"]:
                    self.objects.remove(key)
                else:
                    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                    self.objects.patch_status(key, {"phase": "Running", "conditions": [ready]})


class Bench:
    """A cluster with the base object, and passes over it."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.cluster = FakeCluster(clock)
        self.rolled_back: list[interface.Key] = []
        self.start_operator()
        self.put({})

    def start_operator(self) -> None:
        """One that knows nothing of what others before it saw."""
        self.work = reconciler.Reconciler(
            self.cluster,
            plan.Facts(image="i"),
            tokens=lambda uid: f"token of {uid}",
            settings=settings.ReconcileSettings(),
            clock=self.clock,
            rolled_back=self.rolled_back.append,
        )

    def put(self, spec: dict[str, Any]) -> None:
        document = copy.deepcopy(BASE)
        document["spec"].update(spec)
        self.cluster.objects.apply(document, "user")

    async def run(self) -> float | None:
        """One pass, then what the cluster makes of it."""
        result = await self.work.run(KEY)
        self.cluster.let_pods_be_ready()
        return result

    @property
    def uid(self) -> str:
        return str((self.cluster.objects.get(KEY) or {})["metadata"]["uid"])

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (self.cluster.objects.get(KEY) or {}).get("status", {})
        return found

    def condition(self, type_: str) -> dict[str, Any]:
        found: dict[str, Any] = next(item for item in self.status["conditions"] if item["type"] == type_)
        return found

    def child(self, kind: str) -> dict[str, Any]:
        """The dashboard's ConfigMap aside."""
        found = self.cluster.objects.list(kind, "default", names.selector("base"))
        own = [item for item in found if kind != "ConfigMap" or item["metadata"]["name"] != names.dashboard("base")]
        return own[-1]

    def pods(self) -> list[dict[str, Any]]:
        return self.cluster.objects.list("Pod", "default", names.selector("base"))


async def settled(clock: Any) -> Bench:
    """The base object, Ready."""
    made = Bench(clock)
    for _ in range(3):
        await made.run()
    return made
