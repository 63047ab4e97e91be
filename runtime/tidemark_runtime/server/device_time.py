"""For how long this pod has held its devices, and for how long they computed: what device hours and utilization are.

A processor is one device, whatever cores the pod may use: they work on one step together. Of cards there are as many as
this process may see, since nobody else gets them meanwhile.
"""

from __future__ import annotations

from tidemark_runtime.server import context


def num_devices(shared: context.Context) -> int:
    """That the pod holds; 1 on a processor."""
    device = shared.config.hardware.device if shared.ready is None else shared.ready.worker.get("device", "cpu")
    if device in ("cpu", "auto") or shared.cards is None:  # auto: until the engine has said what it found
        return 1
    return max(1, shared.cards.num_seen)


def held_seconds(shared: context.Context) -> float:
    """Devices times seconds since this server started. Never less than before: the devices of a pod stay the same."""
    return num_devices(shared) * (shared.clock() - shared.started_at)


def busy_seconds(shared: context.Context) -> float:
    """Devices times seconds spent on steps, all of them together on each."""
    stats = shared.engine.stats if shared.engine is not None else None
    return num_devices(shared) * stats.busy_seconds_total if stats is not None else 0.0
