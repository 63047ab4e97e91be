"""Wear the real engine out: random requests, aborts, priorities, preemptions with swap, prefix hits, hot changes.

    python benchmarks/soak.py --minutes 20

The real CPU engine in this process, on few pages, so that all of it happens all the time. After every 50 steps the sums
of pages, slots, swap space and queues are checked. A probe, the same greedy request again and again at any moment and
of any priority, has to bring the same tokens as at the start, when it was alone. At the end nothing may be held, and
memory may not have grown.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
import psutil
import real_engine

from tidemark_runtime import config
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import messages

RESULTS = Path(__file__).resolve().parent / "results/soak.md"
CHECK_EVERY_STEPS = 50
WARM_SHARE = 0.25
"""Of the time, after which memory may not grow by more than `MOST_GROWTH`."""
MOST_GROWTH = 0.03

NUM_PAGES = 160
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {"maxContextTokens": 1024},
    "scheduler": {
        "maxNumSeqs": 16,
        "maxNumBatchedTokens": 128,
        "queueWatermark": 0.9,
        "preemptWatermark": 0.98,
        "watermarkHysteresis": 0.02,
        "longRequestTokens": 400,
        "agingSeconds": 5.0,
        "maxQueuedRequests": 24,
        "maxQueueSeconds": 60,
        "fairness": "apiKey",
    },
    "kvCache": {"numPages": NUM_PAGES, "swapSpace": "64Mi"},
}
MOST_OPEN = 30
"""Requests that are here at a time, running and waiting."""
PROBE_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Sample:
    seconds: float
    steps: int
    requests: int
    tokens: int
    preemptions: int
    swapped: int
    hit_share: float
    pages_used: int
    rss_mib: float


@dataclass(slots=True)
class Counts:
    ends: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    tokens: int = 0
    aborts: int = 0
    hot_changes: int = 0
    probes: int = 0
    probes_different: int = 0


class Soak:
    """One engine, random operations on it by seed; what happens when depends on the machine's speed, too."""

    def __init__(self, settings: config.EngineConfig, seed: int) -> None:
        self._scheduler = settings.scheduler
        self._engine = real_engine.start(settings)
        self._random = random.Random(seed)
        self._process = psutil.Process()
        self._open: dict[str, list[int]] = {}
        """Tokens so far, by request."""
        self.counts = Counts()
        self.samples: list[Sample] = []
        numbers = random.Random(f"{seed} prompts")
        self._heads = [self._tokens(numbers, 96) for _ in range(3)]
        self._probe = self._tokens(numbers, 70)
        self._alone: list[int] = []
        self._numbers = numbers

    def run(self, seconds: float, sample_seconds: float) -> None:
        """Raises when sums do not work out, or something is still held at the end."""
        self._alone = self._run_alone()
        started = time.monotonic()
        next_sample = 0.0
        while (now := time.monotonic() - started) < seconds:
            self._operate()
            self._turn()
            if now >= next_sample:
                self._sample(now)
                next_sample = now + sample_seconds
        while self._engine.has_work:
            self._turn()
        self._engine.check_integrity()
        self._sample(time.monotonic() - started)
        self._engine.close()

    def _run_alone(self) -> list[int]:
        self._submit("alone", self._probe, PROBE_TOKENS)
        tokens = self._open["alone"]
        while self._engine.has_work:
            self._turn()
        return tokens

    def _operate(self) -> None:
        """Nothing, or one of the things that clients and operators do."""
        numbers = self._random
        if len(self._open) < MOST_OPEN and numbers.random() < 0.4:
            self._new_request()
        if self._open and numbers.random() < 0.02:
            self.counts.aborts += 1
            self._take(self._engine.abort([numbers.choice(list(self._open))]))
        if numbers.random() < 0.005:
            self._change_settings()

    def _new_request(self) -> None:
        numbers = self._random
        name = f"r{self.counts.requests}"
        if numbers.random() < 0.05:
            self._submit(f"probe-{name}", self._probe, PROBE_TOKENS, priority=numbers.choice((0, 0, 2)))
            return
        own = self._tokens(self._numbers, numbers.choice((5, 30, 120, 400)))
        prompt = numbers.choice(self._heads) + own if numbers.random() < 0.5 else own
        self._submit(name, prompt, numbers.choice((1, 20, 60, 200)), priority=numbers.choice((0, 0, 0, 1, 2)))

    def _submit(self, name: str, prompt: list[int], max_tokens: int, priority: int = 0) -> None:
        numbers = self._random
        is_probe = not name.startswith("r")
        params = sampling.SamplingParams(
            max_tokens=max_tokens,
            temperature=0.0 if is_probe or numbers.random() < 0.5 else 0.8,
            seed=numbers.randrange(1 << 30),
            ignore_stop_tokens=True,
        )
        request = messages.EngineRequest(
            name,
            prompt,
            params,
            deadline_seconds=None if is_probe or numbers.random() < 0.9 else numbers.uniform(0.5, 20.0),
            priority=priority,
            tenant=f"t{numbers.randrange(3)}",
            is_retry=not is_probe and numbers.random() < 0.1,
        )
        self._open[name] = []
        self.counts.requests += 1
        self._take(self._engine.submit([request]))

    def _change_settings(self) -> None:
        """Between two steps, as PUT /admin/config does."""
        numbers = self._random
        self.counts.hot_changes += 1
        changed = dataclasses.replace(
            self._scheduler,
            max_num_batched_tokens=numbers.choice((64, 128, 256)),
            target_step_seconds=numbers.choice((None, 0.1)),
            preemption_mode=numbers.choice(("auto", "swap", "recompute")),
            long_request_share=numbers.choice((0.2, 0.5)),
        )
        self._engine.configure(changed)

    def _turn(self) -> None:
        self._take(self._engine.step())
        if self._engine.stats().steps % CHECK_EVERY_STEPS == 0:
            self._engine.check_integrity()

    def _take(self, outputs: list[messages.SequenceOutput]) -> None:
        for output in outputs:
            tokens = self._open[output.id]
            tokens.extend(output.token_ids)
            self.counts.tokens += len(output.token_ids)
            if output.finish is None:
                continue
            del self._open[output.id]
            self.counts.ends[str(output.finish)] += 1
            if output.id.startswith("probe"):
                self.counts.probes += 1
                self.counts.probes_different += tokens != self._alone[: len(tokens)]

    def _sample(self, seconds: float) -> None:
        gc.collect()
        stats = self._engine.stats()
        looked_up = stats.prefix_hit_tokens_total + stats.prefix_missed_tokens_total
        sample = Sample(
            seconds,
            stats.steps,
            self.counts.requests,
            self.counts.tokens,
            stats.preemptions_total,
            stats.preemptions_swap_total,
            stats.prefix_hit_tokens_total / looked_up if looked_up else 0.0,
            stats.pages_used + stats.pages_swapped,
            self._process.memory_info().rss / 2**20,
        )
        self.samples.append(sample)
        print(sample, flush=True)

    @staticmethod
    def _tokens(numbers: random.Random, count: int) -> list[int]:
        return [numbers.randrange(real_engine.VOCABULARY) for _ in range(count)]


