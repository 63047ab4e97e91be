"""What goes wrong with a service is said in words, spares what runs, and is over once its cause is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import operator_runner
import pytest

from tidemark_operator import names

if TYPE_CHECKING:
    pass

NAME = operator_runner.NAME
MISSING_IMAGE = "localhost/tidemark-bed/no-such-engine:1"
GPU = "nvidia.com/gpu"

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_an_image_that_is_not_there_is_named(bench: operator_runner.Bench) -> None:
    """B079: pods that never started do not keep back the good ones."""
    bench.start(image=MISSING_IMAGE)
    bench.apply(operator_runner.small(NAME, replicas=2))
    said = bench.until_condition(NAME, "Ready", "False", "ImagePullBackOff")["message"]
    assert f"The image {MISSING_IMAGE} cannot be pulled" in said
    assert operator_runner.condition(bench.found("tide", NAME), "Degraded")["status"] == "True"
    events = bench.until("events", lambda: _events(bench, "ImagePullBackOff"))
    assert {item["type"] for item in events} == {"Warning"}
    assert {item["type"] for item in _events(bench, "Starting")} <= {"Normal"}
    bench.end()
    bench.start()
    bench.until_settled(NAME)
    assert len(bench.pods(NAME)) == 2


def test_an_image_that_is_not_there_spares_what_runs(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready(rollout={"strategy": "surge"})
    bench.end()
    bench.start(image=MISSING_IMAGE)
    bench.until_condition(NAME, "Degraded", "True", "ImagePullBackOff")
    assert operator_runner.condition(bench.found("tide", NAME), "Available")["status"] == "True"
    assert before <= set(bench.pods(NAME))
    assert bench.answers(NAME)
    bench.kill()  # in the middle of it
    bench.start()
    bench.until_settled(NAME)
    assert set(bench.pods(NAME)) == before


def test_a_spec_whose_pods_crash_is_rolled_back_once(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready(rollout={"strategy": "surge"})
    bad = operator_runner.small(NAME, model={"name": "crashes"}, rollout={"strategy": "surge"})
    bench.apply(bad)
    said = bench.until_condition(NAME, "Degraded", "True", "ModelNotFound")["message"]
    assert "there is no such model" in said
    bench.kill()  # in the middle of it
    operator = bench.start()
    said = bench.until_condition(NAME, "Ready", "False", "RolledBack")["message"]
    assert "there is no such model" in said
    assert "revision 1, the last that served" in said
    bench.until("the bad pod is gone", lambda: set(bench.pods(NAME)) == before)
    assert bench.answers(NAME)
    _stays(bench, operator, before)
    rolled = bench.until("events", lambda: _events(bench, "RolledBack"))
    assert len([item for item in rolled if "The pods get the last spec that served (revision 1)" in item["note"]]) == 1
    bench.apply(operator_runner.small(NAME, scheduler={"maxNumSeqs": 7}))
    bench.until_settled(NAME)
    bench.until("the good spec", lambda: bench.answers(NAME, maxNumSeqs=7))


def _events(bench: operator_runner.Bench, reason: str) -> list[dict[str, Any]]:
    """About the service, written by the operator."""
    found = bench.bed.objects("events.events.k8s.io", bench.namespace)
    return [item for item in found if item["reason"] == reason and item["regarding"]["kind"] == names.KIND]


def _stays(bench: operator_runner.Bench, operator: Any, pods: set[str]) -> None:
    """It does not flap: many passes later all is as it was."""
    generation = bench.found("deployment", NAME)["metadata"]["generation"]
    begin = operator_runner.passes(operator)
    bench.until("more passes", lambda: operator_runner.passes(operator) >= begin + 4)
    assert bench.found("deployment", NAME)["metadata"]["generation"] == generation
    assert set(bench.pods(NAME)) == pods


def test_a_rollout_past_its_deadline_is_rolled_back_with_the_scheduler_s_words(bench: operator_runner.Bench) -> None:
    """A selector that no node has: ending the old pod first would not help, so it serves all the time."""
    bench.start()
    short = {"progressDeadlineSeconds": 20}
    before = bench.ready(rollout={"progressDeadlineSeconds": 600})
    bench.apply(operator_runner.small(NAME, hardware={"nodeSelector": {"nowhere": "true"}}, rollout=short))
    bench.until_condition(NAME, "Degraded", "True", "Unschedulable")
    assert bench.answers(NAME)
    said = bench.until_condition(NAME, "Ready", "False", "RolledBack")["message"]
    assert "0/1 nodes are available" in said
    bench.until("the bad pod is gone", lambda: set(bench.pods(NAME)) == before)
    assert bench.answers(NAME)


def test_without_a_good_revision_the_failed_one_stays_until_it_is_corrected(bench: operator_runner.Bench) -> None:
    """B079: all pods crash, there is nothing to go back to, and the correction replaces them all."""
    bench.start()
    bench.apply(operator_runner.small(NAME, replicas=3, model={"name": "crashes"}))
    said = bench.until_condition(NAME, "Ready", "False", "ModelNotFound")["message"]
    assert "exit code 1" in said
    assert "there is no such model" in said
    assert "Check spec.model.source." in said

    def all_crash() -> bool:
        pods = [pod["status"].get("containerStatuses") for pod in bench.pods(NAME).values()]
        return len(pods) == 3 and all(found and found[0]["restartCount"] for found in pods)

    bench.until("all have crashed", all_crash)
    bench.apply(operator_runner.small(NAME, replicas=3))
    bench.until_settled(NAME)
    assert len(bench.pods(NAME)) == 3


def test_what_does_not_fit_gets_no_pods_and_the_sum(bench: operator_runner.Bench) -> None:
    bench.start()
    bench.apply(operator_runner.small(NAME, hardware={"memory": "512Mi"}))
    said = bench.until_condition(NAME, "CapacityFit", "False", "DoesNotFit")["message"]
    assert "MiB" in said
    assert "weights" in said
    assert "No pods are started for this spec." in said
    assert operator_runner.condition(bench.found("tide", NAME), "Ready")["reason"] == "DoesNotFit"
    assert not bench.of("deployment,pods", NAME)
    before = bench.ready()
    bench.apply(operator_runner.small(NAME, hardware={"memory": "512Mi"}))
    bench.until_condition(NAME, "CapacityFit", "False", "DoesNotFit")
    assert bench.answers(NAME)
    assert set(bench.pods(NAME)) == before


def device(name: str, **spec: Any) -> dict[str, Any]:
    return operator_runner.small(name, hardware={"resourceName": GPU, "memory": "24Gi"}, **spec)


def test_a_site_with_one_device_waits_and_rolls(bench: operator_runner.Bench) -> None:
    """The last device is taken: another waits in the scheduler's words; its owner drains first, not locked out."""
    bench.bed.set_devices({GPU: 1})
    bench.start()
    bench.apply(device("first", scheduler={"maxNumSeqs": 5}))
    bench.until_settled("first")
    bench.apply(device("second"))
    said = bench.until_condition("second", "Ready", "False", "Unschedulable")["message"]
    assert f"1 Insufficient {GPU}" in said
    bench.delete("tide", "second")
    bench.until("its pod is gone", lambda: not bench.of("pods", "second"))
    bench.apply(device("first", scheduler={"maxNumSeqs": 6}))
    bench.until_settled("first")
    bench.until("the new value", lambda: bench.answers("first", maxNumSeqs=6))
    assert _surge(bench, "first") == 0


