"""Where each metric is set, what is there before anything happened, how fine its buckets are, and in which formats."""

from __future__ import annotations

import bisect
import math
import re
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

import tidemark_runtime
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics as names
from tidemark_runtime.engine import messages
from tidemark_runtime.server import counters
from tidemark_runtime.server import metrics as server_metrics

RUNTIME = Path(tidemark_runtime.__file__ or tidemark_runtime.__path__[0]).parent
LATENCIES = (names.REQUEST_DURATION, names.FIRST_TOKEN, names.INTER_TOKEN, names.QUEUE_WAIT)
OF_B083 = (0.003, 0.04, 0.2, 0.9, 7.0, 75.0, 400.0)
PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize("metric", names.ENGINE_METRICS, ids=lambda metric: metric.name)
def test_where_it_is_set_is_a_file_that_is_there(metric: names.Metric) -> None:
    files = re.findall(r"[\w/]+\.py", metric.where)
    assert files, metric.name
    for name in files:
        assert (RUNTIME / name).is_file() or (RUNTIME.parents[1] / name).is_file(), name


# ---- B083 --------------------------------------------------------------------------------------------------------


def histogram_quantile(quantile: float, bounds: tuple[float, ...], values: list[float]) -> float:
    """As Prometheus computes it: linear within the bucket of the rank; the last bound for what lies above it."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect.bisect_left(bounds, value)] += 1
    rank, before = quantile * len(values), 0
    for index, count in enumerate(counts):
        if count and before + count >= rank:
            if index == len(bounds):
                return bounds[-1]
            low = bounds[index - 1] if index else 0.0
            return low + (bounds[index] - low) * (rank - before) / count
        before += count
    return math.nan


@pytest.mark.parametrize("metric", LATENCIES, ids=lambda metric: metric.name)
def test_b083_percentiles_are_within_a_quarter(metric: names.Metric) -> None:
    for quantile, exact in ((0.5, 0.9), (0.95, 400.0), (0.99, 400.0)):
        found = histogram_quantile(quantile, metric.buckets, list(OF_B083))
        assert abs(found / exact - 1) < 0.25, (quantile, found)
    for value in OF_B083:
        found = histogram_quantile(0.5, metric.buckets, [value] * 10)
        assert abs(found / value - 1) < 0.25, (value, found)


@pytest.mark.parametrize("metric", LATENCIES, ids=lambda metric: metric.name)
def test_b083_buckets_are_close_together_and_reach_far_enough(metric: names.Metric) -> None:
    assert metric.buckets[0] <= 0.002
    assert metric.buckets[-1] >= 600
    neighbours = zip(metric.buckets, metric.buckets[1:], strict=False)
    assert max(high / low for low, high in neighbours if high <= 1200) <= 2.5 + 1e-9


def test_b083_waits_reach_beyond_the_longest_allowed(settings) -> None:
    assert names.QUEUE_WAIT.buckets[-1] > settings.scheduler.max_queue_seconds


def test_b083_each_limit_of_an_alert_is_an_edge() -> None:
    limits = Thresholds()
    assert limits.first_token_seconds in names.FIRST_TOKEN.buckets
    assert limits.inter_token_seconds in names.INTER_TOKEN.buckets
    assert limits.queue_wait_seconds in names.QUEUE_WAIT.buckets


# ---- B085, B087 --------------------------------------------------------------------------------------------------


def flat(families) -> dict:
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }


async def in_both(http: httpx.AsyncClient) -> tuple[dict, dict]:
    classic = await http.get("/metrics")
    modern = await http.get("/metrics", headers={"accept": PROMETHEUS_ACCEPT})
    assert classic.headers["content-type"] == server_metrics.CONTENT_TYPE
    assert modern.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert modern.text.endswith("# EOF\n")
    return (
        flat(parser.text_string_to_metric_families(classic.text)),
        flat(openmetrics_parser.text_string_to_metric_families(modern.text)),
    )


async def test_b085_both_formats_have_the_same_series(http, engine):
    engine.tell(messages.EngineStats(steps=1, step_sequences=1, queue_waits_seconds=[0.1], op_seconds=[{"other": 1.0}]))
    await http.post("/v1/completions", json={"prompt": "Hi"})
    classic, modern = await in_both(http)
    assert classic == modern
    counters_there = {key[0] for key in classic if key[0].endswith("_total")}
    wanted = {each.name for each in names.ENGINE_METRICS if each.kind is names.Kind.COUNTER}
    assert counters_there >= wanted - {names.DEVICE_XID_ERRORS.name}


async def test_b087_what_is_known_beforehand_is_there_at_0(http):
    classic, _ = await in_both(http)
    for name, label, values in (
        (names.REQUESTS.name, "outcome", counters.OUTCOMES),
        (names.REJECTED.name, "reason", names.REJECT_REASONS),
        (names.CONFIG_RELOADS.name, "result", counters.RELOAD_RESULTS),
        (names.PREEMPTIONS.name, "mode", ("swap", "recompute")),
        (names.SWAP_BYTES.name, "direction", ("in", "out")),
        (names.WATERMARK_SECONDS.name, "level", ("queue", "preempt")),
        (f"{names.STEP_DURATION.name}_count", "phase", counters.STEP_PHASES),
        (f"{names.STEP_TOKENS.name}_count", "phase", counters.STEP_TOKEN_PHASES),
    ):
        assert {value: classic[name, (label, value)] for value in values} == dict.fromkeys(values, 0.0)
    for outcome in counters.OUTCOMES:
        assert classic[names.KEY_REQUESTS.name, ("key", ""), ("outcome", outcome)] == 0
    assert classic[names.OUT_OF_MEMORY.name,] == 0
    assert classic[names.DEVICE_BUSY_SECONDS.name,] == 0


# ---- single metrics ----------------------------------------------------------------------------------------------


async def test_times_of_ops_are_observed_once_for_each_timed_step(http, engine):
    steps = [{"rms_norm": 0.25, "other": 0.5}, {"rms_norm": 0.75}]
    engine.tell(messages.EngineStats(steps=3, op_seconds=steps))
    engine.tell(messages.EngineStats(steps=3))
    classic, _ = await in_both(http)
    assert classic["tidemark_op_duration_seconds_sum", ("op", "rms_norm")] == 1.0
    assert classic["tidemark_op_duration_seconds_count", ("op", "rms_norm")] == 2
    assert classic["tidemark_op_duration_seconds_count", ("op", "other")] == 1


async def test_devices_are_held_from_the_start_and_busy_in_steps(http, engine, clock):
    engine.tell(messages.EngineStats(steps=3, busy_seconds_total=12.5))
    clock.now += 50
    classic, _ = await in_both(http)
    assert classic["tidemark_device_seconds_total",] == 50
    assert classic["tidemark_device_busy_seconds_total",] == 12.5


async def test_the_fill_ratio_is_of_the_last_step_and_0_while_nothing_runs(http, engine, settings):
    most = settings.scheduler.max_num_seqs
    for running, expected in ((3, 3 / most), (0, 0.0)):
        engine.tell(messages.EngineStats(steps=1, step_sequences=3, requests_running=running))
        classic, _ = await in_both(http)
        assert classic["tidemark_batch_fill_ratio",] == expected


async def test_memory_that_ran_out_is_counted_wherever_it_was(http, engine, shared, monkeypatch):
    async def total() -> float:
        classic, _ = await in_both(http)
        assert (await http.get("/status")).json()["outOfMemoryTotal"] == classic["tidemark_out_of_memory_total",]
        return classic["tidemark_out_of_memory_total",]

    engine.tell(messages.EngineStats(out_of_memory_total=2))
    assert await total() == 2

    def fails(_: object) -> object:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("tidemark_runtime.server.bodies.parse", fails)
        response = await http.post("/v1/completions", json={"prompt": "Hi"})
    assert response.status_code == 500
    assert await total() == 3
    # The engine process was killed for memory: the last words of its server count that, too.
    engine.failure, engine.failure_kind = "killed", "OutOfMemory"
    assert await total() == 4
    assert (await http.get("/status")).json()["reason"] == "OutOfMemory"
    engine.failure_kind = "EngineDead"
    assert await total() == 3


async def test_requests_that_ran_out_of_memory_get_the_engines_words(http, engine):
    engine.end_early = (0, messages.FinishReason.FAILED, "The engine ended this request: memory ran out in a step.")
    response = await http.post("/v1/completions", json={"prompt": "Hi"})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_failed")
    assert "memory ran out in a step" in response.json()["error"]["message"]
    classic, _ = await in_both(http)
    assert classic["tidemark_requests_total", ("outcome", "failed")] == 1


def test_what_crosses_between_the_processes_holds_the_new_fields():
    stats = messages.EngineStats(busy_seconds_total=1.5, out_of_memory_total=2, op_seconds=[{"other": 0.5}])
    frame = msgspec.msgpack.encode(messages.StepOutputs([], stats))
    assert msgspec.msgpack.decode(frame, type=messages.FromEngine).stats == stats
