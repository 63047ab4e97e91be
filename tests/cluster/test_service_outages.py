"""Operators die, wait for each other, lose the API server, and still every service ends as its spec says."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import operator_runner
import operator_runs
import pytest
from bed import running

from tidemark_operator import names

NAME = operator_runner.NAME
GPU = "nvidia.com/gpu"
DOWN_SECONDS = 300.0
"""An operator is away for so long while engines serve. Hours would show nothing else: nothing in a pod asks for it."""
TAKEOVER_SECONDS = 45.0
"""The lease runs out after 15; the rest is for a busy machine."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_killed_in_the_middle_of_a_creation(bench: operator_runner.Bench) -> None:
    bench.start()
    bench.apply(operator_runner.small(NAME))
    bench.until("the first child", lambda: bench.of("serviceaccount,configmap", NAME))
    bench.kill()
    bench.start()
    bench.until_settled(NAME)
    bench.until("an answer", lambda: bench.answers(NAME))


def test_killed_in_the_middle_of_a_hot_change(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready(overload={"maxQueuedRequests": 11})
    bench.apply(operator_runner.small(NAME, overload={"maxQueuedRequests": 12}))
    bench.kill()
    bench.start()
    bench.until_condition(NAME, "ConfigApplied", "True")
    bench.until("the engine has it", lambda: bench.answers(NAME, maxQueuedRequests=12))
    assert set(bench.pods(NAME)) == before


def test_killed_in_the_middle_of_a_roll(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready(replicas=2, scheduler={"maxNumSeqs": 5})
    bench.apply(operator_runner.small(NAME, replicas=2, scheduler={"maxNumSeqs": 6}))
    bench.until("the first new pod", lambda: set(bench.pods(NAME)) - before)
    bench.kill()
    bench.start()
    bench.until_settled(NAME)
    bench.until("the new value", lambda: bench.answers(NAME, maxNumSeqs=6))
    assert not before & set(bench.pods(NAME))
    assert len(bench.engine_config_maps(NAME)) == 1


def delete_deployment(bench: operator_runner.Bench) -> None:
    bench.delete("deployment", NAME)


def edit_deployment(bench: operator_runner.Bench) -> None:
    bench.patch("deployment", NAME, {"spec": {"replicas": 3}})


def edit_service(bench: operator_runner.Bench) -> None:
    bench.patch("service", NAME, {"spec": {"selector": {"app": "somebody-else"}}})


def kill_pod(bench: operator_runner.Bench) -> None:
    (pod,) = bench.pods(NAME).values()
    bench.bed.kubectl(
        "delete", "pod", pod["metadata"]["name"], "-n", bench.namespace, "--grace-period=0", "--force", "--wait=false"
    )


def ask_for_too_much(bench: operator_runner.Bench) -> None:
    """And back again after the operator was killed, see below."""
    bench.apply(operator_runner.small(NAME, hardware={"memory": "512Mi"}))


@pytest.mark.parametrize("trouble", [delete_deployment, edit_deployment, edit_service, kill_pod, ask_for_too_much])
def test_killed_in_the_middle_of_a_repair(
    bench: operator_runner.Bench, trouble: Callable[[operator_runner.Bench], None]
) -> None:
    bench.start()
    bench.ready()
    trouble(bench)
    bench.kill()
    bench.apply(operator_runner.small(NAME))
    bench.start()
    bench.until("everything is as it should be", lambda: is_as_it_should_be(bench))
    bench.until("an answer", lambda: bench.answers(NAME))


def is_as_it_should_be(bench: operator_runner.Bench) -> bool:
    deployment, service = bench.get("deployment", NAME), bench.found("service", NAME)
    if deployment is None or deployment["spec"]["replicas"] != 1 or len(bench.of("pods", NAME)) != 1:
        return False
    is_ready = operator_runner.condition(bench.found("tide", NAME), "Ready").get("status") == "True"
    return is_ready and service["spec"]["selector"].get(names.SERVICE_LABEL) == NAME


def test_killed_while_the_last_device_is_waited_for(bench: operator_runner.Bench) -> None:
    """The operator that comes after tells the same, and the wait ends when the device is free."""
    bench.bed.set_devices({GPU: 1})
    bench.start()
    hardware = {"resourceName": GPU, "memory": "24Gi"}
    bench.apply(operator_runner.small("first", hardware=hardware))
    bench.until_settled("first")
    bench.apply(operator_runner.small("second", hardware=hardware))
    bench.until("its pod", lambda: bench.pods("second"))
    bench.kill()
    bench.start()
    said = bench.until_condition("second", "Ready", "False", "Unschedulable")["message"]
    assert f"1 Insufficient {GPU}" in said
    bench.delete("tide", "first")
    bench.until_settled("second")


def test_engines_serve_without_an_operator(bench: operator_runner.Bench) -> None:
    bench.start()
    before = bench.ready()
    bench.until("an answer", lambda: bench.answers(NAME))
    generation = bench.found("deployment", NAME)["metadata"]["generation"]
    bench.kill()
    end, answered = time.monotonic() + DOWN_SECONDS, 0
    while time.monotonic() < end:
        bench.answer(NAME)
        answered += 1
        time.sleep(0.05)
    assert answered > 100
    operator = bench.start()
    begin = operator_runner.passes(operator)
    bench.until("passes", lambda: operator_runner.passes(operator) >= begin + 2)
    bench.until_settled(NAME)
    assert set(bench.pods(NAME)) == before
    assert bench.found("deployment", NAME)["metadata"]["generation"] == generation


def test_a_second_operator_takes_over_from_one_that_was_killed(bench: operator_runner.Bench) -> None:
    first = bench.start()
    before = bench.ready(overload={"maxQueuedRequests": 11})
    second = bench.start(leading=False).waiting()
    assert second.probe("/health/ready") == (200, "waiting to lead\n")
    first.end(signal.SIGKILL)
    bench.apply(operator_runner.small(NAME, overload={"maxQueuedRequests": 12}))
    second.until("it leads", lambda: second.probe("/health/ready") == (200, "leading\n"), TAKEOVER_SECONDS)
    bench.until("the change", lambda: bench.answers(NAME, maxQueuedRequests=12))
    bench.until_ready(NAME)
    assert set(bench.pods(NAME)) == before


@pytest.fixture
def outage(bench: operator_runner.Bench) -> Iterator[running.Bed]:
    """The bed, for tests that take its API server away. The cluster's own controllers wait ever longer between two
    tries, past a minute in the end; they are started anew, so that whoever comes next finds them awake."""
    yield bench.bed
    for part in ("controllers", "scheduler"):
        bench.bed.restart(part)


@pytest.fixture
def patient(bench: operator_runner.Bench) -> Iterator[operator_runs.Operator]:
    """It keeps its lease while the API server is away; the product's own ends after ten seconds and is started anew."""
    with operator_runs.patient(bench.environment, bench.folder, bench.namespace) as operator:
        yield operator.leading()


def test_an_api_server_that_restarts(
    bench: operator_runner.Bench, outage: running.Bed, patient: operator_runs.Operator
) -> None:
    before = bench.ready(overload={"maxQueuedRequests": 11})
    outage.restart("apiserver")
    bench.apply(operator_runner.small(NAME, overload={"maxQueuedRequests": 12}))
    bench.until("the change", lambda: bench.answers(NAME, maxQueuedRequests=12))
    bench.until_ready(NAME)
    assert set(bench.pods(NAME)) == before
    assert patient.process.poll() is None
    assert "Traceback" not in patient.log, patient.log


def test_watches_that_have_expired(
    bench: operator_runner.Bench, outage: running.Bed, patient: operator_runs.Operator
) -> None:
    """The history from before is gone when the operator asks for it again: 410, and it begins anew with lists."""
    before = bench.ready(overload={"maxQueuedRequests": 11})
    patient.process.send_signal(signal.SIGSTOP)
    try:
        bench.apply(operator_runner.small(NAME, overload={"maxQueuedRequests": 12}))
        outage.kill("apiserver")
        outage.start("apiserver")
        outage.compact()
        outage.kill("apiserver")
        outage.start("apiserver")
    finally:
        patient.process.send_signal(signal.SIGCONT)
    bench.until("the change", lambda: bench.answers(NAME, maxQueuedRequests=12))
    bench.until_ready(NAME)
    assert set(bench.pods(NAME)) == before
    assert patient.process.poll() is None
    assert "Traceback" not in patient.log, patient.log


def test_the_product_s_own_patience_ends_and_it_is_started_again(
    bench: operator_runner.Bench, outage: running.Bed
) -> None:
    """Without an API server it cannot renew its lease, so it ends rather than work beside another; a pod's restart, as
    here by hand, brings it back."""
    operator = bench.start()
    before = bench.ready(overload={"maxQueuedRequests": 11})
    outage.stop("apiserver")
    try:
        assert operator.process.wait(60) == 1
    finally:
        outage.start("apiserver")
    bench.start()
    bench.apply(operator_runner.small(NAME, overload={"maxQueuedRequests": 12}))
    bench.until("the change", lambda: bench.answers(NAME, maxQueuedRequests=12))
    assert set(bench.pods(NAME)) == before
