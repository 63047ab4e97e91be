"""Does `tidemark simulate` say what the real engine does? Predicted and measured throughput, on this machine.

    python benchmarks/simulation_check.py               about ten minutes on a quiet machine
    python benchmarks/simulation_check.py --quick       a try, a tenth of it; nothing is written

First a calibration run, whose steps the engine fits its prices to (`core.step_time`), as every engine does. Then three
workloads that are none of the calibration's: the real engine serves them in real time, and the simulation with those
prices predicts what it will come to. Same clients, same lengths, same settings, same pages; only the device differs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import real_engine

from tidemark_runtime.engine import core_engine
from tidemark_runtime.simulation import clients, models, profiles, running, workload
from tidemark_runtime.simulation import senders as senders_

RESULTS = Path(__file__).resolve().parent / "results/simulation_check.md"
GOAL = 0.15

SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"maxContextTokens": 2048},
    "scheduler": {"maxNumSeqs": 16, "maxNumBatchedTokens": 256, "maxQueueSeconds": 3600},
    "kvCache": {"numPages": 640},
}

CALIBRATION: dict[str, dict[str, Any]] = {
    "prompts": {
        "arrivals": {"users": {"num": 10, "rampSeconds": 10}},
        "promptTokens": {"uniform": {"min": 16, "max": 900}},
        "outputTokens": {"uniform": {"min": 1, "max": 160}},
        "requests": 40,
    },
    # Together at once, each to its own end: steps without prompts, of sixteen sequences down to one.
    "decodes": {
        "arrivals": {"at": {"seconds": [0] * 16}},
        "promptTokens": {"uniform": {"min": 16, "max": 400}},
        "outputTokens": {"uniform": {"min": 10, "max": 240}},
        "requests": 16,
    },
}
"""Classes that are served one after the other."""

WORKLOADS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "chat": (
        "16 users who never pause, short prompts, longer answers",
        {
            "chat": {
                "arrivals": {"users": {"num": 16}},
                "promptTokens": {"lognormal": {"median": 60, "sigma": 0.6, "min": 16, "max": 300}},
                "outputTokens": {"lognormal": {"median": 100, "sigma": 0.5, "min": 10, "max": 300}},
                "requests": 60,
            }
        },
    ),
    "documents": (
        "4 users, long prompts, short answers: computing prompts nearly all the time",
        {
            "documents": {
                "arrivals": {"users": {"num": 4}},
                "promptTokens": {"uniform": {"min": 300, "max": 1500}},
                "outputTokens": {"uniform": {"min": 5, "max": 40}},
                "requests": 24,
            }
        },
    ),
    "pressed": (
        "bursts of 18 whose answers grow over 640 pages, and short questions of higher priority: preemptions, all "
        "lanes",
        {
            "batch": {
                "arrivals": {"bursts": {"size": 18, "everySeconds": 45}},
                "promptTokens": {"uniform": {"min": 100, "max": 600}},
                "outputTokens": {"uniform": {"min": 150, "max": 500}},
                "sharedPromptTokens": 64,
                "requests": 36,
            },
            "question": {
                "arrivals": {"poisson": {"perSecond": 0.5}},
                "promptTokens": {"uniform": {"min": 16, "max": 60}},
                "outputTokens": {"uniform": {"min": 10, "max": 40}},
                "priority": 1,
                "requests": 24,
            },
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    seconds: float
    steps: int
    output_tokens: int
    first_token_mean: float
    preemptions: int

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds


def load_of(name: str, classes: dict[str, dict[str, Any]], seed: int, share: float) -> workload.Workload:
    """`share` of the requests of each class, at least a few."""
    classes = {
        key: {**values, "requests": max(min(16, values["requests"]), round(values["requests"] * share))}
        for key, values in classes.items()
    }
    return workload.parse({"classes": classes, "settings": SETTINGS}, name, seed=seed)


def serve(engine: core_engine.CoreEngine, load: workload.Workload) -> Outcome:
    """All of `load`, in real time."""
    senders = clients.Clients(load, load.seed)
    open_: dict[str, tuple[senders_.Request, float]] = {}
    first: dict[str, float] = {}
    waits: list[float] = []
    before = engine.stats()
    num_tokens, ended, started = 0, 0.0, time.perf_counter()
    while True:
        now = time.perf_counter() - started
        outputs = []
        for request, at in senders.due(now):
            message = senders.message(request)
            open_[message.id] = (request, at)
            outputs += engine.submit([real_engine.as_real(message, request.num_output_tokens)])
        if engine.has_work:
            outputs += engine.step()
        elif senders.next_at == senders_.NEVER:
            break
        else:
            time.sleep(min(0.01, max(0.0, senders.next_at - now)))
        now = time.perf_counter() - started
        for output in outputs:
            request, at = open_[output.id]
            num_tokens += len(output.token_ids)
            if output.token_ids and output.id not in first:
                first[output.id] = now
                waits.append(now - at)
            if output.finish is not None:
                ended = now
                del open_[output.id]
                senders.ended(request, output, now, request.num_output_tokens)
    engine.check_integrity()
    after = engine.stats()
    preemptions = after.preemptions_total - before.preemptions_total
    return Outcome(ended, after.steps - before.steps, num_tokens, statistics.fmean(waits), preemptions)


def calibrate(engine: core_engine.CoreEngine, share: float) -> profiles.Profile:
    """Prices as the engine has fitted them, with what a step takes beside the worker."""
    loads = [load_of(name, {name: values}, seed=1000, share=share) for name, values in CALIBRATION.items()]
    busy, num_steps = 0.0, 0
    original = engine.step

    def step() -> Any:
        nonlocal busy, num_steps
        outputs = original()
        stats = engine.stats()
        if stats.steps != num_steps:
            num_steps = stats.steps
            busy += stats.execute_seconds
        return outputs

    engine.step = step  # type: ignore[method-assign]
    found = [serve(engine, load) for load in loads]
    engine.step = original  # type: ignore[method-assign]
    stats = engine.stats()
    prices = stats.step_prices
    seconds, steps = sum(outcome.seconds for outcome in found), sum(outcome.steps for outcome in found)
    beside = max(0.0, (seconds - busy) / steps)
    return profiles.Profile(
        name="this machine",
        model=models.MODELS[real_engine.MODEL],
        measured=profiles.Measured(
            prices=profiles.Prices(
                base=prices["base"] + beside,
                decode=prices["decode"],
                prompt_token=prices["promptToken"],
                token_read=prices["tokenRead"],
                pair=prices["pair"],
            ),
            num_pages=stats.pages_total,
            num_swap_pages=0,
            page_copy_seconds=0.0,
            host_seconds=0.0,
        ),
    )


def predict(profile: profiles.Profile, load: workload.Workload) -> Outcome:
    found = running.run(profile, load).report
    entries = [entry for name, entry in found.classes.items() if name != "all"]
    count = sum(entry.time_to_first_token.num for entry in entries)
    waits = sum(entry.time_to_first_token.mean * entry.time_to_first_token.num for entry in entries)
    num_tokens = sum(entry.output_tokens for entry in entries)
    return Outcome(found.seconds, found.steps, num_tokens, waits / count, found.preemptions.total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests; nothing is written")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=None, help="of the real engine; default: all cores")
    arguments = parser.parse_args()
    share = 0.1 if arguments.quick else 1.0
    engine = real_engine.start(real_engine.settings_of({**SETTINGS, "hardware": {"threads": arguments.threads}}))
    profile = calibrate(engine, share)
    assert profile.measured is not None
    rows = []
    met = True
    for name, (words, classes) in WORKLOADS.items():
        for seed in range(1, arguments.seeds + 1):
            load = load_of(name, classes, seed, share)
            real, said = serve(engine, load), predict(profile, load)
            error = said.tokens_per_second / real.tokens_per_second - 1.0
            met = met and abs(error) <= GOAL
            rows.append(
                f"| {name}: {words} | {seed} | {real.seconds:.1f} | {real.tokens_per_second:.1f} "
                f"| {said.tokens_per_second:.1f} | {error:+.1%} | {real.first_token_mean:.2f} "
                f"| {said.first_token_mean:.2f} | {real.preemptions} | {said.preemptions} |"
            )
            print(rows[-1], flush=True)
    engine.close()
    prices = profile.measured.prices
    text = "\n".join(
        (
            "# Predicted and measured throughput",
            "",
            "Command: `python benchmarks/simulation_check.py`. The real engine (SmolLM2-135M, processor) serves each "
            "workload in",
            "real time; `tidemark simulate`'s engine predicts it, with the prices of a step that the real one fitted "
            "in a",
            "calibration run of other lengths and other arrivals. Same clients, lengths, settings and pages.",
            "",
            f"Machine: {machine.describe()}. Goal: within {GOAL:.0%}: {'met' if met else 'not met'}.",
            "",
            "| workload | seed | seconds | tokens/s measured | predicted | error | first token measured, mean s | "
            "predicted | preemptions measured | predicted |",
            "|---" * 10 + "|",
            *rows,
            "",
            f"Prices in seconds: a step {prices.base:.2e}, a decode {prices.decode:.2e}, a prompt token "
            f"{prices.prompt_token:.2e}, a token read {prices.token_read:.2e}, a pair {prices.pair:.2e}. "
            f"Settings: 16 sequences, 256 tokens a step, {profile.measured.num_pages} pages.",
        )
    )
    print(text)
    if not arguments.quick:
        RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
