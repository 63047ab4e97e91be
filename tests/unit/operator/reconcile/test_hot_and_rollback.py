"""Configuration that changes under running engines, revisions that fail, plans that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from reconcile_bench import KEY, Bench, settled

from tidemark_operator import api, names, plan, settings
from tidemark_operator.cluster import interface
from tidemark_operator.plan import history
from tidemark_runtime.contract import status as contract

HOT = {"overload": {"maxQueuedRequests": 7}}
COLD = {"scheduler": {"maxNumSeqs": 7}}


@pytest.fixture
async def bench(clock: Any) -> Bench:
    return await settled(clock)


def engine(hash_: str, state: contract.EngineState = contract.EngineState.READY) -> contract.EngineStatus:
    return contract.EngineStatus(
        version="0",
        state=state,
        message="",
        model=contract.ModelStatus("base", "/models"),
        config=contract.ConfigStatus(hash_),
    )


def wanted(bench: Bench) -> api.InferenceService:
    return api.parse(bench.cluster.objects.get(KEY) or {})


def break_pods(bench: Bench, restarts: int, message: str = "tidemark serve: ModelNotFound: no such model") -> None:
    """What kubelet reports of containers that end again and again."""
    for deployment in bench.cluster.objects.list("Deployment"):
        for _ in range(3):
            bench.cluster.controller.sync(deployment)
    for pod in bench.pods():
        if any(
            item["type"] == "Ready" and item["status"] == "True" for item in pod.get("status", {}).get("conditions", ())
        ):
            continue
        ended = {"terminated": {"exitCode": 1, "message": message}}
        container = {
            "restartCount": restarts,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": ended,
        }
        bench.cluster.objects.patch_status(
            interface.key_of(pod), {"phase": "Running", "containerStatuses": [container]}
        )


async def fail(bench: Bench, spec: dict[str, Any], restarts: int = 3) -> None:
    """A new spec whose pods never become ready, and the passes that notice."""
    bench.cluster.pods_become_ready = False
    bench.put(spec)
    await bench.run()
    for _ in range(3):
        break_pods(bench, restarts)
        await bench.run()


# ------------------------------------------------------------------------- hot


async def test_a_hot_change_reaches_the_engine_and_restarts_nothing(bench: Bench) -> None:
    [pod] = bench.pods()
    name = pod["metadata"]["name"]
    bench.cluster.engines[name] = engine(plan.config_hash(wanted(bench)))
    bench.put(HOT)
    new_hash = plan.config_hash(wanted(bench))
    bench.cluster.answers[name] = interface.ConfigAnswer(True, new_hash)
    await bench.run()
    assert [item["metadata"]["uid"] for item in bench.pods()] == [pod["metadata"]["uid"]]
    [(pushed_to, document, token)] = bench.cluster.pushed
    assert (pushed_to, token) == (name, f"token of {bench.uid}")
    assert document["scheduler"]["maxQueuedRequests"] == 7
    assert bench.condition("ConfigApplied")["status"] == "True"
    assert "maxQueuedRequests: 7" in bench.child("ConfigMap")["data"][names.CONFIG_FILE], "a restart keeps it"


async def test_an_engine_that_has_it_is_not_asked_again(bench: Bench) -> None:
    [pod] = bench.pods()
    bench.cluster.engines[pod["metadata"]["name"]] = engine(plan.config_hash(wanted(bench)))
    for _ in range(5):
        await bench.run()
    assert bench.cluster.pushed == []


async def test_a_refused_configuration_is_told_and_tried_again_after_a_while(bench: Bench) -> None:
    [pod] = bench.pods()
    name = pod["metadata"]["name"]
    bench.cluster.engines[name] = engine("old")
    bench.cluster.answers[name] = interface.ConfigAnswer(False, "", "400: scheduler.maxNumBatchedTokens: got 1")
    for _ in range(3):
        await bench.run()
    assert len(bench.cluster.pushed) == 1
    applied = bench.condition("ConfigApplied")
    assert (applied["status"], applied["reason"]) == ("False", "Rejected")
    assert f"{name} runs old and refuses: 400: scheduler.maxNumBatchedTokens: got 1" in applied["message"]
    await bench.clock.advance(settings.ReconcileSettings().push_again_seconds + 1)
    bench.cluster.answers[name] = interface.ConfigAnswer(True, plan.config_hash(wanted(bench)))
    await bench.run()
    assert bench.condition("ConfigApplied")["status"] == "True"


async def test_pods_of_another_revision_are_replaced_and_not_configured(bench: Bench) -> None:
    [pod] = bench.pods()
    bench.cluster.engines[pod["metadata"]["name"]] = engine("old")
    bench.cluster.pods_become_ready = False
    bench.put(COLD)
    await bench.run()
    assert bench.cluster.pushed == []
    assert bench.condition("ConfigApplied")["reason"] == "Pending"


async def test_a_pod_of_the_old_revision_keeps_its_own_configuration_file(bench: Bench) -> None:
    before = bench.child("ConfigMap")["metadata"]["name"]
    bench.cluster.pods_become_ready = False
    bench.put(COLD)
    await bench.run()
    found = {item["metadata"]["name"] for item in bench.cluster.objects.list("ConfigMap")}
    assert before in found
    assert len(found - {names.dashboard("base")}) == 2
    bench.cluster.pods_become_ready = True
    for _ in range(3):
        await bench.run()
    assert before not in {item["metadata"]["name"] for item in bench.cluster.objects.list("ConfigMap")}


# -------------------------------------------------------------------- rollback


async def test_a_revision_whose_pods_crash_is_replaced_by_the_last_good_one(bench: Bench) -> None:
    good = bench.child("Deployment")["spec"]["template"]
    await fail(bench, COLD)
    assert bench.child("Deployment")["spec"]["template"] == good
    ready = bench.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RolledBack")
    assert "no such model" in ready["message"]
    assert "kubectl delete controllerrevision base-" in ready["message"]
    assert bench.condition("Degraded")["status"] == "True"
    events = [item["reason"] for item in bench.cluster.objects.list("Event")]
    assert events.count("RolledBack") >= 1
    assert bench.rolled_back == [KEY]


async def test_it_does_not_flap(bench: Bench) -> None:
    await fail(bench, COLD)
    bench.cluster.pods_become_ready = True
    for _ in range(4):
        await bench.run()
    generation = bench.child("Deployment")["metadata"]["generation"]
    version = bench.cluster.objects.version
    for _ in range(20):
        await bench.clock.advance(60)
        await bench.run()
    assert bench.child("Deployment")["metadata"]["generation"] == generation
    assert bench.cluster.objects.version == version
    assert bench.condition("Available")["status"] == "True"
    assert bench.condition("Ready")["reason"] == "RolledBack"


async def test_a_new_operator_decides_the_same(bench: Bench, clock: Any) -> None:
    await fail(bench, COLD)
    other = Bench(clock)
    other.cluster = bench.cluster
    other.work = type(bench.work)(
        bench.cluster,
        plan.Facts(image="i"),
        tokens=lambda uid: f"token of {uid}",
        settings=settings.ReconcileSettings(),
        clock=clock,
    )
    template = bench.child("Deployment")["spec"]["template"]
    await other.run()
    assert bench.child("Deployment")["spec"]["template"] == template


async def test_a_changed_spec_is_tried(bench: Bench) -> None:
    await fail(bench, COLD)
    bench.cluster.pods_become_ready = True
    bench.put({"scheduler": {"maxNumSeqs": 8}})
    for _ in range(3):
        await bench.run()
    assert bench.condition("Ready")["status"] == "True"
    assert "maxNumSeqs: 8" in bench.child("ConfigMap")["data"][names.CONFIG_FILE]


async def test_the_same_spec_is_tried_again_when_its_revision_is_deleted(bench: Bench) -> None:
    await fail(bench, COLD)
    [failed] = [
        item
        for item in bench.cluster.objects.list("ControllerRevision")
        if names.REVISION_FAILED_ANNOTATION in item["metadata"].get("annotations", {})
    ]
    bench.cluster.objects.remove(interface.key_of(failed))
    bench.cluster.pods_become_ready = True
    for _ in range(4):
        await bench.run()
    assert bench.condition("Ready")["status"] == "True"
    assert "maxNumSeqs: 7" in bench.child("ConfigMap")["data"][names.CONFIG_FILE]


async def test_without_auto_rollback_it_stays_and_says_why(bench: Bench) -> None:
    await fail(bench, {**COLD, "rollout": {"autoRollback": False}})
    assert bench.condition("Ready")["reason"] == "ModelNotFound"
    assert "maxNumSeqs: 7" in " ".join(
        item["data"].get(names.CONFIG_FILE, "") for item in bench.cluster.objects.list("ConfigMap")
    )


async def test_broken_old_pods_do_not_condemn_their_repair_b079(clock: Any) -> None:
    bench = Bench(clock)
    bench.put({"replicas": 3})
    bench.cluster.pods_become_ready = False
    await bench.run()
    for _ in range(3):
        break_pods(bench, restarts=9)
        await bench.run()
    bench.put({"replicas": 3, "scheduler": {"maxNumSeqs": 5}})
    await bench.run()
    await bench.run()
    marked = [
        item["metadata"]["annotations"].get(names.REVISION_FAILED_ANNOTATION)
        for item in bench.cluster.objects.list("ControllerRevision")
    ]
    assert len(marked) == 2
    assert sum(1 for mark in marked if mark) <= 1, "the repair is judged by its own pods"
    bench.cluster.pods_become_ready = True
    for _ in range(4):
        await bench.run()
    assert bench.condition("Ready")["status"] == "True"


async def test_what_breaks_after_it_was_good_is_no_failed_rollout(bench: Bench) -> None:
    [pod] = bench.pods()
    bench.cluster.pods_become_ready = False
    container = {"restartCount": 8, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    bench.cluster.objects.patch_status(interface.key_of(pod), {"phase": "Running", "containerStatuses": [container]})
    for _ in range(3):
        await bench.run()
    [revision] = history.read(bench.cluster.objects.list("ControllerRevision"))
    assert revision.good
    assert not revision.failed


async def test_history_is_bounded_and_keeps_the_last_good_one(bench: Bench) -> None:
    for number in range(history.LIMIT + 6):
        bench.put({"overload": {"maxQueuedRequests": 20 + number}})
        await bench.run()
    found = history.read(bench.cluster.objects.list("ControllerRevision"))
    assert len(found) <= history.LIMIT + 2
    assert found[-1].spec["overload"] == {"maxQueuedRequests": 20 + history.LIMIT + 5}
    assert history.last_good(found) is not None


async def test_history_of_somebody_else_is_none_of_ours(bench: Bench) -> None:
    """An earlier service of the name, or anybody who set the label, must not say what the pods get."""
    [own] = bench.cluster.objects.list("ControllerRevision")
    metadata = {
        "name": "base-foreign",
        "namespace": "default",
        "labels": names.selector("base"),
        "annotations": {names.REVISION_GOOD_ANNOTATION: "2026-01-01T00:00:00Z"},
    }
    foreign = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": 99}
    spec = {"model": {"source": {"package": {"name": "theirs"}}}}
    bench.cluster.objects.apply({**foreign, "data": {"spec": spec}}, "somebody")
    await fail(bench, COLD)
    assert bench.condition("Ready")["reason"] == "RolledBack"
    assert "theirs" not in str(bench.child("ConfigMap")["data"])
    assert "theirs" not in str(bench.child("Deployment"))
    assert own["revision"] == 1


async def test_going_back_to_an_old_spec_makes_it_the_latest(bench: Bench) -> None:
    bench.put(HOT)
    await bench.run()
    bench.put({})
    await bench.run()
    found = history.read(bench.cluster.objects.list("ControllerRevision"))
    assert [revision.number for revision in found] == [2, 3]
    assert "overload" not in found[-1].spec


async def test_scaling_makes_no_revision(bench: Bench) -> None:
    bench.put({"replicas": 2})
    await bench.run()
    bench.put({"suspend": True})
    await bench.run()
    assert len(bench.cluster.objects.list("ControllerRevision")) == 1
    assert bench.child("Deployment")["spec"]["replicas"] == 0


# -------------------------------------------------------------------- capacity

TOO_SMALL = {
    "model": {"source": {"package": {"name": "smollm2-135m"}}},
    "hardware": {"resourceName": "cpu", "memory": "512Mi"},
}


async def test_what_cannot_fit_gets_no_pods_and_the_sum(clock: Any) -> None:
    bench = Bench(clock)
    bench.put(TOO_SMALL)
    await bench.run()
    assert bench.cluster.objects.list("Deployment") == []
    fit = bench.condition("CapacityFit")
    assert (fit["status"], fit["reason"]) == ("False", "DoesNotFit")
    assert "weights 93.8 MiB" in fit["message"]
    assert "Give the service at least" in fit["message"]
    assert bench.condition("Ready")["reason"] == "DoesNotFit"


async def test_a_change_that_cannot_fit_leaves_what_runs(clock: Any) -> None:
    bench = Bench(clock)
    fits = {**TOO_SMALL, "hardware": {"resourceName": "cpu", "memory": "4Gi"}}
    bench.put(fits)
    for _ in range(3):
        await bench.run()
    assert bench.condition("CapacityFit")["status"] == "True"
    deployment, config_map, pods = bench.child("Deployment"), bench.child("ConfigMap"), bench.pods()
    bench.put(TOO_SMALL)
    await bench.run()
    assert (bench.child("Deployment"), bench.child("ConfigMap"), bench.pods()) == (deployment, config_map, pods)
    assert bench.condition("Ready")["status"] == "False"
    assert bench.condition("Available")["status"] == "True"


async def test_what_an_engine_measured_is_remembered_for_the_next_plan(bench: Bench) -> None:
    assert bench.condition("CapacityFit")["reason"] == "NotKnownYet"
    [pod] = bench.pods()
    shape = contract.ModelShape(
        num_layers=80,
        num_heads=64,
        num_kv_heads=8,
        head_dim=128,
        hidden_size=8192,
        intermediate_size=28_672,
        vocab_size=128_256,
        max_context_tokens=131_072,
        weights_bytes=40 * 2**30,
        kv_token_bytes=327_680,
    )
    status = engine(plan.config_hash(wanted(bench)))
    loaded = contract.ModelStatus("base", "/models", shape=shape)
    bench.cluster.engines[pod["metadata"]["name"]] = contract.EngineStatus(
        version="0", state=status.state, message="", model=loaded, config=status.config
    )
    await bench.run()
    assert bench.status["shape"]["numLayers"] == 80
    await bench.run()
    assert bench.condition("CapacityFit")["reason"] == "DoesNotFit", "2Gi of memory for 40 GiB of weights"


# ---------------------------------------------------------------- spare device


async def test_auto_surges_where_a_device_is_spare_and_drains_where_none_is(bench: Bench) -> None:
    for spare, surge in ((True, 1), (False, 0)):
        bench.cluster.spare = spare
        bench.put({"scheduler": {"maxNumSeqs": 30 + surge}})
        await bench.run()
        assert bench.child("Deployment")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == surge


async def test_the_strategy_of_a_settled_service_does_not_follow_the_devices(bench: Bench) -> None:
    bench.cluster.spare = True
    bench.put(COLD)
    for _ in range(3):
        await bench.run()
    generation = bench.child("Deployment")["metadata"]["generation"]
    bench.cluster.spare = False
    for _ in range(3):
        await bench.run()
    assert bench.child("Deployment")["metadata"]["generation"] == generation


@pytest.mark.parametrize(
    ("sentence", "strategy"),
    [
        ("1 Insufficient nvidia.com/gpu.", {"maxSurge": 0, "maxUnavailable": 1}),
        # To end the pod that serves would not help the new one.
        ("1 node(s) didn't match Pod's node affinity/selector.", {"maxSurge": 1, "maxUnavailable": 0}),
    ],
)
async def test_a_surge_turns_into_drain_first_where_that_gives_room(
    bench: Bench, sentence: str, strategy: dict[str, int]
) -> None:
    bench.cluster.spare = True
    bench.cluster.pods_become_ready = False
    bench.put(COLD)
    await bench.run()
    for _ in range(2):
        bench.cluster.controller.sync(bench.child("Deployment"))
    [new] = [pod for pod in bench.pods() if not pod.get("status", {}).get("conditions")]
    message = f"0/1 nodes are available: {sentence}"
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    bench.cluster.objects.patch_status(interface.key_of(new), {"phase": "Pending", "conditions": [scheduled]})
    await bench.run()
    assert bench.child("Deployment")["spec"]["strategy"]["rollingUpdate"] == strategy
