"""What `scheduler_claims.py` runs: the real scheduler on a virtual clock, each claim beside the plain alternative.

A scenario is given a seed and answers figures by variant: {"plain": {figure: value}, "ours": {figure: value}}. All of
it is deterministic by seed: how busy the machine is changes nothing.
"""

from __future__ import annotations

import copy
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from tidemark_runtime.engine import messages
from tidemark_runtime.simulation import models, profiles, recorder, report, running, workload

ROOT = Path(__file__).resolve().parents[1]
WORKLOADS = ROOT / "examples/workloads"

Figures = dict[str, float]
Variants = dict[str, Figures]
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a request that is over. Seconds on the virtual clock."""

    kind: str
    is_first: bool
    """The client's first try of this request."""
    sent: float
    first_token: float
    """0 where none came."""
    ended: float
    served: bool

    @property
    def wait(self) -> float:
        """To the first token."""
        return self.first_token - self.sent


@dataclass(frozen=True, slots=True)
class Run:
    report: report.Report
    record: recorder.Recorder
    tries: list[Try]

    def of(self, kind: str) -> list[Try]:
        """Those that were served, of a class."""
        return [item for item in self.tries if item.kind == kind and item.served]

    def tokens_per_second(self, first: float, last: float) -> float:
        """Output tokens, between two moments of the run: without its beginning and its end, which differ."""
        points = [point for point in self.record.points if first <= point.seconds <= last]
        return (points[-1].output_tokens - points[0].output_tokens) / (points[-1].seconds - points[0].seconds)

    def pages_used(self, first: float, last: float) -> float:
        """Mean share of the pages, between two moments of the run."""
        return statistics.fmean(
            point.pages_used_share for point in self.record.points if first <= point.seconds <= last
        )


def simulate(profile: str, values: Values, seed: int, **scheduler: Any) -> Run:
    """`values`: a workload as its file holds it; `scheduler`: settings instead of the file's, by their YAML name."""
    values = copy.deepcopy(values)
    values.setdefault("settings", {}).setdefault("scheduler", {}).update(scheduler)
    tries: list[Try] = []

    def ended(entry: recorder.Try, output: messages.SequenceOutput) -> None:
        request, served = entry.request, recorder.was_served(output)
        is_first = request.num_tries == 1
        tries.append(Try(request.kind.name, is_first, entry.sent, entry.first_token, entry.last_token, served))

    load = workload.parse(values, "made", seed=seed)
    simulation = running.Simulation(profiles.load(profile), load, ended=ended)
    result = simulation.run()
    return Run(result.report, result.record, tries)


def example(name: str) -> Values:
    values: Values = yaml.safe_load((WORKLOADS / f"{name}.yaml").read_text(encoding="utf-8"))
    return values


# ---- 1: as many as fit -----------------------------------------------------------------------------------------------

MODEL_CONTEXT = 32_768


def concurrency(seed: int) -> Variants:
    """Always somebody waiting, mixed lengths: how many run at once in the same memory?"""
    load = example("saturation")
    runs = {
        "plain": simulate("rtx4090/7b", load, seed, maxPreemptionsPerRequest=0),
        "default lines": simulate("rtx4090/7b", load, seed, **DEFAULT_LINES),
        "ours": simulate("rtx4090/7b", load, seed),
    }
    found = {name: _of_pool(run.report) for name, run in runs.items()}
    found["ours"]["ratio"] = found["ours"]["concurrency"] / found["plain"]["concurrency"]
    pages = runs["plain"].report.pages
    found["plain"]["whole context"] = pages.total * pages.block_size / MODEL_CONTEXT
    return found


DEFAULT_LINES = {"queueWatermark": 0.70, "preemptWatermark": 0.90, "watermarkHysteresis": 0.05}


def _of_pool(found: report.Report) -> Figures:
    entry = next(iter(found.classes.values()))
    return {
        "concurrency": found.batch.mean_concurrency,
        "pages": found.pages.mean_used_share_while_waiting * (1.0 - found.pages.mean_waste),
        "held": found.pages.mean_used_share_while_waiting,
        "waste": found.pages.mean_waste,
        "tokens/s": found.output_tokens_per_second,
        "preemptions": found.preemptions.total,
        "failed": entry.requests - entry.served,
    }


# ---- 2: a contract among one-line questions --------------------------------------------------------------------------

CONTRACTS_AT = tuple(range(20, 300, 20))


