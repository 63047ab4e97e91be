"""What metrics cost: the time of all code that only counts and measures, beside the time of the steps it is about.

    python benchmarks/instrumentation.py

Everything that a step does for metrics alone is run here many times over, on the real objects of a running engine, and
timed as CPU time of the thread; so is the real model's step, on one thread of one core. The goal is that counting takes
at most 1 % of a step, in the process that steps wait for and in the one beside it.

Counted as instrumentation, for each step: in the engine process `CoreEngine.stats`, its encoding and `Stats.note_step`,
each op's `Choice.count` and look at the watch, and a 64th of what a timed step takes more; in the HTTP process, which
is beside it on another core, decoding the stats, `ServerMetrics.step`, and for each sequence the counting of its token.
Not counted: ids and tokens, which are sent anyway. A scrape is told apart, and its share at one in 15 s added.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import msgspec
import real_engine
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition

from tidemark_kernels import dispatch
from tidemark_runtime import config
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.server import app
from tidemark_runtime.server import metrics as server_metrics
from tidemark_runtime.simulation import profiles, sizing, virtual_time
from tidemark_runtime.worker import op_times, simulated

RESULTS = Path(__file__).resolve().parent / "results/instrumentation.md"
MOST = 0.01
SCRAPE_EVERY_SECONDS = 15.0
_BATCHES = 7
"""The middle one counts: another process now and then takes a cache away."""


def cpu_seconds(work: Callable[[], object], times: int) -> float:
    """CPU time of this thread for one call of `work`."""
    found = []
    for _ in range(_BATCHES):
        started = time.thread_time()
        for _ in range(times):
            work()
        found.append((time.thread_time() - started) / times)
    return statistics.median(found)


@dataclass(frozen=True, slots=True)
class Shape:
    """A steady batch: `seconds` is what its step takes."""

    name: str
    num_sequences: int
    seconds: float
    op_calls: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds a step, by process; `scrape`: seconds each."""

    engine: float
    server: float
    scrape: float
    scrape_openmetrics: float

    def engine_share(self, shape: Shape) -> float:
        """Of a step, which waits for it."""
        return self.engine / shape.seconds

    def server_share(self, shape: Shape) -> float:
        """Of a step, beside it; the scrapes that fall into it included."""
        return self.server / shape.seconds + self.scrape / SCRAPE_EVERY_SECONDS


# ------------------------------------------------------------------------------------------------ engines that run


