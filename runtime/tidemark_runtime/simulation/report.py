"""What a simulation found, as plain data: the same for a table, for JSON, and for tests that compare two runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tidemark_runtime.engine import messages
from tidemark_runtime.simulation import percentiles, plain, recorder
from tidemark_runtime.worker import interface

ALL = "all"
"""Name of the sum over all classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassReport:
    """Counts of requests and tries; times in seconds.

    First token and end to end are counted from a client's *first* try, as its user feels it; the wait from the try
    that got a turn.
    """

    requests: int
    tries: int
    served: int
    served_first_try: int
    gave_up: int
    rejected_tries: dict[str, int]
    """Reason -> tries that ended so. `timeout`: waited too long, or past its deadline."""
    prompt_tokens: int
    """Of requests that were served."""
    output_tokens: int
    preempted_requests: int
    most_preemptions: int
    """Of one request."""
    time_to_first_token: percentiles.Percentiles
    between_tokens: percentiles.Percentiles
    end_to_end: percentiles.Percentiles
    queue_wait: percentiles.Percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    mean_concurrency: float
    """Sequences that compute, over all the time."""
    peak_concurrency: int
    mean_step_tokens: float
    mean_waiting: float
    """While there is work."""
    peak_waiting: int
    busy_share: float
    """Of the time, how much the device computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Shares are 0 to 1. Sampled every few steps, while there is work."""

    total: int
    block_size: int
    page_bytes: int
    mean_used_share: float
    mean_used_share_while_waiting: float
    """While requests wait: at saturation. 0 when none ever waits."""
    peak_used_share: float
    mean_waste: float
    """Share of used pages that holds no token."""
    swap_total: int
    copied_out: int
    copied_in: int
    evicted: int
    """Of the prefix cache."""
    prefix_hit_share: float
    """Of the tokens of all turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptions:
    total: int
    swap: int
    recompute: int
    resumed: int
    most_of_one_request: int
    seconds_above_queue_line: float
    seconds_above_preempt_line: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of it. Two runs with the same profile, workload and seed are equal to the byte in `to_json`."""

    profile: str
    workload: str
    seed: int
    seconds: float
    """Virtual: from 0 to the end of the last request."""
    steps: int
    output_tokens_per_second: float
    prompt_tokens_per_second: float
    requests_per_second: float
    """That were served."""
    batch: Batch
    pages: Pages
    preemptions: Preemptions
    memory_bytes: dict[str, int]
    classes: dict[str, ClassReport]
    """By name; with more than one class their sum comes first, as `all`."""


def make(
    *,
    names: tuple[str, str],
    seed: int,
    seconds: float,
    busy_seconds: float,
    steps: int,
    facts: interface.WorkerFacts,
    stats: messages.EngineStats,
    record: recorder.Recorder,
) -> Report:
    """From what was written down. `names`: of profile and workload. `stats`: at the end."""
    total = recorder.ClassRecord()
    for entry in record.classes.values():
        total.merge(entry)
    classes = {ALL: _of_class(total)} if len(record.classes) > 1 else {}
    classes |= {name: _of_class(entry) for name, entry in record.classes.items()}
    elapsed = seconds or 1.0
    return Report(
        profile=names[0],
        workload=names[1],
        seed=seed,
        seconds=seconds,
        steps=steps,
        output_tokens_per_second=record.num_output_tokens / elapsed,
        prompt_tokens_per_second=total.prompt_tokens / elapsed,
        requests_per_second=total.served / elapsed,
        batch=Batch(
            mean_concurrency=record.concurrency.mean,
            peak_concurrency=int(record.concurrency.peak),
            mean_step_tokens=record.step_tokens.mean,
            mean_waiting=record.waiting.mean,
            peak_waiting=int(record.waiting.peak),
            busy_share=busy_seconds / elapsed,
        ),
        pages=_of_pages(facts, stats, record),
        preemptions=Preemptions(
            total=stats.preemptions_total,
            swap=stats.preemptions_swap_total,
            recompute=stats.preemptions_total - stats.preemptions_swap_total,
            resumed=stats.resumes_total,
            most_of_one_request=total.most_preemptions,
            seconds_above_queue_line=stats.seconds_above_queue_line_total,
            seconds_above_preempt_line=stats.seconds_above_preempt_line_total,
        ),
        memory_bytes=facts.memory_bytes,
        classes=classes,
    )


def _of_pages(facts: interface.WorkerFacts, stats: messages.EngineStats, record: recorder.Recorder) -> Pages:
    looked_up = stats.prefix_hit_tokens_total + stats.prefix_missed_tokens_total
    return Pages(
        total=facts.num_pages,
        block_size=facts.layout.block_size,
        page_bytes=facts.layout.page_bytes,
        mean_used_share=record.pages_used.mean,
        mean_used_share_while_waiting=record.pages_used_while_waiting.mean,
        peak_used_share=record.pages_used.peak,
        mean_waste=record.waste.mean,
        swap_total=facts.num_host_pages,
        copied_out=stats.swapped_out_pages_total,
        copied_in=stats.swapped_in_pages_total,
        evicted=stats.page_evictions_total,
        prefix_hit_share=stats.prefix_hit_tokens_total / looked_up if looked_up else 0.0,
    )


def _of_class(entry: recorder.ClassRecord) -> ClassReport:
    return ClassReport(
        requests=entry.requests,
        tries=entry.tries,
        served=entry.served,
        served_first_try=entry.served_first_try,
        gave_up=entry.gave_up,
        rejected_tries=dict(sorted(entry.rejected_tries.items())),
        prompt_tokens=entry.prompt_tokens,
        output_tokens=entry.output_tokens,
        preempted_requests=entry.preempted_requests,
        most_preemptions=entry.most_preemptions,
        time_to_first_token=entry.first_token.percentiles(),
        between_tokens=entry.between_tokens.percentiles(),
        end_to_end=entry.end_to_end.percentiles(),
        queue_wait=entry.queue_wait.percentiles(),
    )


def to_mapping(report: Report) -> dict[str, Any]:
    """camelCase keys, in the order of the fields; keys of mappings are names and stay as they are."""
    found: dict[str, Any] = plain.plain(report)
    return found


def to_json(report: Report) -> str:
    return json.dumps(to_mapping(report), indent=2)
