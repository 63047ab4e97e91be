"""What `/metrics` exports is exactly the table of `contract.metrics`."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import parser

from tidemark_runtime import errors
from tidemark_runtime.contract import metrics as names
from tidemark_runtime.engine import messages


@pytest.fixture
def scrape(http):
    async def run() -> dict:
        response = await http.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = parser.text_string_to_metric_families(response.text)
        return {family.name: family for family in families}

    return run


def value(families: dict, name: str, **labels: str) -> float:
    samples = [sample for family in families.values() for sample in family.samples]
    found = [sample.value for sample in samples if sample.name == name and sample.labels == labels]
    assert len(found) == 1, (name, labels)
    return found[0]


async def test_names_kinds_and_help_are_those_of_the_table(scrape):
    families = await scrape()
    exported = {(family.name, family.type, family.documentation) for family in families.values()}
    wanted = {(each.name.removesuffix("_total"), each.kind.value, each.help) for each in names.ENGINE_METRICS}
    assert exported == wanted


async def test_labels_are_those_of_the_table(scrape, http, engine):
    steps = [{"rms_norm": 0.1}]
    engine.tell(
        messages.EngineStats(steps=1, step_sequences=1, step_tokens=1, queue_waits_seconds=[0.1], op_seconds=steps)
    )
    await http.post("/v1/completions", json={"prompt": "Hi"})
    await http.post("/v1/completions", json={"prompt": "Hi", "n": 0})
    families = await scrape()
    for metric in names.ENGINE_METRICS:
        samples = families[metric.name.removesuffix("_total")].samples
        if not samples:
            assert "Absent" in metric.help, metric.name
            continue
        assert {label for sample in samples for label in sample.labels} - {"le"} == set(metric.labels), metric.name


def test_the_table_names_units_and_buckets():
    for metric in names.ENGINE_METRICS:
        assert metric.name.startswith(names.PREFIX)
        assert (metric.name.endswith("_total")) == (metric.kind is names.Kind.COUNTER)
        assert bool(metric.buckets) == (metric.kind is names.Kind.HISTOGRAM)
        assert list(metric.buckets) == sorted(set(metric.buckets))
        if metric.name.endswith(("_seconds", "_bytes", "_ratio")):
            assert metric.unit == metric.name.rsplit("_", 1)[1]
    assert len({metric.name for metric in names.ENGINE_METRICS}) == len(names.ENGINE_METRICS)


async def test_requests_and_tokens_are_counted(scrape, http, clock):
    await http.post("/v1/completions", json={"prompt": "Hi", "n": 2})
    await http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 2})
    families = await scrape()
    assert value(families, "tidemark_requests_total", outcome="stop") == 1
    assert value(families, "tidemark_requests_total", outcome="length") == 1
    assert value(families, "tidemark_prompt_tokens_total") == 6
    assert value(families, "tidemark_generated_tokens_total") == 30
    assert value(families, "tidemark_time_to_first_token_seconds_count") == 3
    assert value(families, "tidemark_inter_token_seconds_count") == 27
    assert value(families, "tidemark_request_duration_seconds_count") == 2


async def test_steps_count_once_whatever_heartbeats_repeat_them(scrape, engine):
    stats = messages.EngineStats(
        steps=4,
        step_sequences=3,
        requests_running=3,
        step_tokens=10,
        step_prompt_tokens=8,
        schedule_seconds=0.001,
        execute_seconds=0.5,
        update_seconds=0.002,
        preemptions_total=5,
        pages_total=10,
        pages_used=4,
        tokens_in_used_pages=512,
    )
    engine.tell(stats)
    engine.tell(stats)
    families = await scrape()
    assert value(families, "tidemark_batch_size_count") == 1
    assert value(families, "tidemark_step_tokens_sum", phase="prompt") == 8
    assert value(families, "tidemark_step_tokens_sum", phase="decode") == 2
    assert value(families, "tidemark_step_duration_seconds_sum", phase="execute") == 0.5
    assert value(families, "tidemark_preemptions_total", mode="recompute") == 5
    assert value(families, "tidemark_kv_pages", state="free") == 6
    assert value(families, "tidemark_kv_usage_ratio") == 0.4
    assert value(families, "tidemark_kv_fragmentation_ratio") == 0.5
    assert value(families, "tidemark_kv_bytes", dtype="float16") == 2560
    assert value(families, "tidemark_batch_fill_ratio") == 3 / 64
    assert value(families, "tidemark_kernel_path_info", op="attention", path="cpu-c", dtype="float16") == 1
    assert value(families, "tidemark_kernel_path_info", op="linear", path="torch", dtype="float32") == 1
    assert value(families, "tidemark_kernel_paths_unplanned") == 0


async def test_kv_bytes_are_told_by_the_dtype_of_what_lies_there(scrape, engine, fakes):
    engine.ready = fakes.ready(page_bytes_by_dtype={"int4": 64, "bfloat16": 192})
    families = await scrape()
    assert value(families, "tidemark_kv_bytes", dtype="int4") == 640
    assert value(families, "tidemark_kv_bytes", dtype="bfloat16") == 1920


async def test_lanes_lines_modes_swap_and_the_prefix_cache(scrape, engine):
    engine.tell(
        messages.EngineStats(
            requests_waiting=5,
            requests_waiting_slow=2,
            pages_total=10,
            pages_used=4,
            pages_cached=5,
            pages_swapped=3,
            tokens_in_used_pages=512,
            above_queue_line=True,
            seconds_above_queue_line_total=7.5,
            seconds_above_preempt_line_total=0.5,
            swapped_out_pages_total=6,
            swapped_in_pages_total=2,
            prefix_hit_tokens_total=100,
            prefix_missed_tokens_total=11,
            page_evictions_total=9,
            preemptions_total=8,
            preemptions_swap_total=3,
            resumes_total=7,
            resumes_swap_total=1,
        )
    )
    families = await scrape()
    found = {
        (sample.name.removeprefix("tidemark_"), *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert (found["requests_waiting", "express"], found["requests_waiting", "slow"]) == (3, 2)
    pages = {state: found["kv_pages", state] for state in ("used", "cached", "free", "swapped")}
    assert pages == {"used": 4, "cached": 5, "free": 1, "swapped": 3}
    assert (found["kv_usage_ratio",], found["kv_fragmentation_ratio",]) == (0.4, 0.5)
    assert (found["watermark_state", "queue"], found["watermark_state", "preempt"]) == (1, 0)
    assert (found["watermark_seconds_total", "queue"], found["watermark_seconds_total", "preempt"]) == (7.5, 0.5)
    assert (found["swap_bytes_total", "out"], found["swap_bytes_total", "in"]) == (6 * 256, 2 * 256)
    assert (found["prefix_tokens_total", "hit"], found["prefix_tokens_total", "miss"]) == (100, 11)
    assert found["page_evictions_total",] == 9
    assert (found["preemptions_total", "swap"], found["preemptions_total", "recompute"]) == (3, 5)
    assert (found["resumes_total", "swap"], found["resumes_total", "recompute"]) == (1, 6)


async def test_every_reason_of_a_refusal_is_there_from_the_start(scrape):
    samples = (await scrape())["tidemark_requests_rejected"].samples
    seen = {sample.labels["reason"]: sample.value for sample in samples}
    assert seen == dict.fromkeys(names.REJECT_REASONS, 0.0)


def test_the_reasons_are_those_of_the_engine_and_of_each_error():
    codes = {error.code for error in errors.RequestError.__subclasses__() if error.code}
    of_other_routes = {"restart_required", "admin_disabled", "overloaded"}
    renamed = {"invalid_api_key": "unauthorized"}
    engines = {reason.value for reason in messages.RejectReason} - {"never_fits"}
    wanted = {renamed.get(code, code) for code in codes - of_other_routes} | engines
    assert wanted <= set(names.REJECT_REASONS)


async def test_while_loading_nothing_is_missing(scrape, shared):
    shared.engine = None
    assert len(await scrape()) == len(names.ENGINE_METRICS)


async def test_memory_is_told_by_part_as_planned_as_measured_and_what_is_left(scrape, engine):
    engine.ready = msgspec.structs.replace(engine.ready, memory_limit_bytes=10_000)
    families = await scrape()
    measured, planned = (
        {sample.labels["part"]: sample.value for sample in families[name].samples}
        for name in ("tidemark_memory_bytes", "tidemark_memory_planned_bytes")
    )
    assert planned == {"weights": 1000, "kv": 2560, "activations": 100}
    # Activations were not measured: they count as planned, and are not told as measured.
    assert measured == {"weights": 1000, "kv": 2560, "free": 10_000 - 3660}


async def test_without_a_limit_nothing_is_said_of_what_is_left(scrape):
    families = await scrape()
    assert {sample.labels["part"] for sample in families["tidemark_memory_bytes"].samples} == {"weights", "kv"}


async def test_waits_are_told_by_lane(http, engine):
    engine.tell(
        messages.EngineStats(steps=1, step_sequences=1, queue_waits_seconds=[0.1], slow_queue_waits_seconds=[2.0, 3.0])
    )
    lines = (await http.get("/metrics")).text.splitlines()
    assert 'tidemark_queue_wait_seconds_count{lane="express"} 1.0' in lines
    assert 'tidemark_queue_wait_seconds_sum{lane="slow"} 5.0' in lines
