"""What holds for passes over every valid service, whatever is drawn."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import random_manifests
import reconcile_bench
from hypothesis import Phase, given, settings

ENOUGH_PASSES = 4
"""After which a service is as it should be: its children, its pods, what the pods' readiness says."""


class StoppedClock:
    """A `cluster.clock.Clock` that always says the same; `given` may not take the shared one, which is made a test."""

    def monotonic(self) -> float:
        return 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a pass waits for nothing")


@settings(max_examples=12, deadline=None, phases=(Phase.reuse, Phase.generate))  # shrinking would take minutes
@given(random_manifests.manifests(), random_manifests.manifests())
def test_a_second_pass_finds_nothing_to_do(first: dict[str, Any], then: dict[str, Any]) -> None:
    """From nothing, and from another spec."""
    asyncio.run(settles(first["spec"], then["spec"]))


async def settles(*specs: dict[str, Any]) -> None:
    bench = reconcile_bench.Bench(StoppedClock())
    for spec in specs:
        stored = bench.cluster.objects.apply({**reconcile_bench.BASE, "spec": spec}, "user")
        for _ in range(ENOUGH_PASSES):
            await bench.run()
        assert bench.status["observedGeneration"] == stored["metadata"]["generation"]
        before = bench.cluster.objects.version
        bench.cluster.applied.clear()
        await bench.run()
        assert bench.cluster.applied == []
        assert bench.cluster.objects.version == before
