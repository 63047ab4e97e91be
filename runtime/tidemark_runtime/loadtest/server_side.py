"""What a server of ours says of a level itself: waits in its queue, how many ran, pages, the prefix cache.

Read from `/metrics` before and after the window, and from `/status` in between. Another server, or one that does not
answer while it is busy, gives less or nothing; that is told as nothing, never as 0.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
import msgspec

from tidemark_runtime.contract import http as paths
from tidemark_runtime.contract import metrics, status

LOOK_EVERY_SECONDS = 0.5
_LOOK_SECONDS = 5.0
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Samples = Mapping[tuple[str, str], float]
"""(name, labels as they stand) -> value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """Of one level. Waits in seconds; shares 0 to 1."""

    queue_waits: int
    """Requests that got their first turn."""
    queue_wait_mean: float
    queue_wait_p95: float
    """Between two bounds of the server's buckets, evenly."""
    preemptions: int
    prefix_hit_share: float | None
    """Of prompt tokens, how many were found in the prefix cache; None: none were looked up."""
    running_mean: float | None
    """At the looks, about two a second; None: no look succeeded."""
    running_peak: int | None
    waiting_peak: int | None
    pages_used_peak: float | None


@dataclass(slots=True)
class Watch:
    """Looks at one server during one level."""

    http: httpx.AsyncClient
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)

    async def watch(self, begun: asyncio.Event, over: asyncio.Event) -> ServerFigures | None:
        """From when the window has begun until it is over. None: the server says nothing of the kind."""
        await begun.wait()
        before = await scrape(self.http)
        while not await _within(over, LOOK_EVERY_SECONDS):
            seen = await _status(self.http)
            if seen is not None and not over.is_set():
                self.running.append(seen.queue.running)
                self.waiting.append(seen.queue.waiting)
                self.pages.append(seen.memory.usage_ratio)
        after = await scrape(self.http)
        return None if before is None or after is None else difference(before, after, self)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """It is set, at most so many seconds from now."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def difference(before: Samples, after: Samples, seen: Watch) -> ServerFigures | None:
    """What happened between two looks at `/metrics`; None: they are not of one life of a server of ours."""
    wait = metrics.QUEUE_WAIT.name
    if not any(name == f"{wait}_count" for name, _ in after):
        return None
    num = _grown(before, after, f"{wait}_count")
    if num < 0:  # another process has begun to count from 0
        return None
    hit = _grown(before, after, metrics.PREFIX_TOKENS.name, 'result="hit"')
    missed = _grown(before, after, metrics.PREFIX_TOKENS.name, 'result="miss"')
    return ServerFigures(
        queue_waits=round(num),
        queue_wait_mean=_grown(before, after, f"{wait}_sum") / num if num else 0.0,
        queue_wait_p95=quantile(_buckets(before, after, f"{wait}_bucket"), 0.95),
        preemptions=round(_grown(before, after, metrics.PREEMPTIONS.name)),
        prefix_hit_share=hit / (hit + missed) if hit + missed else None,
        running_mean=sum(seen.running) / len(seen.running) if seen.running else None,
        running_peak=max(seen.running, default=None),
        waiting_peak=max(seen.waiting, default=None),
        pages_used_peak=max(seen.pages, default=None),
    )


def quantile(buckets: Mapping[float, float], share: float) -> float:
    """From cumulative counts by upper bound, evenly spread within a bucket; past the last bound it is that bound."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if not total:
        return 0.0
    rank, lower, below = share * total, 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / (buckets[bound] - below)
        lower, below = bound, buckets[bound]
    return lower


async def scrape(http: httpx.AsyncClient) -> Samples | None:
    """`/metrics`, or None where there is none to be had."""
    try:
        answer = await http.get(paths.METRICS_PATH, timeout=_LOOK_SECONDS)
    except httpx.HTTPError:
        return None
    return samples(answer.text) if answer.status_code == 200 else None


def samples(text: str) -> Samples:
    """Of Prometheus' text format."""
    found = {}
    for line in text.splitlines():
        matched = None if line.startswith("#") else _SAMPLE.match(line)
        if matched is not None:
            try:
                found[matched[1], matched[2] or ""] = float(matched[3])
            except ValueError:
                continue
    return found


async def _status(http: httpx.AsyncClient) -> status.EngineStatus | None:
    try:
        answer = await http.get(paths.STATUS_PATH, timeout=_LOOK_SECONDS)
        return msgspec.json.decode(answer.content, type=status.EngineStatus) if answer.status_code == 200 else None
    except (httpx.HTTPError, msgspec.DecodeError):
        return None


def _grown(before: Samples, after: Samples, name: str, label: str = "") -> float:
    """The sum over all labels, or those that hold `label`."""
    return _sum(after, name, label) - _sum(before, name, label)


def _sum(found: Samples, name: str, label: str) -> float:
    return sum(value for (sample, labels), value in found.items() if sample == name and label in labels)


def _buckets(before: Samples, after: Samples, name: str) -> dict[float, float]:
    """Cumulative counts by upper bound, of all labels together."""
    found: dict[float, float] = {}
    for (sample, labels), value in after.items():
        if sample == name:
            bound = float(dict(_LABEL.findall(labels)).get("le", "+Inf"))
            found[bound] = found.get(bound, 0.0) + value - before.get((sample, labels), 0.0)
    return found
