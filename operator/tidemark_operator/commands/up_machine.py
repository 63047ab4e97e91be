"""What this machine has against what a manifest asks for: told, not refused. Pure but for `num_cores`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def num_cores() -> int:
    """Cores that processes of ours may run on, as the kernel schedules them (`taskset`, cpusets of containers)."""
    return len(os.sched_getaffinity(0))


def warnings(spec: Mapping[str, Any], cores: int) -> list[str]:
    """Of a valid `spec`, as it was written. More threads than cores work, but each step waits for the slowest."""
    hardware = spec.get("hardware") or {}
    count, replicas = hardware.get("count") or 1, 1 if spec.get("replicas") is None else spec["replicas"]
    if hardware.get("resourceName") != "cpu" or spec.get("suspend") or count * replicas <= cores:
        return []
    asked = f"{count}" if replicas == 1 else f"{count} for each of {replicas} replicas, {count * replicas} in all"
    remedy = f"Set it to at most {max(1, cores // max(1, replicas))}" + (", or use fewer replicas" * (replicas > 1))
    available = f"{cores} core{'s' if cores > 1 else ''}"
    return [
        f"spec.hardware.count: asks for {asked}, but this machine has {available} to run on; the engine starts all the "
        f"same and gets slower, not faster. {remedy}."
    ]