def long_prompt(seed: int) -> Variants:
    """How long do questions wait that come while a prompt of 16k tokens is computed, and how long does that take?"""
    load = example("long-prompt")
    load["durationSeconds"] = 320
    load["classes"]["contract"]["arrivals"] = {"at": {"seconds": list(CONTRACTS_AT)}}
    alone = copy.deepcopy(load)
    del alone["classes"]["contract"]
    unset = {"targetStepSeconds": None}
    fcfs = {"longRequestTokens": 200_000, **unset}
    unloaded = simulate("l40s/8b", alone, seed)
    plain = simulate("l40s/8b", load, seed, **fcfs)
    runs = {
        "plain": plain,
        "no target": simulate("l40s/8b", load, seed, **unset),
        "defaults": simulate("l40s/8b", load, seed, maxNumBatchedTokens=512, **unset),
        "small steps": simulate("l40s/8b", load, seed, maxNumBatchedTokens=256, **unset),
        "ours": simulate("l40s/8b", load, seed),
    }
    return {name: _beside_contracts(run, unloaded, plain) for name, run in runs.items()}


def _beside_contracts(run: Run, unloaded: Run, fcfs: Run) -> Figures:
    alone = {item.sent: item.wait for item in unloaded.of("question")}
    contracts = run.of("contract")
    spans = [(item.sent, item.first_token) for item in contracts]
    during = [item for item in run.of("question") if any(first <= item.sent <= last for first, last in spans)]
    waits, alone_waits = [item.wait for item in during], [alone[item.sent] for item in during]
    took = statistics.fmean(item.ended - item.sent for item in contracts)
    fcfs_took = statistics.fmean(item.ended - item.sent for item in fcfs.of("contract"))
    return {
        "questions": len(during),
        "mean": statistics.fmean(waits),
        "p95": _percentile(waits, 0.95),
        "unloaded mean": statistics.fmean(alone_waits),
        "mean ratio": statistics.fmean(waits) / statistics.fmean(alone_waits),
        "p95 ratio": _percentile(waits, 0.95) / _percentile(alone_waits, 0.95),
        "max ratio": max(waits) / max(alone_waits),
        "contract first": statistics.fmean(item.wait for item in contracts),
        "contract": took,
        "contract ratio": took / fcfs_took,
    }


def _percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# ---- 3: more than there is memory for --------------------------------------------------------------------------------

CAPACITY_PER_SECOND = 1.4
"""Of `reasoning()` on this card: what more arrivals bring no more tokens a second from."""

PRESSED_SECONDS = 1000
"""Long enough that a seed's share does not hang on a few of the longest answers."""
MEASURED_FROM = 100


def reasoning(per_second: float) -> Values:
    """Short questions whose long answers grow in memory after they were let in: what preemptions come from."""
    settings = {
        "scheduler": {
            "maxNumSeqs": 160,
            "maxNumBatchedTokens": 1024,
            "maxQueuedRequests": 100_000,
            "maxQueueSeconds": 36_000,
            "longRequestTokens": 16_384,
        },
        "kvCache": {"memoryUtilization": 0.92},
    }
    kind = {
        "arrivals": {"poisson": {"perSecond": per_second}},
        "promptTokens": {"lognormal": {"median": 120, "sigma": 0.8, "min": 16, "max": 4000}},
        "outputTokens": {"lognormal": {"median": 1500, "sigma": 0.8, "min": 16, "max": 12_000}},
        "maxTokens": 12_000,
    }
    return {"durationSeconds": PRESSED_SECONDS, "settings": settings, "classes": {"reasoning": kind}}


def pressed(seed: int) -> Variants:
    """Half as much again as the card can serve, for 1,000 s."""
    free_5_percent = {"queueWatermark": 0.95, "preemptWatermark": 0.95, "watermarkHysteresis": 0.0}
    no_line = {"queueWatermark": 1.0, "preemptWatermark": 1.0, "watermarkHysteresis": 0.0}
    demand = reasoning(1.5 * CAPACITY_PER_SECOND)
    calm = [simulate("rtx4090/7b", reasoning(share * CAPACITY_PER_SECOND), seed) for share in (0.75, 1.0)]
    unpressed = max(run.tokens_per_second(MEASURED_FROM, PRESSED_SECONDS) for run in calm)
    runs = {
        "no watermark": simulate("rtx4090/7b", demand, seed, **no_line),
        "plain": simulate("rtx4090/7b", demand, seed, **free_5_percent),
        "ours": simulate("rtx4090/7b", demand, seed),
    }
    return {name: _under_pressure(run, unpressed) for name, run in runs.items()}