def describe(soak: Soak, minutes: float, seed: int) -> tuple[bool, str]:
    """Whether all held, and the page."""
    counts, samples = soak.counts, soak.samples
    warm = [sample for sample in samples if sample.seconds >= WARM_SHARE * samples[-1].seconds]
    growth = warm[-1].rss_mib - warm[0].rss_mib
    met = growth <= MOST_GROWTH * warm[0].rss_mib and not counts.probes_different and not samples[-1].pages_used
    lines = [
        "# A soak of the real engine",
        "",
        f"Command: `python benchmarks/soak.py --minutes {minutes:g}`, seed {seed}. SmolLM2-135M on the processor, "
        f"{NUM_PAGES} pages, swap space, prefix cache; clients that send at random, go away, and have priorities and "
        f"deadlines; settings that change between two steps. Sums are checked every {CHECK_EVERY_STEPS} steps: an "
        "error would have ended it.",
        "",
        f"Machine: {machine.describe()}. {'All held' if met else '**Not all held**'}: {counts.probes} probes of a "
        f"greedy request, {counts.probes_different} with other tokens than alone; {samples[-1].pages_used} pages held "
        f"at the end; memory {growth:+.1f} MiB after the first {WARM_SHARE:.0%} (at most {MOST_GROWTH:.0%}).",
        "",
        f"{counts.requests:,} requests, {counts.aborts:,} aborts, {counts.hot_changes:,} hot changes; ends: "
        + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.ends.items()))
        + ".",
        "",
        "| minutes | steps | requests | tokens | preemptions | of these swapped | prefix hits | pages held | "
        "resident MiB |",
        "|---" * 9 + "|",
    ]
    for sample in samples[:: max(1, len(samples) // 20)] + samples[-1:]:
        lines.append(
            f"| {sample.seconds / 60:.1f} | {sample.steps:,} | {sample.requests:,} | {sample.tokens:,} "
            f"| {sample.preemptions:,} | {sample.swapped:,} | {sample.hit_share:.0%} | {sample.pages_used} "
            f"| {sample.rss_mib:.0f} |"
        )
    return met, "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=None, help="of the engine; default: all cores")
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    arguments = parser.parse_args()
    soak = Soak(real_engine.settings_of({**SECTIONS, "hardware": {"threads": arguments.threads}}), arguments.seed)
    soak.run(arguments.minutes * 60.0, min(60.0, arguments.minutes * 6.0))
    met, text = describe(soak, arguments.minutes, arguments.seed)
    print(text)
    if not arguments.dry:
        RESULTS.write_text(text + "\n", encoding="utf-8")
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
