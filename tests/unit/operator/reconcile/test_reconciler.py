"""One pass: wanted against present, repaired; observed, told."""

from __future__ import annotations

import copy
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tidemark_operator import errors, names, plan, settings
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import deployments, event_log, store
from tidemark_operator.reconcile import loop, queue, reconciler
from tidemark_runtime.contract import status as contract

KEY = interface.Key(names.KIND, "default", "base")
BASE: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "base", "namespace": "default"},
    "spec": {
        "model": {"source": {"hostPath": {"path": "/data/model"}}},
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

    async def watch(self, kind: str, namespace: str) -> AsyncIterator[interface.WatchEvent]:
        async for event in self.objects.watch(kind):
            yield event

    async def record_event(self, about: interface.Object, type_: str, reason: str, message: str) -> None:
        self.events.record(about, type_, reason, message)

    async def engine_status(self, pod: interface.Object) -> contract.EngineStatus | None:
        return self.engines.get(pod["metadata"]["name"])

    async def endpoint(self, namespace: str, name: str) -> str | None:
        return "http://127.0.0.1:8000"

    def let_pods_be_ready(self) -> None:
        """What controller and kubelet would do."""
        for _ in range(4):
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
        self.work = reconciler.Reconciler(
            self.cluster, plan.Facts(image="i"), settings=settings.ReconcileSettings(), clock=clock
        )
        self.put({})

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
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (self.cluster.objects.get(KEY) or {}).get("status", {})
        return found

    def condition(self, type_: str) -> dict[str, Any]:
        found: dict[str, Any] = next(item for item in self.status["conditions"] if item["type"] == type_)
        return found

    def child(self, kind: str) -> dict[str, Any]:
        [found] = self.cluster.objects.list(kind, "default", names.selector("base"))
        return found


@pytest.fixture
async def bench(clock: Any) -> Bench:
    made = Bench(clock)
    await made.run()
    await made.run()
    return made


async def test_from_nothing_to_ready(bench: Bench) -> None:
    assert bench.condition("Ready")["status"] == "True"
    assert bench.status["url"] == "http://127.0.0.1:8000"
    for kind in reconciler.CHILD_KINDS:
        controller = interface.controller_of(bench.child(kind)) or {}
        assert controller["uid"] == (bench.cluster.objects.get(KEY) or {})["metadata"]["uid"]


async def test_every_kind_of_the_plan_is_watched_and_cleaned(bench: Bench) -> None:
    assert set(bench.cluster.applied) == set(reconciler.CHILD_KINDS)


async def test_an_idle_service_causes_no_writes(bench: Bench) -> None:
    version = bench.cluster.objects.version
    for _ in range(20):
        await bench.clock.advance(60)
        await bench.run()
    assert bench.cluster.objects.version == version


async def test_touching_an_annotation_rolls_nothing_b061(bench: Bench) -> None:
    generation = bench.child("Deployment")["metadata"]["generation"]
    for number in range(20):
        document = copy.deepcopy(BASE)
        document["metadata"]["annotations"] = {"touched": str(number)}
        bench.cluster.objects.apply(document, "user")
        await bench.run()
    assert bench.child("Deployment")["metadata"]["generation"] == generation
    assert len(bench.cluster.objects.list("Pod")) == 1


@pytest.mark.parametrize("kind", reconciler.CHILD_KINDS)
async def test_a_deleted_child_comes_back(bench: Bench, kind: str) -> None:
    bench.cluster.objects.remove(interface.key_of(bench.child(kind)))
    await bench.run()
    assert bench.child(kind)


async def test_an_edited_child_is_repaired(bench: Bench) -> None:
    before = bench.child("Deployment")
    edited = copy.deepcopy(before)
    edited["spec"]["template"]["spec"]["containers"][0]["args"] = ["--evil"]
    bench.cluster.objects.apply(edited, "somebody")
    await bench.run()
    assert bench.child("Deployment")["spec"] == before["spec"]


async def test_all_children_are_tried_in_each_pass_and_the_missing_one_appears_b067(clock: Any) -> None:
    bench = Bench(clock)
    bench.cluster.failing["ConfigMap"] = errors.Unavailable("the API server answered 500")
    for _ in range(3):
        with pytest.raises(errors.Unavailable):
            await bench.run()
        bench.cluster.let_pods_be_ready()
        assert set(bench.cluster.applied) == set(reconciler.CHILD_KINDS)
    assert any("answered 500" in warning for warning in bench.status["warnings"])
    bench.cluster.failing.clear()
    await bench.run()
    await bench.run()
    assert bench.child("ConfigMap")
    assert bench.condition("Ready")["status"] == "True"
    assert bench.status["warnings"] == []


async def test_a_refused_deployment_is_not_ready_and_says_why(clock: Any) -> None:
    bench = Bench(clock)
    bench.cluster.failing["Deployment"] = errors.Refused("admission said no")
    with pytest.raises(errors.Refused):
        await bench.run()
    assert bench.condition("Ready")["status"] == "False"
    assert any("admission said no" in warning for warning in bench.status["warnings"])
    assert [event["reason"] for event in bench.cluster.objects.list("Event")].count("ApplyDeploymentFailed") == 1


async def test_a_wrong_spec_says_all_and_leaves_the_last_good_children(bench: Bench) -> None:
    before = bench.child("Deployment")
    bench.put({"replicas": -1, "nonsense": 1})
    assert await bench.run() is None
    assert bench.condition("Ready")["reason"] == "InvalidSpec"
    assert "replicas" in bench.condition("Ready")["message"]
    assert "nonsense" in bench.condition("Ready")["message"]
    assert bench.child("Deployment") == before
    assert len(bench.cluster.objects.list("Pod")) == 1


async def test_observed_generation_is_of_the_spec_acted_on_b069(bench: Bench) -> None:
    assert bench.status["observedGeneration"] == 1
    bench.put({"scheduler": {"maxNumSeqs": 3}})
    await bench.work.run(KEY)
    assert bench.status["observedGeneration"] == 2
    assert bench.condition("Ready")["status"] == "False"
    assert all(item["observedGeneration"] == 2 for item in bench.status["conditions"])
    bench.put({"nonsense": 1})
    await bench.work.run(KEY)
    assert bench.status["observedGeneration"] == 2


async def test_null_and_absent_are_the_same_b059(bench: Bench) -> None:
    before = bench.child("Deployment")
    bench.put({"replicas": None, "autoscaling": None, "kvCache": None, "scheduler": {"maxNumSeqs": None}})
    await bench.run()
    await bench.run()
    assert bench.condition("Ready")["status"] == "True"
    assert bench.child("Deployment")["spec"] == before["spec"]


async def test_a_child_that_is_no_longer_wanted_goes_and_others_of_its_name_stay(bench: Bench) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "theirs", "namespace": "default", "labels": names.selector("base")},
    }
    bench.cluster.objects.apply(foreign, "somebody")
    bench.put({"podTemplate": {"serviceAccountName": "theirs"}})
    await bench.run()
    left = [obj["metadata"]["name"] for obj in bench.cluster.objects.list("ServiceAccount")]
    assert left == ["theirs"]