def _under_pressure(run: Run, unpressed: float) -> Figures:
    entry = run.report.classes["reasoning"]
    speed = run.tokens_per_second(MEASURED_FROM, PRESSED_SECONDS)
    return {
        "requests": entry.requests,
        "preemptions": run.report.preemptions.total,
        "most": entry.most_preemptions,
        "failed": entry.requests - entry.served,
        "tokens/s": speed,
        "unpressed share": speed / unpressed,
        "end to end p95": entry.end_to_end.p95,
    }


# ---- 5: an important request at a full pool --------------------------------------------------------------------------


def urgent(seed: int) -> Variants:
    """Long answers of a batch job fill the pool; then requests of higher priority come."""
    busy = _urgent_load(140)
    unloaded = simulate("rtx4090/7b", _urgent_load(0), seed)
    runs = {
        "plain": simulate("rtx4090/7b", _without_priority(busy), seed),
        "room": simulate("rtx4090/7b", _urgent_load(40), seed),
        "ours": simulate("rtx4090/7b", busy, seed),
    }
    return {name: _of_urgent(run, unloaded) for name, run in runs.items()}


def _urgent_load(num_users: int) -> Values:
    classes: Values = {
        "urgent": {
            "arrivals": {"poisson": {"perSecond": 0.4}},
            "startSeconds": 60,
            "promptTokens": {"uniform": {"min": 600, "max": 1400}},
            "outputTokens": 100,
            "priority": 10,
        },
        "line": {
            "arrivals": {"poisson": {"perSecond": 0.4}},
            "startSeconds": 60,
            "promptTokens": {"uniform": {"min": 16, "max": 60}},
            "outputTokens": 100,
            "priority": 10,
        },
    }
    if num_users:
        kind = copy.deepcopy(reasoning(1.0)["classes"]["reasoning"])
        kind["arrivals"] = {"users": {"num": num_users}}
        classes["batch"] = kind
    settings = {
        "scheduler": {
            "maxNumSeqs": 160,
            "queueWatermark": 0.99,
            "preemptWatermark": 0.99,
            "watermarkHysteresis": 0.0,
            "maxQueueSeconds": 36_000,
        },
        "kvCache": {"memoryUtilization": 0.92, "swapSpace": "8Gi"},
    }
    return {"durationSeconds": 200, "settings": settings, "classes": classes}


def _without_priority(values: Values) -> Values:
    values = copy.deepcopy(values)
    for name in ("urgent", "line"):
        values["classes"][name]["priority"] = 0
    return values


def _of_urgent(run: Run, unloaded: Run) -> Figures:
    waits = [item.wait for item in run.of("urgent")]
    alone = [item.wait for item in unloaded.of("urgent")]
    lines, lines_alone = ([item.wait for item in of.of("line")] for of in (run, unloaded))
    batch = run.report.classes["batch"]
    return {
        "requests": len(waits),
        "used": run.pages_used(60.0, 200.0),
        "line p50": _percentile(lines, 0.5),
        "line ratio": _percentile(lines, 0.5) / _percentile(lines_alone, 0.5),
        "unloaded p50": _percentile(alone, 0.5),
        "p50": _percentile(waits, 0.5),
        "p50 ratio": _percentile(waits, 0.5) / _percentile(alone, 0.5),
        "p95 ratio": _percentile(waits, 0.95) / _percentile(alone, 0.95),
        "mean ratio": statistics.fmean(waits) / statistics.fmean(alone),
        "preemptions": run.report.preemptions.total,
        "most": batch.most_preemptions,
        "failed": batch.requests - batch.served,
    }


