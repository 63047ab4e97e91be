"""What an evaluation said, from its job and that job's pod into status, condition and event."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from reconcile_bench import BASE, Bench, settled

from tidemark_operator import api, names, plan
from tidemark_operator.api.crd import status as crd_status
from tidemark_operator.cluster import interface
from tidemark_runtime.contract import verdict

SPEC = {"kvCache": {"dtype": "int8"}, "evaluation": {"schedule": "@weekly", "maxKl": 0.02, "maxPerplexityRise": 0.01}}
HASH = plan.restart_hash(api.parse({**BASE, "spec": {**BASE["spec"], **SPEC}}))
GOOD = verdict.Verdict(
    configuration="int8", restart_hash=HASH, passed=True, mean_kl=0.0008, perplexity_rise=0.001, tokens=4096
)
BAD = verdict.Verdict(
    configuration="int8",
    restart_hash=HASH,
    passed=False,
    mean_kl=0.03,
    perplexity_rise=0.001,
    tokens=4096,
    over=["int8: mean KL 0.03 is over --max-kl 0.02"],
)


@pytest.fixture
async def bench(clock: Any) -> Bench:
    made = await settled(clock)
    made.put(SPEC)
    for _ in range(3):
        await made.run()
    return made


def ended(bench: Bench, number: int, said: str | None, *, how: str = "Complete", minute: int = 0) -> None:
    """A job of the CronJob that has ended; its pod's last words."""
    cron, name = bench.child("CronJob"), f"base-evaluation-{number}"
    owner = {
        "kind": "CronJob",
        "name": cron["metadata"]["name"],
        "uid": cron["metadata"]["uid"],
        "controller": True,
        "apiVersion": "batch/v1",
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": names.labels("base"),
            "ownerReferences": [owner],
        },
    }
    bench.cluster.objects.apply(job, "controller")
    time = f"2026-01-01T03:{minute:02}:00Z"
    key = interface.Key("Job", "default", name)
    message = "Job was active longer than specified deadline"
    bench.cluster.objects.patch_status(
        key, {"conditions": [{"type": how, "status": "True", "lastTransitionTime": time, "message": message}]}
    )
    if said is not None:
        state = {"terminated": {"exitCode": 0, "message": said}}
        bench.cluster.pods_of_jobs[name] = [{"status": {"containerStatuses": [{"state": state}]}}]


def reasons(bench: Bench) -> list[str]:
    return [event["reason"] for event in bench.cluster.objects.list("Event") if "Evaluation" in event["reason"]]


async def test_before_the_first_one_only_the_interval_is_known(bench: Bench) -> None:
    assert bench.status["evaluation"] == {"intervalSeconds": 604_800}
    assert not [item for item in bench.status["conditions"] if item["type"] == "EvaluationPassed"]


async def test_one_that_passed(bench: Bench) -> None:
    ended(bench, 1, verdict.write(GOOD))
    await bench.run()
    condition = bench.condition("EvaluationPassed")
    assert (condition["status"], condition["reason"]) == ("True", "WithinLimits")
    assert bench.status["evaluation"] == {
        "job": "base-evaluation-1",
        "time": "2026-01-01T03:00:00Z",
        "passed": True,
        "message": "int8: mean KL 0.0008 nats, perplexity +0.10% on 4,096 tokens.",
        "configuration": "int8",
        "restartHash": HASH,
        "meanKl": 0.0008,
        "perplexityRise": 0.001,
        "intervalSeconds": 604_800,
    }
    assert reasons(bench) == ["EvaluationPassed"]
    known = crd_status.schema()["properties"]
    assert set(bench.status) <= set(known)
    assert set(bench.status["evaluation"]) == set(known["evaluation"]["properties"])


async def test_its_pod_is_asked_once_and_may_be_gone_later(bench: Bench) -> None:
    ended(bench, 1, verdict.write(GOOD))
    await bench.run()
    bench.cluster.pods_of_jobs.clear()
    await bench.run()
    assert bench.status["evaluation"]["passed"] is True
    bench.cluster.objects.remove(interface.Key("Job", "default", "base-evaluation-1"))
    await bench.run()
    assert bench.status["evaluation"]["passed"] is True


async def test_one_over_its_limits_and_the_next_that_passes(bench: Bench) -> None:
    ended(bench, 1, verdict.write(BAD), how="Failed")
    await bench.run()
    condition = bench.condition("EvaluationPassed")
    assert (condition["status"], condition["reason"]) == ("False", "OverLimits")
    assert "over --max-kl 0.02" in condition["message"]
    assert bench.condition("Ready")["status"] == "True"
    ended(bench, 2, verdict.write(GOOD), minute=30)
    await bench.run()
    assert bench.condition("EvaluationPassed")["status"] == "True"
    assert set(reasons(bench)) == {"EvaluationOverLimits", "EvaluationPassed"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Traceback\nModelNotFound: there is no such model\n", "there is no such model"),
        (None, "longer than specified deadline"),
        ('{"format": "other/1"}', "other/1"),
    ],
)
async def test_one_that_did_not_finish_says_why(bench: Bench, said: str | None, words: str) -> None:
    ended(bench, 1, said, how="Failed")
    await bench.run()
    condition = bench.condition("EvaluationPassed")
    assert (condition["status"], condition["reason"]) == ("False", "NotFinished")
    assert words in condition["message"]