class Timed:
    """A worker whose steps' CPU time is kept."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.seconds: list[float] = []
        self.op_calls = 0

    @property
    def facts(self) -> Any:
        return self._worker.facts

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        calls, started = _calls(), time.thread_time()
        result: step_plan.StepResult = self._worker.execute(plan)
        if not plan.chunks:
            self.seconds.append(time.thread_time() - started)
            self.op_calls = _calls() - calls
        return result

    def close(self) -> None:
        self._worker.close()


def _calls() -> int:
    return sum(dispatch.current().calls.values())


def fill(engine: core_engine.CoreEngine, numbers: range, num_tokens: int, num_steps: int) -> None:
    """These sequences more; until all decode, and then so many steps."""
    params = sampling.SamplingParams(max_tokens=1500, temperature=0.0, ignore_stop_tokens=True)
    requests = [
        messages.EngineRequest(f"r{number:031d}-0", [(number * 7 + at) % 40_000 for at in range(num_tokens)], params)
        for number in numbers
    ]
    refused = engine.submit(requests)
    if refused:
        raise RuntimeError(refused[0].message)
    while engine.stats().step_sequences < numbers.stop or engine.stats().step_prompt_tokens:
        engine.step()
    for _ in range(num_steps):
        engine.step()


def real(counts: Sequence[int], num_steps: int) -> Iterator[tuple[Shape, core_engine.CoreEngine]]:
    """SmolLM2-135M on one thread, with more and more sequences."""
    settings = settings_for_real()
    timed: list[Timed] = []
    make = real_engine.worker_maker(settings)

    def made() -> Timed:
        timed.append(Timed(make()))
        return timed[0]

    engine = core_engine.CoreEngine(settings.scheduler, worker_thread.WorkerThread(made), max_context_tokens=2048)
    here = 0
    for count in counts:
        fill(engine, range(here, count), 128, num_steps)
        seconds = statistics.median(timed[0].seconds[-num_steps:])
        yield Shape(f"SmolLM2-135M, {count} sequences", count, seconds, timed[0].op_calls), engine
        here = count
    engine.close()


def settings_for_real() -> config.EngineConfig:
    return real_engine.settings_of(
        {
            "model": {"maxContextTokens": 2048},
            "scheduler": {"maxNumSeqs": 64},
            "kvCache": {"memory": "512Mi"},
            "hardware": {"threads": 1},
        }
    )


def fast(name: str, num_sequences: int) -> tuple[Shape, core_engine.CoreEngine]:
    """A device that is not here, by its published figures: steps of some milliseconds."""
    settings = config.EngineConfig(scheduler=config.SchedulerConfig(max_num_seqs=256, max_num_batched_tokens=8192))
    sized = sizing.size(profiles.load(name), settings)
    clock = virtual_time.VirtualClock()
    device = virtual_time.VirtualDevice(simulated.SimulatedWorker(sized.facts, sized.cost), clock)
    engine = core_engine.CoreEngine(
        settings.scheduler, device, max_context_tokens=sized.facts.max_context_tokens, now=clock
    )
    fill(engine, range(num_sequences), 512, 20)
    seconds = engine.stats().execute_seconds
    return Shape(f"{name} simulated, {num_sequences} sequences", num_sequences, seconds, 0), engine


# ------------------------------------------------------------------------------------------------------ what it costs


def op_cost() -> float:
    """Of one op in a step that is not timed: the look at the watch, and the count."""
    names = ("float32",)

    def one() -> None:
        current = dispatch.current()
        current.count("rms_norm", dispatch.COMPILED, names, current.watch.now())

    return cpu_seconds(one, 2000)


def timed_op_cost() -> float:
    """Of one op in a timed step."""
    names = ("float32",)

    def one() -> None:
        current = dispatch.current()
        current.count("rms_norm", dispatch.COMPILED, names, current.watch.now())

    with dispatch.current().watch.running():
        return cpu_seconds(one, 2000)


def engine_cost(engine: core_engine.CoreEngine, shape: Shape) -> float:
    """Of a step, in the engine process."""
    encoder = msgspec.msgpack.Encoder()
    stats = engine.stats()
    told = cpu_seconds(lambda: encoder.encode(messages.StepOutputs([], engine.stats())), 100)
    plan = step_plan.StepPlan(step=7, decodes=tuple(range(shape.num_sequences)))
    result = step_plan.StepResult(7, (), (), stats.execute_seconds)
    noted = cpu_seconds(lambda: engine._stats.note_step(plan, result, 0.0001, 0.0001), 300)
    parts = dict.fromkeys(("rms_norm", "paged_attention", "grouped_linear", "silu_mul", "sampler"), 0.001)
    whole = cpu_seconds(lambda: op_times.of_step(parts, 0.1, 0.0), 300)
    usual, timed = op_cost(), timed_op_cost()
    more_in_timed = (shape.op_calls * (timed - usual) + whole) / op_times.TIMED_EVERY
    return told + noted + shape.op_calls * usual + more_in_timed


class Ready:
    """As much of an engine as a scrape looks at."""

    failure = failure_kind = progress = None
    progress_age_seconds = 0.0

    def __init__(self, engine: core_engine.CoreEngine) -> None:
        self.stats = engine.stats()
        self.ready: messages.EngineReady | None = None

    def observe(self, _: object) -> None:
        pass


def server_cost(engine: core_engine.CoreEngine, shape: Shape) -> tuple[float, float, float]:
    """Of a step, and of a scrape in either format, in the HTTP process."""
    shared = app.create_context(config.EngineConfig(model=config.ModelConfig(source="x.gguf")))
    shared.engine = Ready(engine)  # type: ignore[assignment]
    route = server_metrics.Metrics(shared)
    counters = shared.metrics
    decoder = msgspec.msgpack.Decoder(messages.FromEngine)
    frame = msgspec.msgpack.encode(messages.StepOutputs([], engine.stats()))
    stats = engine.stats()
    numbers = iter(range(stats.steps + 1, 10_000_000))
    ops = [dict.fromkeys(("rms_norm", "paged_attention", "grouped_linear", "silu_mul", "sampler", "other"), 0.001)]
    by_number = [msgspec.structs.replace(stats, steps=next(numbers), op_seconds=[]) for _ in range(_BATCHES * 200)]
    each = iter(by_number)
    step = cpu_seconds(lambda: counters.step(next(each)), 200)
    timed = cpu_seconds(lambda: counters.step(msgspec.structs.replace(stats, op_seconds=ops)), 200)
    decoded = cpu_seconds(lambda: decoder.decode(frame), 300)

    def token() -> None:
        counters.tokens(1, "contracts")
        counters.inter_token(0.0215)

    tokens = shape.num_sequences * cpu_seconds(token, 500)
    scrapes = [
        cpu_seconds(lambda make=make: make(route._registry), 2)
        for make in (generate_latest, exposition.generate_latest)
    ]
    return decoded + step + timed / op_times.TIMED_EVERY + tokens, scrapes[0], scrapes[1]


def cost(engine: core_engine.CoreEngine, shape: Shape) -> Cost:
    in_server, scrape, scrape_openmetrics = server_cost(engine, shape)
    return Cost(engine_cost(engine, shape), in_server, scrape, scrape_openmetrics)


# ------------------------------------------------------------------------------------------------------------ the page


def describe(rows: list[tuple[Shape, Cost]]) -> tuple[bool, str]:
    """Whether the goal is met by all, and the page."""
    worst = max(found.engine_share(shape) for shape, found in rows)
    worst_server = max(found.server_share(shape) for shape, found in rows)
    met = max(worst, worst_server) <= MOST
    scrape = max(rows, key=lambda row: row[1].scrape)[1]
    lines = [
        "# What metrics cost",
        "",
        "Command: `python benchmarks/instrumentation.py`. CPU time of one thread, the median of "
        f"{_BATCHES} rounds. The real model's step is on one thread with 128 and more tokens of context; a simulated "
        "one is of a device by its published figures, with 512 tokens of context, and its instrumentation that of this "
        "machine; it calls no ops of ours, so that none are counted: kernels that are launched one by one would count "
        "as those of the real model do. Steps wait for the engine process only; the HTTP process counts beside it.",
        "",
        f"Machine: {machine.describe()}.",
        "",
        f"Goal, at most {MOST:.0%} of a step in each process: {'met' if met else '**not met**'}. The largest "
        f"shares are {worst:.2%} and {worst_server:.2%}.",
        "",
        f"An op counts itself in {op_cost() * 1e9:.0f} ns, in a timed step in {timed_op_cost() * 1e9:.0f} ns; one step "
        f"in {op_times.TIMED_EVERY} is timed. A scrape takes {scrape.scrape * 1e3:.1f} ms, in OpenMetrics' format "
        f"{scrape.scrape_openmetrics * 1e3:.1f} ms: {scrape.scrape / SCRAPE_EVERY_SECONDS:.3%} of the time with one in "
        f"{SCRAPE_EVERY_SECONDS:g} s.",
        "",
        "| step | takes, ms | calls of ops | engine process, us | of the step | HTTP process, us | of the step |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {shape.name} | {shape.seconds * 1e3:.2f} | {shape.op_calls} | {found.engine * 1e6:.0f} "
        f"| {found.engine_share(shape):.2%} | {found.server * 1e6:.0f} | {found.server_share(shape):.2%} |"
        for shape, found in rows
    ]
    return met, "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="of the real model, for each shape")
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    arguments = parser.parse_args()
    rows = [(shape, cost(engine, shape)) for shape, engine in real((1, 8, 32), arguments.steps)]
    for shape, engine in (*(fast("h200/8b", count) for count in (1, 64)), fast("l40s/8b", 32)):
        rows.append((shape, cost(engine, shape)))
    met, text = describe(rows)
    print(text)
    if not arguments.dry:
        RESULTS.write_text(text + "\n", encoding="utf-8")
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
