"""A service from its first manifest to its end: it becomes Ready, takes changes, is repaired, and goes without a trace.

The engines are stand-ins that compute nothing; everything around them is real.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import operator_runner
import operator_runs
import pytest
import yaml

from tidemark_operator import names

if TYPE_CHECKING:
    pass

NAME = operator_runner.NAME
KINDS = "configmap,controllerrevision,deployment,networkpolicy,poddisruptionbudget,secret,service,serviceaccount"

pytestmark = pytest.mark.timeout(900)


def children(bench: operator_runner.Bench) -> set[str]:
    return {item["kind"] for item in bench.of(KINDS, NAME)}


def test_a_manifest_becomes_a_service_that_answers(bench: operator_runner.Bench) -> None:
    bench.start()
    bench.apply(operator_runner.small(NAME))
    wait = ("wait", f"tide/{NAME}", "-n", bench.namespace, "--for=condition=Ready", "--timeout=240s")
    bench.bed.kubectl(*wait, seconds=260)
    assert children(bench) == {
        "ConfigMap", "ControllerRevision", "Deployment", "Secret", "Service", "ServiceAccount"
    }  # fmt: skip
    bench.until("an answer through the Service", lambda: bench.answers(NAME))
    head, row = bench.bed.kubectl("get", "tide", "-n", bench.namespace).splitlines()
    assert head.split() == ["NAME", "READY", "REASON", "MODEL", "REPLICAS", "DEVICES", "KV", "URL", "AGE"]
    assert row.split()[:7] == [NAME, "True", "Ready", NAME, "1", "1", "core"]
    assert f"http://{NAME}.{bench.namespace}.svc" in row


def test_a_hot_change_reaches_the_running_pods(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready(overload={"maxQueuedRequests": 11})
    old = {item["metadata"]["name"]: item["data"] for item in bench.engine_config_maps(NAME)}
    bench.apply(operator_runner.small(NAME, overload={"maxQueuedRequests": 12}))
    bench.until("the engine has it", lambda: bench.answers(NAME, maxQueuedRequests=12))
    said = bench.until_condition(NAME, "ConfigApplied", "True")["message"]
    new = {item["metadata"]["name"]: item for item in bench.engine_config_maps(NAME)}
    assert set(new) == set(old)  # the same object, so that a container that restarts finds the new values
    (stored,) = new.values()
    assert "maxQueuedRequests: 12" in stored["data"][names.CONFIG_FILE]
    assert (
        said
        == f"1 of 1 engines run the configuration {stored['metadata']['annotations'][names.CONFIG_HASH_ANNOTATION]}."
    )
    bench.until_ready(NAME)
    assert set(bench.pods(NAME)) == before
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in bench.pods(NAME).values()] == [0]


def test_a_restart_change_replaces_the_pods_one_for_one(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready(scheduler={"maxNumSeqs": 5})
    bench.apply(operator_runner.small(NAME, scheduler={"maxNumSeqs": 6}))
    bench.until_settled(NAME)
    bench.until("the new value", lambda: bench.answers(NAME, maxNumSeqs=6))
    assert not before & set(bench.pods(NAME))
    wanted = [_config_map(bench)]
    # The pass that the end of the last old pod wakes takes its configuration away.
    bench.until(
        "the configuration of the old revision is gone",
        lambda: [item["metadata"]["name"] for item in bench.engine_config_maps(NAME)] == wanted,
    )


def _config_map(bench: operator_runner.Bench) -> str:
    volumes = bench.found("deployment", NAME)["spec"]["template"]["spec"]["volumes"]
    return str(next(volume["configMap"]["name"] for volume in volumes if volume["name"] == "config"))


def test_a_deployment_that_is_deleted_comes_back(bench: operator_runner.Bench) -> None:
    bench.start()
    bench.ready()
    before = bench.found("deployment", NAME)["metadata"]["uid"]
    bench.delete("deployment", NAME)
    bench.until("another Deployment", lambda: _uid(bench, "deployment", NAME) not in ("", before))
    bench.until_settled(NAME)
    bench.until("an answer", lambda: bench.answers(NAME))


def _uid(bench: operator_runner.Bench, kind: str, name: str) -> str:
    found = bench.get(kind, name)
    return str(found["metadata"]["uid"]) if found else ""


def test_edited_children_are_put_right(bench: operator_runner.Bench) -> None:
    """B067 and more: arguments of the container, the selector of the Service, the number of replicas."""
    bench.start()
    bench.ready()
    args = bench.found("deployment", NAME)["spec"]["template"]["spec"]["containers"][0]["args"]
    edits: dict[str, list[dict[str, Any]]] = {
        "deployment": [
            {"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": ["models", "fetch", "nowhere"]},
            {"op": "replace", "path": "/spec/replicas", "value": 2},
        ],
        "service": [{"op": "replace", "path": "/spec/selector", "value": {"app": "somebody-else"}}],
    }
    for kind, edit in edits.items():
        where = ("-n", bench.namespace, "--type=json", "-p", json.dumps(edit))
        bench.bed.kubectl("patch", kind, NAME, *where)

    def is_repaired() -> bool:
        spec = bench.found("deployment", NAME)["spec"]
        selector = bench.found("service", NAME)["spec"]["selector"]
        right = spec["template"]["spec"]["containers"][0]["args"] == args and spec["replicas"] == 1
        return bool(right and selector.get(names.SERVICE_LABEL) == NAME)

    bench.until("both are as before", is_repaired)
    bench.until_settled(NAME)
    bench.until("an answer", lambda: bench.answers(NAME))


def test_a_config_map_that_is_deleted_and_a_pod_that_is_killed_come_back(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready()
    bench.delete("configmap", _config_map(bench))
    (pod,) = bench.pods(NAME).values()
    where = ("-n", bench.namespace, "--grace-period=0", "--force", "--wait=false")
    bench.bed.run([bench.bed.kubectl_program, "delete", "pod", pod["metadata"]["name"], *where])
    bench.until("the ConfigMap", lambda: bench.get("configmap", _config_map(bench)))
    bench.until("another pod", lambda: set(bench.pods(NAME)) - before)
    bench.until_settled(NAME)
    bench.until("an answer", lambda: bench.answers(NAME))


def test_a_process_that_dies_is_told_and_starts_again(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready()
    (pod,) = bench.pods(NAME).values()
    program = "import os, signal; os.kill(1, signal.SIGTERM)"
    command = ["exec", pod["metadata"]["name"], "-n", bench.namespace, "--", "python", "-c", program]
    # The kernel may end it together with the container, before it has ended by itself.
    bench.bed.run([bench.bed.kubectl_program, *command], check=False)
    status = bench.until("a restart", lambda: _restarted(bench))
    assert status["lastState"]["terminated"]["exitCode"] == 0
    bench.until_settled(NAME)
    assert set(bench.pods(NAME)) == before


def _restarted(bench: operator_runner.Bench) -> dict[str, Any] | None:
    (pod,) = bench.pods(NAME).values()
    status: dict[str, Any] = pod["status"]["containerStatuses"][0]
    return status if status["restartCount"] else None


def test_a_paused_service_is_left_alone(bench: operator_runner.Bench) -> None:
    operator = bench.start()
    bench.ready()
    bench.patch("tide", NAME, {"metadata": {"annotations": {names.PAUSED_ANNOTATION: "true"}}})
    # A pass that ran already does not know of it; as long as all is well, the status says nothing of it.
    _until_passes(bench, operator, operator_runner.passes(operator) + 2)
    bench.patch("deployment", NAME, {"spec": {"replicas": 0}})
    said = bench.until_condition(NAME, "Ready", "False", "Paused")["message"]
    assert names.PAUSED_ANNOTATION in said
    bench.until("no pods", lambda: not bench.of("pods", NAME))
    operator.settle()
    assert bench.found("deployment", NAME)["spec"]["replicas"] == 0
    bench.patch("tide", NAME, {"metadata": {"annotations": {names.PAUSED_ANNOTATION: None}}})
    bench.until_settled(NAME)
    assert bench.found("deployment", NAME)["spec"]["replicas"] == 1


def test_a_suspended_service_has_no_pods_and_comes_back(bench: operator_runner.Bench) -> None:
    bench.start()
    bench.ready()
    bench.patch("tide", NAME, {"spec": {"suspend": True}})
    bench.until_condition(NAME, "Ready", "False", "Suspended")
    bench.until("no pods", lambda: not bench.of("pods", NAME))
    assert bench.found("service", NAME)["spec"]["clusterIP"]
    bench.patch("tide", NAME, {"spec": {"suspend": False}})
    bench.until_settled(NAME)
    bench.until("an answer", lambda: bench.answers(NAME))


def test_deletion_needs_no_operator(bench: operator_runner.Bench) -> None:
    """B063: no finalizer; owner references do it."""
    bench.start()
    bench.ready()
    assert "finalizers" not in bench.found("tide", NAME)["metadata"]
    bench.end()
    bench.bed.kubectl("delete", "tide", NAME, "-n", bench.namespace)
    everything = f"{KINDS},pods,replicasets"
    bench.until("nothing is left", lambda: not bench.of(everything, NAME))


def test_deleted_in_the_moment_of_creation_nothing_is_left(bench: operator_runner.Bench) -> None:
    """B065: the operator is still making children when the service is gone."""
    operator = bench.start()
    with direct(bench) as client:
        path = f"/apis/{names.API_VERSION}/namespaces/{bench.namespace}/{names.PLURAL}"
        for number in range(20):
            client.post(path, json=operator_runner.small(NAME)).raise_for_status()
            time.sleep(0.01 * number)  # from at once to when some children exist
            client.delete(f"{path}/{NAME}").raise_for_status()
            assert client.get(f"{path}/{NAME}").status_code == 404, "nothing holds it back"
    bench.until("nothing is left to do", lambda: operator.samples("tidemark_operator_queue_depth") == {"": 0.0})
    operator.settle()  # a pass that still ran is over
    # The cluster takes away what was made for one that was gone.
    bench.until("nothing is left", lambda: not bench.of(f"{KINDS},pods,replicasets", NAME))


@contextlib.contextmanager
def direct(bench: operator_runner.Bench) -> Iterator[httpx.Client]:
    """To the API server without kubectl, which takes longer to start than these tests have."""
    document = yaml.safe_load(bench.bed.kubeconfig.read_text())
    (server,) = [item["cluster"]["server"] for item in document["clusters"]]
    token = document["users"][0]["user"]["token"]
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server, headers=headers, verify=False, trust_env=False, timeout=30) as client:
        yield client


def test_the_generation_that_was_acted_on_is_told(bench: operator_runner.Bench) -> None:
    """B069: never more than there is, never backwards, and nothing is Ready that was not rolled out."""
    bench.start()
    bench.ready(scheduler={"maxNumSeqs": 5})
    first = bench.found("tide", NAME)
    bench.patch("tide", NAME, {"metadata": {"labels": {"team": "legal"}}})
    seen: list[int] = []
    for number in (6, 7, 8):
        bench.patch("tide", NAME, {"spec": {"scheduler": {"maxNumSeqs": number}}})

    def is_done() -> bool:
        service = bench.found("tide", NAME)
        deployment = bench.found("deployment", NAME)
        generation, told = service["metadata"]["generation"], service["status"]["observedGeneration"]
        seen.append(told)
        assert told <= generation
        assert {item["observedGeneration"] for item in service["status"]["conditions"]} == {told}
        is_true = operator_runner.condition(service, "Ready")["status"] == "True"
        ready_now: bool = is_true and told == generation
        progress = deployment["status"]
        rolled = progress.get("observedGeneration") == deployment["metadata"]["generation"]
        if ready_now:
            assert rolled
            assert progress["updatedReplicas"] == progress["replicas"] == 1
        return ready_now

    bench.until("it is Ready again", is_done)
    assert seen == sorted(seen)
    assert bench.found("tide", NAME)["status"]["observedGeneration"] == first["metadata"]["generation"] + 3
    bench.bed.kubectl("rollout", "restart", f"deployment/{NAME}", "-n", bench.namespace)
    bench.until_settled(NAME)
    assert bench.found("tide", NAME)["status"]["observedGeneration"] == first["metadata"]["generation"] + 3


def test_the_number_of_pods_is_the_autoscaler_s(bench: operator_runner.Bench) -> None:
    """B071: scaled by another, the operator never writes it, whatever else changes."""
    bench.start()
    auto = {"autoscaling": {"min": 1, "max": 8}}
    bench.ready(**auto)
    bench.bed.kubectl("scale", "deployment", NAME, "-n", bench.namespace, "--replicas=7")
    bench.until_settled(NAME)
    assert len(bench.pods(NAME)) == 7
    bench.apply(operator_runner.small(NAME, **auto, scheduler={"maxNumSeqs": 5}))
    bench.until("the change is there", lambda: bench.answers(NAME, maxNumSeqs=5))
    assert bench.found("deployment", NAME)["spec"]["replicas"] == 7
    bench.kill()
    bench.start()
    bench.until_settled(NAME)
    assert bench.found("deployment", NAME)["spec"]["replicas"] == 7
    assert len(bench.pods(NAME)) == 7


def test_texts_arrive_unchanged(bench: operator_runner.Bench) -> None:
    """B075: what looks like a number, a boolean or nothing is still a text in the pod."""
    bench.start()
    toleration = {"key": "example.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    texts = {
        "SWITCH": "on", "OCTAL": "0123", "FLOAT": "1e3", "NULL": "null", "EMPTY": "",
        "ODD": 'a "quoted"\nline {{ x }}', "WORLD": "\u00e4 \u2028 \x7f \U0001f30a",
    }  # fmt: skip
    variables = [{"name": name, "value": value} for name, value in texts.items()]
    bench.ready(
        hardware={"tolerations": [toleration]},
        podTemplate={"env": variables, "labels": {"spot": "true", "cost-centre": "0042"}},
    )
    (pod,) = bench.pods(NAME).values()
    assert toleration in pod["spec"]["tolerations"]
    assert pod["metadata"]["labels"].items() >= {"spot": "true", "cost-centre": "0042"}.items()
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    said = bench.bed.kubectl("exec", pod["metadata"]["name"], "-n", bench.namespace, "--", "python", "-c", program)
    assert json.loads(said).items() >= texts.items()


@pytest.mark.long  # without pods, test_random_services.py shows the same of many services
def test_another_operator_process_finds_nothing_to_change(bench: operator_runner.Bench) -> None:
    """B061: the same manifests whatever the order of sets and dictionaries in a process."""
    bench.start(seed="1")
    variables = [{"name": f"NAME_{number}", "value": str(number)} for number in range(8)]
    labels = {f"label-{letter}": letter for letter in "cab"}
    before = bench.ready(podTemplate={"env": variables, "labels": labels})
    versions = _versions(bench)
    for seed in ("2", "3"):
        bench.end()
        operator = bench.start(seed=seed)
        for number in range(5):
            wanted = operator_runner.passes(operator) + 2
            bench.patch("tide", NAME, {"metadata": {"annotations": {"example.com/touched": f"{seed}-{number}"}}})
            _until_passes(bench, operator, wanted)
    assert len(bench.of("replicasets", NAME)) == 1
    assert _versions(bench) == versions
    assert set(bench.pods(NAME)) == before


def _until_passes(bench: operator_runner.Bench, operator: operator_runs.Operator, wanted: float) -> None:
    bench.until(f"{wanted:.0f} passes", lambda: operator_runner.passes(operator) >= wanted)


def _versions(bench: operator_runner.Bench) -> dict[str, Any]:
    kinds = "configmap,deployment,service,serviceaccount,controllerrevision"
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"].get("generation")
        or item["metadata"]["resourceVersion"]
        for item in bench.of(kinds, NAME)
    }