async def test_jobs_of_others_do_not_count(bench: Bench) -> None:
    ended(bench, 1, verdict.write(GOOD))
    job = bench.cluster.objects.get(interface.Key("Job", "default", "base-evaluation-1")) or {}
    job["metadata"]["ownerReferences"][0]["name"] = "another"
    bench.cluster.objects.remove(interface.key_of(job))
    bench.cluster.objects.apply(job, "somebody")
    await bench.run()
    assert "passed" not in bench.status["evaluation"]


async def test_without_the_schedule_nothing_of_it_is_left(bench: Bench) -> None:
    ended(bench, 1, verdict.write(GOOD))
    await bench.run()
    bench.put({**SPEC, "evaluation": {"maxKl": 0.02}})
    for _ in range(3):
        await bench.run()
    assert "evaluation" not in bench.status
    assert bench.cluster.objects.list("CronJob") == []


async def test_a_second_job_of_the_same_name_is_read_as_well(bench: Bench) -> None:
    """`kubectl create job NAME-now --from=cronjob/...`, twice."""
    ended(bench, 1, verdict.write(BAD), how="Failed")
    await bench.run()
    bench.cluster.objects.remove(interface.Key("Job", "default", "base-evaluation-1"))
    ended(bench, 1, verdict.write(GOOD), minute=30)
    await bench.run()
    assert bench.condition("EvaluationPassed")["status"] == "True"
    assert bench.status["evaluation"]["time"] == "2026-01-01T03:30:00Z"


async def test_an_older_job_does_not_come_back_when_the_last_one_is_deleted(bench: Bench) -> None:
    ended(bench, 1, verdict.write(BAD), how="Failed")
    ended(bench, 2, verdict.write(GOOD), minute=30)
    await bench.run()
    bench.cluster.objects.remove(interface.Key("Job", "default", "base-evaluation-2"))
    await bench.run()
    assert bench.status["evaluation"]["job"] == "base-evaluation-2"
    assert bench.condition("EvaluationPassed")["status"] == "True"


async def test_figures_that_are_no_numbers_are_over_the_limits_and_said(bench: Bench) -> None:
    broken = msgspec.structs.replace(BAD, mean_kl=math.nan, over=["int8: mean KL nan is over --max-kl 0.02"])
    ended(bench, 1, verdict.write(broken), how="Failed")
    await bench.run()
    condition = bench.condition("EvaluationPassed")
    assert (condition["status"], condition["reason"]) == ("False", "OverLimits")
    assert "mean KL no number" in condition["message"]
    assert "meanKl" not in bench.status["evaluation"]


async def test_the_time_of_an_end_is_known_where_its_condition_has_none(bench: Bench) -> None:
    ended(bench, 1, verdict.write(GOOD))
    key = interface.Key("Job", "default", "base-evaluation-1")
    done = {"completionTime": "2026-01-01T04:00:00Z", "conditions": [{"type": "Complete", "status": "True"}]}
    bench.cluster.objects.patch_status(key, done)
    await bench.run()
    assert bench.status["evaluation"]["time"] == "2026-01-01T04:00:00Z"


async def test_of_a_suspended_service_nothing_is_overdue(bench: Bench) -> None:
    ended(bench, 1, verdict.write(GOOD))
    await bench.run()
    bench.put({**SPEC, "suspend": True})
    for _ in range(3):
        await bench.run()
    assert bench.status["evaluation"]["passed"] is True
    assert "intervalSeconds" not in bench.status["evaluation"]
    bench.put(SPEC)
    for _ in range(3):
        await bench.run()
    assert bench.status["evaluation"]["intervalSeconds"] == 604_800


async def test_one_of_a_configuration_before_this_one_says_nothing_of_it(bench: Bench) -> None:
    ended(bench, 1, verdict.write(GOOD))
    await bench.run()
    bench.put({**SPEC, "kvCache": {"dtype": "fp8_e5m2"}})
    for _ in range(3):
        await bench.run()
    condition = bench.condition("EvaluationPassed")
    assert (condition["status"], condition["reason"]) == ("Unknown", "ConfigurationChanged")
    bench.put({**SPEC, "overload": {"maxQueuedRequests": 9}})  # hot: nothing of it is quantized otherwise
    for _ in range(3):
        await bench.run()
    assert bench.condition("EvaluationPassed")["status"] == "True"
