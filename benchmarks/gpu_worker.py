"""Sections of `gpu.py`: whole steps of the device worker with an 8B Llama of random weights, graphs, swap, guesses."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import random_model
from gpu_frame import Bench, Row, Section

from tidemark_runtime import config_parsing
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import checkpoint as checkpoints
from tidemark_runtime.model import sources
from tidemark_runtime.worker import accelerators, device_loading, device_selftest, device_worker

STEPS, TINY_STEPS = 30, 3
PARAMS = sampling.SamplingParams(max_tokens=100_000, temperature=0.0)
SWAPPED_PAGES = 16
"""Of 2 MiB, a step: what four sequences of a thousand tokens being preempted over sixteen steps come to."""


@dataclass(frozen=True, slots=True)
class Made:
    worker: device_worker.DeviceWorker
    seconds: float
    """That loading, testing and recording took."""


def made(bench: Bench) -> Made:
    """The worker, loaded once a process."""
    if "worker" not in bench.kept:
        started = time.perf_counter()
        bench.kept["worker"] = Made(load(bench), time.perf_counter() - started)
    found: Made = bench.kept["worker"]
    return found


def load(bench: Bench) -> device_worker.DeviceWorker:
    config = random_model.TINY if bench.is_tiny else random_model.LLAMA_8B
    with tempfile.TemporaryDirectory() as name:
        folder = random_model.write_headers(Path(name), config)
        settings = config_parsing.parse(
            {
                "model": {"source": name},
                "kvCache": {
                    "numPages": bench.size(36_000, 40),
                    "swapSpace": bench.size(2 * 2**30, 2**16),
                    "blockSize": 16,
                },
                "scheduler": {"maxNumSeqs": bench.size(256, 2), "maxNumBatchedTokens": bench.size(2048, 16)},
                "hardware": {"strictKernels": False},
            }
        )
        device = accelerators.INTERPRETER if bench.is_tiny else "cuda"
        settings = dataclasses.replace(settings, hardware=dataclasses.replace(settings.hardware, device=device))
        source = sources.ModelSource("huggingface", folder, "random")
        opened = random_model.Random(checkpoints.open_checkpoint(source), config)
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(checkpoints, "open_checkpoint", return_value=opened))
            if bench.is_tiny:
                # Half a minute under the interpreter, and other tests run it.
                stack.enter_context(mock.patch.object(device_selftest, "run", return_value=()))
            return device_loading.create(settings, source, lambda *_: None)


def joined(bench: Bench, worker: device_worker.DeviceWorker, count: int, context: int) -> list[int]:
    """`count` sequences of `context` tokens enter, with pages for all the steps to come; returns pages left over.

    What their pages hold does not matter to time.
    """
    block_size = worker.facts.layout.block_size
    each = -(-(context + 2 * bench.size(STEPS, TINY_STEPS) + 4) // block_size)
    pages = list(range(worker.facts.num_pages))
    if count * each > len(pages):
        raise ValueError(f"{count} sequences of {context} tokens need {count * each} pages, there are {len(pages)}")
    joins = tuple(
        step_plan.Join(
            slot=slot,
            token_ids=(1,) * context,
            num_prompt_tokens=context,
            params=PARAMS,
            pages=tuple(pages[slot * each : (slot + 1) * each]),
        )
        for slot in range(count)
    )
    worker.execute(step_plan.StepPlan(step=0, joins=joins, decodes=tuple(range(count))))
    return pages[count * each :]


def timed(worker: device_worker.DeviceWorker, plans: Sequence[step_plan.StepPlan]) -> tuple[float, float, float]:
    """Seconds a step by the clock, one launched ahead; on the device; waiting for copies there."""
    worker.execute(plans[0])
    ahead = worker.launch(plans[1])
    results = []
    started = time.perf_counter()
    for plan in plans[2:]:
        following = worker.launch(plan)
        results.append(ahead.result())
        ahead = following
    results.append(ahead.result())
    wall = (time.perf_counter() - started) / len(results)
    device = sorted(result.execute_seconds for result in results)[len(results) // 2]
    return wall, device, sum(result.swap_seconds for result in results) / len(results)


def decodes(bench: Bench, count: int, **more: Any) -> list[step_plan.StepPlan]:
    slots = tuple(range(count))
    return [step_plan.StepPlan(step=1, decodes=slots, **more) for _ in range(bench.size(STEPS, TINY_STEPS))]


@contextlib.contextmanager
def no_graphs(worker: device_worker.DeviceWorker) -> Iterator[None]:
    """Steps are launched kernel by kernel meanwhile."""
    with mock.patch.object(worker, "_graphs", None):
        yield


def steps(bench: Bench) -> Iterator[Row]:
    """Decode steps; what they must move at the bandwidth of a copy stands beside them."""
    worker = made(bench).worker
    bench.notes.append(f"Loaded in {made(bench).seconds:.0f} s; graphs: {worker.facts.notes.get('graphs', '')}.")
    weights = worker.facts.memory_bytes["weights"]
    for count, context in bench.some(((1, 4096), (32, 4096), (256, 1024)), ((2, 20),)):
        joined(bench, worker, count, context)
        for graphs in (True, False):
            with contextlib.nullcontext() if graphs else no_graphs(worker):
                before = worker.num_replayed
                wall, device, _ = timed(worker, decodes(bench, count))
            num_bytes = weights + count * context * worker.facts.layout.token_bytes
            yield {
                "batch": f"{count} x {context}",
                "graphs": "on" if worker.num_replayed > before else "off",
                "ms a step": 1e3 * wall,
                "of these on the device": 1e3 * device,
                "tokens/s": count / wall,
                "at a copy's bandwidth, ms": 1e3 * num_bytes / bench.copy_bytes_a_second,
                "% of a copy": bench.share_of_copy(num_bytes, wall),
            }


def swap(bench: Bench) -> Iterator[Row]:
    """Pages leave and come back beside running decodes: how fast, and what it costs the batch."""
    worker = made(bench).worker
    count, context = bench.size(32, 1), bench.size(2048, 20)
    spare = joined(bench, worker, count, context)
    pages = min(SWAPPED_PAGES, len(spare), worker.facts.num_host_pages)
    copies = tuple(step_plan.Copy(page, host) for host, page in enumerate(spare[:pages]))
    page_bytes = worker.facts.layout.page_bytes
    alone, _, _ = timed(worker, decodes(bench, count))
    rows: dict[str, dict[str, Any]] = {
        "nothing": {},
        "out": {"swaps_out": copies},
        "in": {"swaps_in": copies},
        "out and in": {"swaps_out": copies, "swaps_in": copies},
    }
    one_way = page_bytes / worker.facts.page_copy_seconds / 1e9 if worker.facts.page_copy_seconds else 0.0
    bench.notes.append(f"Pages copied alone, before the first request: {one_way:.3g} GB/s one way.")
    for what, more in rows.items():
        joined(bench, worker, count, context)
        wall, _, waited = timed(worker, decodes(bench, count, **more))
        moved = sum(len(each) for each in more.values()) * page_bytes
        yield {
            "pages a step": f"{pages if more else 0} of {page_bytes / 2**20:.3g} MiB {what}",
            "ms a step": 1e3 * wall,
            "waiting for copies": 1e3 * waited,
            "costs the batch, %": 100 * (wall / alone - 1),
            "GB/s beside the steps": moved / wall / 1e9,
        }


def guesses(bench: Bench) -> Iterator[Row]:
    """What a step costs that checks guesses: the number of tokens that must come of it for guessing to pay. Beside it
    the same tokens computed as one chunk, which reads keys and values once, and is launched kernel by kernel."""
    worker = made(bench).worker
    for count, context in bench.some(((1, 2048), (1, 16_384), (8, 2048), (32, 2048)), ((1, 20),)):
        alone = 0.0
        for num_guesses in bench.some((0, 1, 2, 4, 8), (0, 1)):
            times = [checked(bench, worker, count, context, num_guesses) for _ in range(bench.size(7, 1))]
            chunk = chunks_of(worker, count, context, num_guesses + 1)
            as_chunk = [worker.execute(chunk).execute_seconds for _ in range(bench.size(7, 1))]
            seconds = statistics.median(times)
            alone = alone or seconds
            yield {
                "batch": f"{count} x {context}",
                "guesses each": num_guesses,
                "ms a step": 1e3 * seconds,
                "pays from so many tokens a step": seconds / alone,
                "ms as one chunk": 1e3 * statistics.median(as_chunk),
            }


def checked(bench: Bench, worker: device_worker.DeviceWorker, count: int, context: int, num_guesses: int) -> float:
    """Seconds of a step that checks so many guesses of each sequence, from the end of the step before; without any, of
    a decode."""
    joined(bench, worker, count, context)
    if not num_guesses:
        return worker.execute(step_plan.StepPlan(step=1, decodes=tuple(range(count)))).execute_seconds
    asked = tuple(step_plan.Verification(slot, num_guesses, (1,) * num_guesses) for slot in range(count))
    return worker.execute(step_plan.StepPlan(step=1, verifications=asked)).execute_seconds


def chunks_of(worker: device_worker.DeviceWorker, count: int, context: int, tokens: int) -> step_plan.StepPlan:
    """The last `tokens` of each sequence, which are known, computed again."""
    each = -(-(context + 2) // worker.facts.layout.block_size)
    joins = tuple(
        step_plan.Join(
            slot=slot,
            token_ids=(1,) * context,
            num_prompt_tokens=context,
            params=PARAMS,
            pages=tuple(range(slot * each, (slot + 1) * each)),
        )
        for slot in range(count)
    )
    chunks = tuple(step_plan.Chunk(slot, context - tokens, tokens, True) for slot in range(count))
    return step_plan.StepPlan(step=1, joins=joins, chunks=chunks)


SECTIONS = (
    Section("steps", "Decode steps of an 8B Llama with random weights in bfloat16", steps, 120),
    Section("swap", "Swapping beside a running batch", swap, 40),
    Section("guesses", "What verifying guesses costs", guesses, 40),
)