def victims(seed: int) -> Variants:
    """Answers of those that were preempted, beside what each gets alone, in the worker that notices every mistake."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    import engine_bench

    numbers = random.Random(seed)
    found: Variants = {}
    for mode, num_host_pages in (("recompute", 0), ("swap", 256)):
        bench = engine_bench.Bench(
            num_pages=64,
            num_host_pages=num_host_pages,
            preemption_mode=mode,
            queue_watermark=0.95,
            preempt_watermark=0.98,
        )
        for index in range(80):
            prompt = engine_bench.prompt(numbers.randrange(20, 200), seed * 1000 + index)
            bench.submit(f"r{index}", prompt, numbers.randrange(20, 160), priority=numbers.choice((0, 0, 0, 5)))
            bench.step(numbers.randrange(1, 12))
        bench.run(limit=50_000)
        hit = [record for record in bench.records.values() if record.num_preemptions]
        equal = sum(record.tokens == record.solo for record in hit)
        bench.check_baseline()
        found[mode] = {"victims": len(hit), "equal": equal, "different": len(hit) - equal}
    return found


# ---- 6: a storm of retries -------------------------------------------------------------------------------------------

STORM_SECONDS = (100.0, 200.0)


def storm(seed: int) -> Variants:
    """For a hundred seconds, twice the load comes on top, as retries."""
    load = example("overload")
    calm = copy.deepcopy(load)
    del calm["classes"]["storm"]
    unmarked = copy.deepcopy(load)
    unmarked["classes"]["storm"]["areRetries"] = False
    found = {}
    for suffix, more in (("", {}), (", ageing 2 s", {"agingSeconds": 2.0})):
        before = simulate("l40s/8b", calm, seed, **more)
        found["plain" + suffix] = _first_tries(simulate("l40s/8b", unmarked, seed, **more), before)
        found["ours" + suffix] = _first_tries(simulate("l40s/8b", load, seed, **more), before)
    return found


def _first_tries(run: Run, calm: Run) -> Figures:
    def served(of: Run) -> list[Try]:
        first, last = STORM_SECONDS
        return [item for item in of.of("first") if item.is_first and first <= item.ended <= last]

    waits, calm_waits = ([item.wait for item in served(of)] for of in (run, calm))
    return {
        "calm": len(calm_waits),
        "served": len(waits),
        "share": len(waits) / len(calm_waits),
        "p50": _percentile(waits, 0.5),
        "calm p50": _percentile(calm_waits, 0.5),
        "storm served": len([item for item in run.of("storm") if item.ended <= STORM_SECONDS[1]]),
    }


# ---- 4: no livelock --------------------------------------------------------------------------------------------------

LEAST_STEPS = 5000
MOST_STEPS = 200_000
"""So many without an end are a livelock."""


def livelock(seed: int) -> Variants:
    """A small pool, nasty settings by chance, to the very end; sums are checked as it goes. Raises what goes wrong."""
    load = workload.parse(nasty(seed), "nasty", seed=seed)
    profile = profiles.Profile(name="made", model=models.MODELS["smollm2-135m"], measured=_made_device(seed))
    simulation = running.Simulation(profile, load, check_every_steps=25)
    result = simulation.run(max_steps=MOST_STEPS)
    found, stats = result.report, simulation.engine.stats()
    bound = load.settings.scheduler.max_preemptions_per_request
    entries = [entry for name, entry in found.classes.items() if name != report.ALL]
    return {
        "ours": {
            "steps": found.steps,
            "unfinished": simulation.record.num_open + stats.requests_running + stats.requests_waiting,
            "requests": sum(entry.tries for entry in entries),
            "preemptions": found.preemptions.total,
            "over the bound": max(0, found.preemptions.most_of_one_request - bound),
            "pages left": stats.pages_used + stats.pages_swapped,
        }
    }


def nasty(seed: int) -> Values:
    numbers = random.Random(f"nasty {seed}")
    queue, preempt = sorted((numbers.uniform(0.7, 1.0), numbers.uniform(0.7, 1.0)))
    num_seqs = numbers.choice((4, 8, 16))
    settings = {
        "scheduler": {
            "maxNumSeqs": num_seqs,
            "maxNumBatchedTokens": numbers.choice((num_seqs, 64, 256)),
            "queueWatermark": queue,
            "preemptWatermark": preempt,
            "watermarkHysteresis": numbers.choice((0.0, 0.05)),
            "longRequestTokens": numbers.choice((1, 200, 100_000)),
            "longRequestShare": numbers.choice((0.0, 0.5, 1.0)),
            "agingSeconds": numbers.choice((0.0, 5.0, 1e6)),
            "fairness": numbers.choice(("none", "apiKey")),
            "preemptionMode": numbers.choice(("auto", "swap", "recompute")),
            "maxPreemptionsPerRequest": numbers.choice((0, 1, 3, 10)),
            "maxQueuedRequests": numbers.choice((4, 100)),
            "maxQueueSeconds": numbers.choice((30.0, 1e6)),
            "targetStepSeconds": numbers.choice((None, 0.05)),
        },
        "kvCache": {"prefixCaching": numbers.random() < 0.5},
        "model": {"maxContextTokens": 512},
    }
    # Answers that grow: the smallest pool, 40 pages of 16, holds one of them at its longest and little beside it.
    classes: Values = {}
    for name in ("low", "middle", "high")[: numbers.randrange(1, 4)]:
        classes[name] = {
            "arrivals": {"poisson": {"perSecond": numbers.uniform(0.05, 0.6)}},
            "promptTokens": {"uniform": {"min": 1, "max": 110}},
            "outputTokens": {"uniform": {"min": 1, "max": 390}},
            "maxTokens": 400,
            "sharedPromptTokens": numbers.choice((0, 80)),
            "priority": len(classes),
            "tenants": numbers.choice((1, 3)),
            "retries": {"most": numbers.choice((1, 3)), "marked": numbers.random() < 0.5},
        }
    return {"durationSeconds": 600, "settings": settings, "classes": classes}


def _made_device(seed: int) -> profiles.Measured:
    numbers = random.Random(f"device {seed}")
    prices = profiles.Prices(base=0.1, decode=0.001, prompt_token=0.0002, token_read=1e-6, pair=1e-7)
    return profiles.Measured(
        prices=prices,
        num_pages=numbers.randrange(40, 120),
        num_swap_pages=numbers.choice((0, 40, 200)),
        page_copy_seconds=0.002,
        host_seconds=0.0,
    )


# ---- 8: nine hours ---------------------------------------------------------------------------------------------------

SOAK_PROFILE = "ascend910b/70b-4bit"
SAMPLE_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class SoakSample:
    seconds: float
    steps: int
    requests: int
    preemptions: int
    pages_used: int
    rss_mib: float


def soak_load(hours: float) -> Values:
    """A 70B model on one 64 GB device, a little more asked for than it can serve, with everything switched on."""
    chat: Values = {
        "arrivals": {"poisson": {"perSecond": 0.5}},
        "promptTokens": {"lognormal": {"median": 400, "sigma": 1.0, "min": 16, "max": 6000}},
        "outputTokens": {"lognormal": {"median": 250, "sigma": 0.8, "min": 1, "max": 2000}},
        "maxTokens": 2000,
        "sharedPromptTokens": 128,
        "tenants": 5,
        "priority": 1,
        "retries": {"most": 2},
    }
    batch: Values = {
        "arrivals": {"bursts": {"size": 40, "everySeconds": 600}},
        "promptTokens": {"uniform": {"min": 200, "max": 3000}},
        "outputTokens": {"uniform": {"min": 100, "max": 1500}},
        "maxTokens": 1500,
        "retries": {"most": 2},
    }
    documents: Values = {
        "arrivals": {"poisson": {"perSecond": 0.01}},
        "promptTokens": {"uniform": {"min": 8000, "max": 24_000}},
        "outputTokens": 500,
        "deadlineSeconds": 900,
        "priority": 2,
    }
    settings = {
        "scheduler": {"maxNumSeqs": 64, "maxNumBatchedTokens": 1024, "maxQueuedRequests": 100, "maxQueueSeconds": 300},
        "kvCache": {"swapSpace": "16Gi"},
    }
    classes = {"chat": chat, "batch": batch, "documents": documents}
    return {"durationSeconds": hours * 3600.0, "settings": settings, "classes": classes}


def soak(hours: float, *, seed: int = 1, tell: Callable[[SoakSample], None] | None = None) -> list[SoakSample]:
    """Raises what the engine raises when its sums do not work out: they are checked every 1,000 steps."""
    load = workload.parse(soak_load(hours), "soak", seed=seed)
    simulation = running.Simulation(profiles.load(SOAK_PROFILE), load, check_every_steps=1000)
    process, samples, next_at = psutil.Process(), list[SoakSample](), SAMPLE_SECONDS
    busy = True
    while busy:
        busy = simulation.turn()
        if simulation.clock.now >= next_at or not busy:
            gc.collect()
            stats = simulation.engine.stats()
            sample = SoakSample(
                simulation.clock.now,
                simulation.device.num_steps,
                sum(entry.requests for entry in simulation.record.classes.values()),
                stats.preemptions_total,
                stats.pages_used,
                process.memory_info().rss / 2**20,
            )
            samples.append(sample)
            if tell is not None:
                tell(sample)
            next_at = simulation.clock.now + SAMPLE_SECONDS
    simulation.result()
    return samples


def timed(scenario: Callable[[int], Variants], seed: int) -> tuple[Variants, float]:
    """What it found, and the seconds of this machine that it took."""
    started = time.perf_counter()
    return scenario(seed), time.perf_counter() - started


SCENARIOS: Mapping[str, Callable[[int], Variants]] = {
    "concurrency": concurrency,
    "long_prompt": long_prompt,
    "pressed": pressed,
    "urgent": urgent,
    "victims": victims,
    "storm": storm,
    "livelock": livelock,
}
