"""`watermarks.response: tighten`: a lower soft limit while running requests have to give pages up. Pure.

Above the queue line an engine lets nobody in by itself; what helps above the preempt line is that fewer requests grow
at once. So the soft limit (`scheduler.maxConcurrencySoft`, hot) goes down there by a fifth of itself at a time, never
below half of what the spec allows and never below what runs (an engine refuses that), and comes back by a fifth of the
spec's value at a time once `MemoryPressure` is gone. The state stands in `status.tightened`, so that an operator that
starts anew goes on from it; without pressure and at the spec's value it is not there.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api
from tidemark_operator.status import conditions, pressure

STEP_SECONDS = 30.0
"""Between two changes of the limit: what the last one did must have had time to show."""
STEP_RATIO = 0.2
LEAST_RATIO = 0.5
"""Of the spec's own limit."""


@dataclass(frozen=True, slots=True)
class Tightened:
    """A soft limit below the spec's."""

    limit: int
    spec_limit: int
    since: str
    changed: str
    """When `limit` was last moved."""

    def dump(self) -> dict[str, Any]:
        """As `status.tightened`."""
        return {
            "maxConcurrencySoft": self.limit,
            "instead": self.spec_limit,
            "since": self.since,
            "changed": self.changed,
        }


def read(service: api.InferenceService, spec_limit: int) -> Tightened | None:
    """What `status.tightened` says, where it still holds: `response` is tighten and the spec's limit is the same."""
    kept = service.status.get("tightened")
    if service.spec.watermarks.response != "tighten" or not isinstance(kept, Mapping):
        return None
    limit, since, changed = kept.get("maxConcurrencySoft"), kept.get("since"), kept.get("changed")
    if kept.get("instead") != spec_limit or not isinstance(limit, int):
        return None
    if not (_is_time(since) and _is_time(changed)):
        return None
    return Tightened(max(least(spec_limit), min(limit, spec_limit)), spec_limit, str(since), str(changed))


def least(spec_limit: int) -> int:
    return max(1, math.ceil(LEAST_RATIO * spec_limit))


def next_state(
    kept: Tightened | None, spec_limit: int, seen: pressure.Pressure, is_under_pressure: bool, now: datetime.datetime
) -> Tightened | None:
    """The limit from now on; None: the spec's. `is_under_pressure`: `MemoryPressure` is True, now or a moment ago."""
    if kept is not None and (now - pressure.parsed_time(kept.changed)).total_seconds() < STEP_SECONDS:
        return kept
    current = kept.limit if kept is not None else spec_limit
    if seen.is_preempting:
        wanted = max(least(spec_limit), math.floor((1.0 - STEP_RATIO) * current), min(current, seen.running))
    elif is_under_pressure or seen.reason == "NoAnswer":
        wanted = current
    else:
        wanted = min(spec_limit, current + max(1, math.ceil(STEP_RATIO * spec_limit)))
    if wanted == current:
        return kept
    if wanted >= spec_limit:
        return None
    stamp = conditions.timestamp(now)
    return Tightened(wanted, spec_limit, kept.since if kept is not None else stamp, stamp)


def applied(service: api.InferenceService, limit: int) -> api.InferenceService:
    """The same service with the lower limit: what its engines and its ConfigMap get."""
    scheduler = service.spec.scheduler.model_copy(update={"max_concurrency_soft": limit})
    return service.model_copy(update={"spec": service.spec.model_copy(update={"scheduler": scheduler})})


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and pressure.parsed_time(value).tzinfo is not None
    except ValueError:
        return False
