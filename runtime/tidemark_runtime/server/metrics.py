"""`GET /metrics`: the names of `contract.metrics`, in a registry of this server's own.

Request metrics and step histograms are kept by `counters`; totals and levels are read from the engine at scrape time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import prometheus_client
from prometheus_client import core, registry
from prometheus_client.openmetrics import exposition as openmetrics
from starlette import requests
from starlette import responses as starlette_responses

from tidemark_runtime import config
from tidemark_runtime.contract import metrics as names
from tidemark_runtime.engine import messages
from tidemark_runtime.server import context, device_time, nvml

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_CONTENT_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
"""The OpenMetrics specification 1.0.0; names and labels are the same in both formats."""

Family = core.Metric
Values = Mapping[tuple[str, ...], float]
"""Label values -> value."""


class EngineCollector(registry.Collector):
    """Levels and totals, read from the engine at scrape time."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared

    def collect(self) -> Iterator[Family]:
        """Families without a value yet (while loading) are still named."""
        engine = self._shared.engine
        stats = engine.stats if engine is not None else messages.EngineStats()
        ready = engine.ready if engine is not None else None
        yield _family(names.CONFIG_INFO, {(self._shared.config_hash, str(self._shared.generation)): 1.0})
        yield from _batch(stats, self._shared.config.scheduler.max_num_seqs)
        yield from _memory(stats, ready)
        yield _lines(self._shared.config.scheduler)
        yield _family(names.OUT_OF_MEMORY, {(): self._shared.out_of_memory_total})
        yield from _compute(ready)
        yield _family(names.DEVICE_SECONDS, {(): device_time.held_seconds(self._shared)})
        yield _family(names.DEVICE_BUSY_SECONDS, {(): device_time.busy_seconds(self._shared)})
        yield from _cards(self._shared.cards.now if self._shared.cards is not None else ())
        yield from _ends(self._shared)


class Metrics:
    """The route."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared
        self._registry = shared.metrics.registry
        self._registry.register(EngineCollector(shared))

    async def get(self, request: requests.Request) -> starlette_responses.Response:
        """In OpenMetrics' format for whoever asks for it, as Prometheus does; else in the classic one."""
        keys = self._shared.keys
        self._shared.metrics.know_keys({"", *(keys.names if keys is not None else ())})
        if OPENMETRICS in request.headers.get("accept", ""):
            text = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
            return starlette_responses.Response(text, headers={"content-type": OPENMETRICS_CONTENT_TYPE})
        text = prometheus_client.generate_latest(self._registry)
        return starlette_responses.Response(text, headers={"content-type": CONTENT_TYPE})


def _batch(stats: messages.EngineStats, max_num_seqs: int) -> Iterator[Family]:
    in_last_step = stats.step_sequences if stats.requests_running else 0
    yield _family(names.BATCH_FILL, {(): in_last_step / max_num_seqs})
    yield _family(names.RUNNING, {(): stats.requests_running})
    slow = stats.requests_waiting_slow
    yield _family(names.WAITING, {("express",): stats.requests_waiting - slow, ("slow",): slow})
    yield _family(names.OLDEST_WAIT, {(): stats.oldest_wait_seconds})
    yield _family(names.PREEMPTIONS, _by_mode(stats.preemptions_total, stats.preemptions_swap_total))
    yield _family(names.RESUMES, _by_mode(stats.resumes_total, stats.resumes_swap_total))
    guesses: Values = {("proposed",): stats.guesses_proposed_total, ("accepted",): stats.guesses_accepted_total}
    yield _family(names.SPECULATIVE_TOKENS, guesses)
    yield _family(names.SPECULATIVE_ACTIVE, {(): stats.guessing_ratio})
    yield _family(names.SPECULATIVE_GAIN, {(): stats.guessing_gain})


def _by_mode(total: int, swap: int) -> Values:
    return {("swap",): swap, ("recompute",): total - swap}


def _memory(stats: messages.EngineStats, ready: messages.EngineReady | None) -> Iterator[Family]:
    total = stats.pages_total or (ready.num_pages if ready is not None else 0)
    slots = stats.pages_used * (ready.block_size if ready is not None else 0)
    by_dtype = ready.page_bytes_by_dtype if ready is not None else {}
    kv_bytes: Values = {(dtype,): ready.num_pages * size for dtype, size in by_dtype.items()} if ready else {}
    pages: Values = {
        ("used",): stats.pages_used,
        ("cached",): stats.pages_cached,
        ("free",): total - stats.pages_used - stats.pages_cached,
        ("swapped",): stats.pages_swapped,
    }
    yield _family(names.KV_PAGES, pages)
    yield _family(names.KV_USAGE, {(): stats.pages_used / total if total else 0.0})
    yield _family(names.KV_FRAGMENTATION, {(): 1.0 - stats.tokens_in_used_pages / slots if slots else 0.0})
    yield _family(names.KV_BYTES, kv_bytes)
    yield _family(names.KV_TOKEN_BYTES, _token_bytes(ready))
    yield _family(names.MEMORY_BYTES, _by_part(_with_free(ready)))
    yield _family(names.MEMORY_PLANNED_BYTES, _by_part(ready.planned_bytes if ready is not None else {}))
    yield from _moves(stats, ready.page_bytes if ready is not None else 0)