def test_with_a_spare_device_the_new_pod_starts_first(bench: operator_runner.Bench) -> None:
    bench.bed.set_devices({GPU: 2})
    bench.start()
    bench.apply(device("first", scheduler={"maxNumSeqs": 5}))
    bench.until_settled("first")
    before = set(bench.pods("first"))
    bench.apply(device("first", scheduler={"maxNumSeqs": 6}))
    bench.until("both at once", lambda: before < set(bench.pods("first")))
    assert _surge(bench, "first") == 1
    bench.until_settled("first")


def test_a_spare_device_that_is_taken_meanwhile_is_no_dead_lock(bench: operator_runner.Bench) -> None:
    """It surges, because a device is spare, and another is quicker: then the old pod goes first after all."""
    bench.bed.set_devices({GPU: 1})
    bench.start()
    bench.apply(device("first", scheduler={"maxNumSeqs": 5}, rollout={"strategy": "surge"}))
    bench.until_settled("first")
    bench.apply(device("first", scheduler={"maxNumSeqs": 6}, rollout={"strategy": "surge"}))
    bench.until_condition("first", "Degraded", "True", "Unschedulable")
    assert bench.answers("first", maxNumSeqs=5)
    bench.apply(device("first", scheduler={"maxNumSeqs": 6}, rollout={"strategy": "auto"}))
    bench.until_settled("first")
    bench.until("the new value", lambda: bench.answers("first", maxNumSeqs=6))


def _surge(bench: operator_runner.Bench, name: str) -> int:
    rolling = bench.found("deployment", names.deployment(name))["spec"]["strategy"]["rollingUpdate"]
    return int(rolling["maxSurge"])
