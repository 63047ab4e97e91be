"""Engines over a line: condition, event, a lower soft limit where the spec asks for it, and the way back."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from reconcile_bench import KEY, Bench, settled

from tidemark_operator import errors, names
from tidemark_operator.cluster import interface
from tidemark_runtime.contract import status as contract

TIGHTEN = {"watermarks": {"response": "tighten"}, "scheduler": {"maxConcurrencySoft": 20}}


@pytest.fixture
async def bench(clock: Any) -> Bench:
    return await settled(clock)


def say(bench: Bench, *, above: tuple[str, ...] = (), waiting: int = 0, running: int = 4) -> None:
    """What the engine answers from now on; it has whatever configuration its ConfigMap has."""
    hash_ = bench.child("ConfigMap")["metadata"]["annotations"][names.CONFIG_HASH_ANNOTATION]
    for pod in bench.pods():
        bench.cluster.engines[pod["metadata"]["name"]] = contract.EngineStatus(
            version="0",
            state=contract.EngineState.READY,
            message="",
            model=contract.ModelStatus("base", "/models"),
            config=contract.ConfigStatus(hash_),
            memory=contract.MemoryStatus(pages_total=100, pages_used=95),
            queue=contract.QueueStatus(running=running, waiting=waiting),
            lines={name: contract.LineStatus(0.7, name in above) for name in ("queue", "preempt")},
        )
        bench.cluster.answers[pod["metadata"]["name"]] = interface.ConfigAnswer(True, hash_, "")


def reasons(bench: Bench) -> list[str]:
    return [event["reason"] for event in bench.cluster.objects.list("Event")]


def soft_limit(bench: Bench) -> int:
    text = bench.child("ConfigMap")["data"][names.CONFIG_FILE]
    limit: int = yaml.safe_load(text)["scheduler"]["maxConcurrencySoft"]
    return limit


async def passes(bench: Bench, seconds: float, every: float = 5.0) -> None:
    for _ in range(int(seconds / every)):
        await bench.clock.advance(every)
        await bench.run()


async def test_condition_and_events_from_begin_to_end(bench: Bench) -> None:
    say(bench)
    await bench.run()
    assert bench.condition("MemoryPressure")["status"] == "False"
    say(bench, above=("queue",), waiting=2)
    await passes(bench, 10)
    assert bench.condition("MemoryPressure")["reason"] == "AboveQueueLine"
    assert bench.condition("Ready")["status"] == "True"
    say(bench, above=("queue", "preempt"), waiting=2)
    await passes(bench, 10)
    assert bench.condition("MemoryPressure")["reason"] == "AbovePreemptLine"
    say(bench)
    await passes(bench, 55)
    assert bench.condition("MemoryPressure")["status"] == "True"
    await passes(bench, 10)
    assert bench.condition("MemoryPressure")["status"] == "False"
    assert reasons(bench).count("AboveQueueLine") == 1
    assert reasons(bench).count("AbovePreemptLine") == 1
    assert reasons(bench).count("MemoryPressureGone") == 1
    assert "tightened" not in bench.status


async def test_a_line_that_is_crossed_again_and_again_is_one_event(bench: Bench) -> None:
    for _ in range(20):
        say(bench, above=("queue", "preempt"))
        await passes(bench, 5)
        say(bench)
        await passes(bench, 20)
    assert reasons(bench).count("AbovePreemptLine") == 1
    assert "MemoryPressureGone" not in reasons(bench)


async def test_observe_never_touches_the_limit(bench: Bench) -> None:
    bench.put({"scheduler": {"maxConcurrencySoft": 20}})
    await passes(bench, 10)
    say(bench, above=("queue", "preempt"))
    await passes(bench, 300)
    assert soft_limit(bench) == 20


async def test_tighten_lowers_the_limit_hot_says_so_and_restores_it(bench: Bench) -> None:
    bench.put(TIGHTEN)
    await passes(bench, 10)
    deployment = bench.child("Deployment")["metadata"]["generation"]
    revisions = len(bench.cluster.objects.list("ControllerRevision"))
    seen = []
    for _ in range(40):
        say(bench, above=("queue", "preempt"))
        await passes(bench, 5)
        seen.append(soft_limit(bench))
    assert list(dict.fromkeys(seen)) == [20, 16, 12, 10]
    assert bench.status["tightened"]["maxConcurrencySoft"] == 10
    assert bench.status["tightened"]["instead"] == 20
    assert bench.condition("ConfigApplied")["status"] == "True"
    for _ in range(60):
        say(bench)
        await passes(bench, 5)
    assert soft_limit(bench) == 20
    assert "tightened" not in bench.status
    assert reasons(bench).count("SoftLimitLowered") == 3
    assert reasons(bench).count("SoftLimitRestored") == 1
    assert bench.child("Deployment")["metadata"]["generation"] == deployment
    assert len(bench.cluster.objects.list("ControllerRevision")) == revisions


async def test_the_engines_get_it_at_once_not_at_the_next_look(bench: Bench) -> None:
    bench.put(TIGHTEN)
    await passes(bench, 10)
    say(bench, above=("queue", "preempt"))
    await bench.clock.advance(5)
    assert await bench.run() == 1.0
    bench.cluster.pushed.clear()
    await bench.clock.advance(1)
    await bench.run()
    assert [document["scheduler"]["maxConcurrencySoft"] for _, document, _ in bench.cluster.pushed] == [16]


async def test_an_operator_that_starts_anew_goes_on_from_the_status(bench: Bench) -> None:
    bench.put(TIGHTEN)
    await passes(bench, 10)
    say(bench, above=("queue", "preempt"))
    await passes(bench, 10)
    assert soft_limit(bench) == 16
    bench.start_operator()
    say(bench)
    await passes(bench, 30)
    assert bench.condition("MemoryPressure")["status"] == "True"
    assert soft_limit(bench) == 16
    await passes(bench, 60)
    assert bench.condition("MemoryPressure")["status"] == "False"
    assert soft_limit(bench) == 20


async def test_another_limit_in_the_spec_begins_anew(bench: Bench) -> None:
    bench.put(TIGHTEN)
    await passes(bench, 10)
    say(bench, above=("queue", "preempt"))
    await passes(bench, 10)
    bench.put({**TIGHTEN, "scheduler": {"maxConcurrencySoft": 8}})
    say(bench)
    await passes(bench, 10)
    assert soft_limit(bench) == 8


async def test_a_paused_service_keeps_its_limit(bench: Bench) -> None:
    bench.put(TIGHTEN)
    await passes(bench, 10)
    say(bench, above=("queue", "preempt"))
    await passes(bench, 10)
    document = bench.cluster.objects.get(KEY) or {}
    document["metadata"].setdefault("annotations", {})[names.PAUSED_ANNOTATION] = "true"
    bench.cluster.objects.apply({key: document[key] for key in ("apiVersion", "kind", "metadata", "spec")}, "user")
    say(bench)
    await passes(bench, 200)
    assert soft_limit(bench) == 16
    assert bench.status["tightened"]["maxConcurrencySoft"] == 16


async def test_a_status_that_could_not_be_written_is_not_told_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put(TIGHTEN)
    await passes(bench, 10)
    say(bench, above=("queue", "preempt"))

    async def refuse(*_: Any) -> None:
        raise errors.Unavailable("the API server does not answer")

    with monkeypatch.context() as outage:
        outage.setattr(bench.cluster, "patch_status", refuse)
        for _ in range(3):
            await bench.clock.advance(5)
            with pytest.raises(errors.Unavailable):
                await bench.run()
    assert reasons(bench).count("SoftLimitLowered") == 0
    await passes(bench, 5)
    assert reasons(bench).count("SoftLimitLowered") == 1
