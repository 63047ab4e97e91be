"""The ConfigMap with a precision map is read by a pass, and again once in a while."""

from __future__ import annotations

from typing import Any

from reconcile_bench import Bench

from tidemark_operator.cluster import interface

SPEC = {
    "model": {"source": {"package": {"name": "smollm2-135m"}}},
    "hardware": {"resourceName": "cpu", "memory": "4Gi"},
    "kvCache": {"dtype": "int8", "precision": {"mapRef": {"name": "found"}}},
}
KEY = interface.Key("ConfigMap", "default", "found")


def put_map(bench: Bench, text: str) -> None:
    metadata = {"name": KEY.name, "namespace": KEY.namespace}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"precision.yaml": text}}
    bench.cluster.objects.apply(document, "user")


def fit(bench: Bench) -> tuple[str, str]:
    found = bench.condition("CapacityFit")
    return found["status"], found["reason"]


async def test_what_the_map_keeps_is_in_the_sum(clock: Any) -> None:
    bench = Bench(clock)
    put_map(bench, "rules: [{layers: 0-9}]")
    bench.put(SPEC)
    await bench.run()
    assert fit(bench) == ("True", "Fits")
    assert "keeps 60 of 180 segments in bfloat16" in bench.condition("CapacityFit")["message"]


async def test_a_wrong_map_starts_no_pods_and_one_that_is_corrected_does(clock: Any) -> None:
    bench = Bench(clock)
    put_map(bench, "rules: [{layers: 30}]")
    bench.put(SPEC)
    again = await bench.run()
    assert fit(bench) == ("False", "PrecisionMapUnusable")
    assert bench.condition("Ready")["reason"] == bench.condition("Degraded")["reason"] == "PrecisionMapUnusable"
    assert "layers under 30" in bench.condition("Degraded")["message"]
    assert bench.cluster.objects.list("Deployment") == []
    assert again == 30.0
    put_map(bench, "rules: [{layers: 29}]")
    await clock.advance(again)
    await bench.run()
    assert fit(bench) == ("True", "Fits")
    assert bench.child("Deployment")


async def test_one_that_is_missing_is_asked_for_later(clock: Any) -> None:
    bench = Bench(clock)
    bench.put(SPEC)
    await bench.run()
    assert fit(bench) == ("Unknown", "ConfigMapNotFound")
    assert bench.child("Deployment")  # its pods wait, and start by themselves
    put_map(bench, "rules: [{layers: 29}]")
    await clock.advance(31)
    await bench.run()
    assert fit(bench) == ("True", "Fits")


async def test_it_is_not_read_in_every_pass(clock: Any, monkeypatch: Any) -> None:
    bench = Bench(clock)
    put_map(bench, "rules: [{layers: 29}]")
    bench.put(SPEC)
    asked: list[interface.Key] = []
    get = bench.cluster.get

    async def counted(key: interface.Key) -> interface.Object | None:
        asked.append(key)
        return await get(key)

    monkeypatch.setattr(bench.cluster, "get", counted)
    for _ in range(5):
        await bench.run()
        await clock.advance(5)
    assert asked.count(KEY) == 1
    other = {**SPEC, "kvCache": {"dtype": "int8", "precision": {"mapRef": {"name": "other"}}}}
    bench.put(other)
    await bench.run()  # another name is read at once
    assert fit(bench) == ("Unknown", "ConfigMapNotFound")


async def test_what_runs_goes_on_with_a_map_that_became_wrong(clock: Any) -> None:
    bench = Bench(clock)
    put_map(bench, "rules: [{layers: 29}]")
    bench.put(SPEC)
    for _ in range(2):
        await bench.run()
    pods = [pod["metadata"]["name"] for pod in bench.pods()]
    put_map(bench, "rules: 3")
    await clock.advance(31)
    await bench.run()
    assert fit(bench) == ("False", "PrecisionMapUnusable")
    assert [pod["metadata"]["name"] for pod in bench.pods()] == pods
