"""What bounds a running engine, and which change would buy most, each with an estimate. Pure.

A bottleneck is named by what was seen, in this order: pages (the queue line was crossed or somebody was preempted),
places (all taken while others waited), time (requests waited though pages and places were left, or nobody waited and
only the step's time is left to shorten).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidemark_runtime.contract import status
from tidemark_runtime.planning import page_layout

_NOTICED_SHARE = 0.01
"""Of the time: a line that was crossed for less does not count."""
_NOTICED_SECONDS = 0.05
"""Mean wait in the queue."""
_FULL = 0.95
_GIB_BYTES = 1 << 30
_ALTERNATIVES = ("bfloat16", "fp8_e4m3", "int8")


class Bottleneck(StrEnum):
    """What holds the engine back."""

    PAGES = "pages"
    PLACES = "places"
    TIME = "time"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Figures of one engine, over `seconds` of it."""

    seconds: float
    line_seconds: float
    """For which the queue line was crossed."""
    preemptions: float
    rejected: float
    mean_wait_seconds: float
    mean_step_seconds: float | None
    """To execute one step."""
    mean_batch: float | None
    """Sequences in a step."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do. `gain`: how many times the requests (pages, places) or the tokens a second (time) come of it."""

    setting: str
    what: str
    gain: float


def bottleneck(engine: status.EngineStatus, seen: Seen) -> tuple[Bottleneck, str]:
    """Which, and the figures that say so."""
    line = engine.lines.get("queue", status.LineStatus(1.0))
    share = seen.line_seconds / seen.seconds if seen.seconds else 0.0
    waited = engine.queue.waiting > 0 or seen.mean_wait_seconds > _NOTICED_SECONDS
    if line.above or share > _NOTICED_SHARE or seen.preemptions:
        return Bottleneck.PAGES, (
            f"KV pages: the queue line ({line.level:.0%}) was crossed for {share:.0%} of the time, "
            f"{seen.preemptions:.0f} sequences were preempted, {engine.memory.usage_ratio:.0%} of the pages are in use."
        )
    fill = (seen.mean_batch or 0.0) / engine.queue.places if engine.queue.places else 0.0
    full = fill >= _FULL or engine.queue.running >= engine.queue.places > 0
    if waited and full:
        return Bottleneck.PLACES, (
            f"places: all {engine.queue.places} were taken while {engine.queue.waiting} wait (mean wait "
            f"{seen.mean_wait_seconds:.2f} s), and {1 - engine.memory.usage_ratio:.0%} of the pages are not in use."
        )
    if seen.mean_step_seconds is None:
        return Bottleneck.NONE, "nothing: no step has run in this time. Profile it under load."
    if waited:
        return Bottleneck.TIME, (
            f"step time: requests waited {seen.mean_wait_seconds:.2f} s on average though pages were left and, on "
            f"average, only {fill:.0%} of the places were taken: prompts share steps of "
            f"{seen.mean_step_seconds * 1e3:.0f} ms."
        )
    return Bottleneck.NONE, (
        f"nothing: nobody waits, {fill:.0%} of the places and {engine.memory.usage_ratio:.0%} of the pages are in use; "
        f"a step takes {seen.mean_step_seconds * 1e3:.0f} ms."
    )


def changes(engine: status.EngineStatus, seen: Seen, which: Bottleneck) -> list[Change]:
    """The ones that touch the bottleneck first, then by gain; only those that gain something. Where it is the time of
    a step, neither pages nor places that nobody takes would shorten it."""
    if which is Bottleneck.TIME:
        return [Change("replicas", "one engine more: it takes half of the requests, on a device of its own", 2.0)]
    of_pages, of_places = [*_dtypes(engine), *_memory(engine)], list(_places(engine, seen))
    first, second = (of_places, of_pages) if which is Bottleneck.PLACES else (of_pages, of_places)
    ordered = [*sorted(first, key=_gain, reverse=True), *sorted(second, key=_gain, reverse=True)]
    return [change for change in ordered if change.gain > 1.0]


def _gain(change: Change) -> float:
    return change.gain


def _dtypes(engine: status.EngineStatus) -> Iterator[Change]:
    shape, memory = engine.model.shape, engine.memory
    if shape is None:
        return
    now = memory.page_bytes / memory.block_size
    for dtype in _ALTERNATIVES:
        kv_shape = page_layout.KVShape(shape.num_layers, shape.num_kv_heads, shape.head_dim)
        layout = page_layout.PageLayout(kv_shape, memory.block_size, dtype)
        gain = now / layout.token_bytes
        tokens = int(memory.pages_total * memory.page_bytes / layout.page_bytes) * memory.block_size
        yield Change("kvCache.dtype", f"{dtype}: the same slab holds {tokens:,} tokens, {gain:.2f} times as many", gain)


def _memory(engine: status.EngineStatus) -> Iterator[Change]:
    memory = engine.memory
    more = _GIB_BYTES // memory.page_bytes
    if engine.worker.get("pagesDecidedBy") == "memoryUtilization" and more:
        tokens = more * memory.block_size
        gain = 1 + more / memory.pages_total
        yield Change("hardware.memory", f"1 GiB more: {tokens:,} more tokens, {gain:.2f} times as many", gain)


def _places(engine: status.EngineStatus, seen: Seen) -> Iterator[Change]:
    """Twice the places: what the step prices say of tokens a second, as far as pages allow."""
    prices, queue, memory = engine.step_prices, engine.queue, engine.memory
    running = max(queue.running, round(seen.mean_batch or 0))
    if not prices or not running or not queue.places:
        return
    each = max(1.0, memory.pages_used / max(1, queue.running))
    line = engine.lines.get("queue", status.LineStatus(1.0)).level
    room = int(line * memory.pages_total / each)
    wanted = min(2 * queue.places, room)
    if wanted <= queue.places:
        return
    tokens = each * memory.block_size
    gain = (wanted / _step(prices, wanted, tokens)) / (queue.places / _step(prices, queue.places, tokens))
    yield Change(
        "scheduler.maxNumSeqs",
        f"{wanted} instead of {queue.places}: {wanted / queue.places:.2f} times the requests at once, "
        f"{gain:.2f} times the tokens a second, a step of {_step(prices, wanted, tokens) * 1e3:.0f} ms "
        f"instead of {_step(prices, queue.places, tokens) * 1e3:.0f} ms",
        gain,
    )


def _step(prices: Mapping[str, float], sequences: int, tokens_each: float) -> float:
    """Seconds of a step that makes a token for each of so many sequences."""
    each = prices.get("decode", 0.0) + tokens_each * prices.get("tokenRead", 0.0)
    return max(1e-9, prices.get("base", 0.0) + sequences * each)