def _lines(scheduler: config.SchedulerConfig) -> Family:
    """Where the lines lie. The engine has them at the next step, so this may be a step ahead of it."""
    levels: Values = {("queue",): scheduler.queue_watermark, ("preempt",): scheduler.preempt_watermark}
    return _family(names.WATERMARK_LEVEL, levels)


def _token_bytes(ready: messages.EngineReady | None) -> Values:
    """As stored, and as 16 bits would be: K and V of every layer and head, two bytes an element."""
    if ready is None or ready.shape is None:
        return {}
    shape = ready.shape
    elements = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim
    return {("stored",): shape.kv_token_bytes, ("16bit",): 2 * elements}


def _with_free(ready: messages.EngineReady | None) -> Mapping[str, int]:
    """What was measured, and what is left of the limit; a part that was not measured counts as planned."""
    if ready is None or not ready.memory_limit_bytes:
        return {} if ready is None else ready.memory_bytes
    taken = sum({**ready.planned_bytes, **ready.memory_bytes}.values())
    return {**ready.memory_bytes, "free": max(0, ready.memory_limit_bytes - taken)}


def _by_part(sizes: Mapping[str, int]) -> Values:
    return {(part,): size for part, size in sizes.items()}


def _moves(stats: messages.EngineStats, page_bytes: int) -> Iterator[Family]:
    """What the lines, the swap space and the prefix cache did with the pages."""
    yield _family(names.WATERMARK_STATE, {("queue",): stats.above_queue_line, ("preempt",): stats.above_preempt_line})
    yield _family(
        names.WATERMARK_SECONDS,
        {
            ("queue",): stats.seconds_above_queue_line_total,
            ("preempt",): stats.seconds_above_preempt_line_total,
        },
    )
    yield _family(
        names.SWAP_BYTES,
        {
            ("out",): stats.swapped_out_pages_total * page_bytes,
            ("in",): stats.swapped_in_pages_total * page_bytes,
        },
    )
    yield _family(
        names.PREFIX_TOKENS,
        {("hit",): stats.prefix_hit_tokens_total, ("miss",): stats.prefix_missed_tokens_total},
    )
    yield _family(names.PAGE_EVICTIONS, {(): stats.page_evictions_total})


def _compute(ready: messages.EngineReady | None) -> Iterator[Family]:
    seen = ready.kernel_paths if ready is not None else []
    yield _family(names.KERNEL_PATH, {(each.op, each.path, each.dtype): 1.0 for each in seen})
    unplanned = sum(not each.is_planned for each in seen)
    yield _family(names.KERNEL_PATHS_UNPLANNED, {(): unplanned} if ready is not None else {})


def _cards(cards: Sequence[nvml.Card]) -> Iterator[Family]:
    """What each card says; what it does not say is left out."""
    for metric, name in _FIGURES.items():
        yield _family(metric, {(str(card.index),): card.figures[name] for card in cards if name in card.figures})
    errors = [(card.index, xid, count) for card in cards for xid, count in (card.xid_errors or {}).items()]
    yield _family(names.DEVICE_XID_ERRORS, {(str(index), xid): count for index, xid, count in errors})


def _ends(shared: context.Context) -> Iterator[Family]:
    """Of certificate and keys, from the files that are in force."""
    shared.refresh_files()
    certificate, keys = shared.certificate, shared.keys
    yield _family(names.CERTIFICATE_EXPIRY, {(): certificate.ends_at} if certificate is not None else {})
    yield _family(names.KEY_EXPIRY, {(key,): at for key, at in keys.ends.items()} if keys is not None else {})


_FIGURES = {
    names.DEVICE_UTILIZATION: "utilization",
    names.DEVICE_MEMORY_USED: "memory_used",
    names.DEVICE_MEMORY_TOTAL: "memory_total",
    names.DEVICE_TEMPERATURE: "temperature",
    names.DEVICE_POWER: "power",
}

_FAMILIES: Mapping[names.Kind, Callable[..., core.CounterMetricFamily | core.GaugeMetricFamily]] = {
    names.Kind.COUNTER: core.CounterMetricFamily,
    names.Kind.GAUGE: core.GaugeMetricFamily,
}


def _family(metric: names.Metric, values: Values) -> Family:
    family = _FAMILIES[metric.kind](metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
