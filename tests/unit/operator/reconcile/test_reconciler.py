"""One pass: wanted against present, repaired; observed, told."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from reconcile_bench import BASE, KEY, Bench, settled

from tidemark_operator import errors, names, settings
from tidemark_operator.cluster import interface
from tidemark_operator.reconcile import children, loop, queue

ALWAYS = ("ServiceAccount", "ConfigMap", "Service", "Deployment", "ControllerRevision")
"""Kinds that every service has."""


@pytest.fixture
async def bench(clock: Any) -> Bench:
    return await settled(clock)


async def test_from_nothing_to_ready(bench: Bench) -> None:
    assert bench.condition("Ready")["status"] == "True"
    assert bench.status["url"] == "http://127.0.0.1:8000"
    for kind in ALWAYS:
        controller = interface.controller_of(bench.child(kind)) or {}
        assert controller["uid"] == (bench.cluster.objects.get(KEY) or {})["metadata"]["uid"]


async def test_every_kind_of_the_plan_is_watched_and_cleaned(bench: Bench) -> None:
    bench.cluster.lacking.clear()
    evaluated = {"kvCache": {"dtype": "int8"}, "evaluation": {"schedule": "@weekly"}}
    bench.put({"replicas": 2, "access": {"allowFrom": [{"podSelector": {}}]}, **evaluated})
    await bench.run()
    assert set(bench.cluster.applied) == {*children.KINDS, *children.WRITE_ONLY_KINDS}
    assert set(loop.WATCHED_KINDS) == {names.KIND, *children.KINDS, "Job", "Pod"}


async def test_an_idle_service_causes_no_writes(bench: Bench) -> None:
    version = bench.cluster.objects.version
    for _ in range(20):
        await bench.clock.advance(60)
        await bench.run()
    assert bench.cluster.objects.version == version


async def test_a_pass_that_has_nothing_to_do_does_not_even_ask_to_write(bench: Bench) -> None:
    bench.cluster.applied.clear()
    await bench.run()
    assert bench.cluster.applied == []


async def test_secrets_are_written_unread_and_again_once_in_a_while(bench: Bench) -> None:
    bench.cluster.applied.clear()
    bench.cluster.objects.remove(interface.Key("Secret", "default", names.admin_secret("base")))
    await bench.clock.advance(settings.ReconcileSettings().rewrite_secrets_seconds + 1)
    await bench.run()
    assert bench.cluster.applied == ["Secret"]


async def test_what_somebody_else_made_is_never_taken_over(clock: Any) -> None:
    bench = Bench(clock)
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "base", "namespace": "default"},
        "spec": {"ports": [{"port": 1}]},
    }
    bench.cluster.objects.apply(theirs, "somebody")
    with pytest.raises(errors.Conflict, match="was not made by this service"):
        await bench.run()
    found = bench.cluster.objects.get(interface.Key("Service", "default", "base")) or {}
    assert found["spec"] == {"ports": [{"port": 1}]}
    assert any("was not made by this service" in warning for warning in bench.status["warnings"])


async def test_paused_means_hands_off_and_says_so(bench: Bench) -> None:
    document = copy.deepcopy(BASE)
    document["metadata"]["annotations"] = {names.PAUSED_ANNOTATION: "true"}
    document["spec"]["replicas"] = 3
    bench.cluster.objects.apply(document, "user")
    bench.cluster.objects.remove(interface.key_of(bench.child("Service")))
    bench.cluster.applied.clear()
    await bench.run()
    assert bench.cluster.applied == []
    assert bench.cluster.objects.list("Service") == []
    assert bench.condition("Progressing")["reason"] == "Paused"
    document["metadata"]["annotations"] = {}
    bench.cluster.objects.apply(document, "user")
    await bench.run()
    assert bench.child("Service")
    assert bench.child("Deployment")["spec"]["replicas"] == 3


async def test_touching_an_annotation_rolls_nothing_b061(bench: Bench) -> None:
    generation = bench.child("Deployment")["metadata"]["generation"]
    for number in range(20):
        document = copy.deepcopy(BASE)
        document["metadata"]["annotations"] = {"touched": str(number)}
        bench.cluster.objects.apply(document, "user")
        await bench.run()
    assert bench.child("Deployment")["metadata"]["generation"] == generation
    assert len(bench.cluster.objects.list("Pod")) == 1


@pytest.mark.parametrize("kind", ALWAYS)
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
        assert set(ALWAYS) <= set(bench.cluster.applied)
    assert any("answered 500" in warning for warning in bench.status["warnings"])
    bench.cluster.failing.clear()
    await bench.run()
    await bench.run()
    assert bench.child("ConfigMap")
    await bench.run()
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
    for kind in ALWAYS:
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
    for kind in ALWAYS:
        assert bench.cluster.objects.list(kind) == []


async def test_a_changed_restart_setting_starts_new_pods(bench: Bench) -> None:
    [before] = bench.cluster.objects.list("Pod")
    bench.put({"scheduler": {"maxNumSeqs": 7}})
    await bench.run()
    [after] = bench.cluster.objects.list("Pod")
    assert before["metadata"]["labels"]["pod-template-hash"] != after["metadata"]["labels"]["pod-template-hash"]


async def test_fields_without_effect_are_warned_of(bench: Bench) -> None:
    bench.put({"rollout": {"canary": {"holdSeconds": 5}}})
    await bench.run()
    assert any("spec.rollout.canary" in warning for warning in bench.status["warnings"])


async def test_it_looks_more_often_while_it_is_not_ready(clock: Any) -> None:
    limits, bench = settings.ReconcileSettings(), Bench(clock)
    bench.cluster.pods_become_ready = False
    bench.put({"monitoring": {"enabled": False}})
    assert await bench.run() == limits.rewrite_secrets_seconds, "no pods: events tell everything"
    bench.cluster.controller.sync(bench.child("Deployment"))
    assert await bench.run() == limits.unready_seconds
    await bench.clock.advance(100)
    assert await bench.run() == pytest.approx(100 * limits.patience_ratio, abs=0.2)
    await bench.clock.advance(10_000)
    assert await bench.run() == limits.max_unready_seconds
    bench.cluster.pods_become_ready = True
    await bench.run()
    assert await bench.run() == limits.ready_seconds


def test_what_wakes_a_service() -> None:
    child = {"kind": "Pod", "metadata": {"name": "x", "namespace": "n", "labels": names.selector("base")}}
    assert loop.woken_by(child) == interface.Key(names.KIND, "n", "base")
    assert loop.woken_by(BASE) == KEY
    assert loop.woken_by({"kind": "Pod", "metadata": {"name": "x"}}) is None


async def test_only_what_somebody_must_do_something_about_is_a_warning(bench: Bench) -> None:
    def types() -> dict[str, str]:
        own = [item for item in bench.cluster.objects.list("Event") if item["involvedObject"]["kind"] == names.KIND]
        return {item["reason"]: item["type"] for item in own}

    assert set(types().values()) == {"Normal"}
    bench.put({"suspend": True})
    await bench.run()
    assert types()["Suspended"] == "Normal"
    bench.put({"nonsense": 1})
    await bench.run()
    assert types()["InvalidSpec"] == "Warning"