async def test_deleting_ends_all_work_and_leaves_no_child_b065(bench: Bench) -> None:
    bench.cluster.objects.delete(KEY)
    assert await bench.work.run(KEY) == queue.GONE
    for kind in reconciler.CHILD_KINDS:
        assert bench.cluster.objects.list(kind) == []


async def test_deleted_in_the_middle_of_a_pass_leaves_no_child_b065(clock: Any) -> None:
    bench = Bench(clock)
    apply = bench.cluster.apply

    async def apply_then_delete(manifest: interface.Object) -> interface.Object:
        made = await apply(manifest)
        bench.cluster.objects.delete(KEY)
        return made

    bench.cluster.apply = apply_then_delete  # type: ignore[method-assign]
    with pytest.raises(errors.Conflict):
        await bench.work.run(KEY)
    assert await bench.work.run(KEY) == queue.GONE
    for kind in reconciler.CHILD_KINDS:
        assert bench.cluster.objects.list(kind) == []


async def test_a_changed_setting_starts_new_pods(bench: Bench) -> None:
    [before] = bench.cluster.objects.list("Pod")
    bench.put({"overload": {"maxQueuedRequests": 7}})
    await bench.run()
    [after] = bench.cluster.objects.list("Pod")
    assert before["metadata"]["labels"]["pod-template-hash"] != after["metadata"]["labels"]["pod-template-hash"]


async def test_fields_without_effect_are_warned_of(bench: Bench) -> None:
    bench.put({"speculative": {"method": "ngram"}})
    await bench.run()
    assert any("spec.speculative" in warning for warning in bench.status["warnings"])


async def test_it_looks_more_often_while_it_is_not_ready(clock: Any) -> None:
    bench = Bench(clock)
    assert await bench.run() == settings.ReconcileSettings().unready_seconds
    assert await bench.run() == settings.ReconcileSettings().ready_seconds


def test_what_wakes_a_service() -> None:
    child = {"kind": "Pod", "metadata": {"name": "x", "namespace": "n", "labels": names.selector("base")}}
    assert loop.woken_by(child) == interface.Key(names.KIND, "n", "base")
    assert loop.woken_by(BASE) == KEY
    assert loop.woken_by({"kind": "Pod", "metadata": {"name": "x"}}) is None
