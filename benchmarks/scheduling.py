"""What the engine itself costs in a step, without computing: schedule + update, by running and waiting sequences.

    python benchmarks/scheduling.py

The worker is free (it returns token 0 at once), so that what is measured is ours. One warm-up, then the median.
"""

from __future__ import annotations

import argparse
import json
import statistics

import machine

from tidemark_runtime import config
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface

SHAPES = (
    (1, 0),
    (16, 0),
    (64, 0),
    (256, 0),
    (256, 100),
    (256, 1_000),
    (256, 2_000),
    (256, 10_000),
    (256, 2_000, 1_000),
    (256, 2_000, 4_000),
)
"""Running, waiting, tokens of each prompt: the cost may grow with the first only."""


class FreeWorker:
    """Costs nothing; every token is 0."""

    def __init__(self, num_pages: int) -> None:
        layout = page_layout.PageLayout(page_layout.KVShape(1, 1, 8), 16, "float32")
        self.facts = interface.WorkerFacts(
            kind="free",
            device="none",
            dtype="float32",
            layout=layout,
            num_pages=num_pages,
            max_context_tokens=8192,
            memory_bytes={},
        )

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        count = plan.num_samples
        return step_plan.StepResult(plan.step, (0,) * count, (None,) * count, 0.0)

    def close(self) -> None:
        pass


def measure(num_running: int, num_waiting: int, prompt_tokens: int = 100, steps: int = 300) -> dict[str, float]:
    """Medians in milliseconds over `steps` steps of pure decoding, with so many others waiting for a place."""
    settings = config.SchedulerConfig(
        max_num_seqs=num_running, max_num_batched_tokens=8192, max_queued_requests=num_waiting + num_running
    )
    engine = core_engine.CoreEngine(
        settings,
        worker_thread.WorkerThread(lambda: FreeWorker(num_running * 1024)),
        max_context_tokens=8192,
        overlap=False,
    )
    prompt = list(range(prompt_tokens))
    engine.submit(
        [
            messages.EngineRequest(str(index), prompt, sampling.SamplingParams(max_tokens=4000))
            for index in range(num_running + num_waiting)
        ]
    )
    while engine.stats().requests_running < num_running or engine.stats().step_prompt_tokens:
        engine.step()
    schedule, update = [], []
    for _ in range(steps):
        engine.step()
        stats = engine.stats()
        schedule.append(stats.schedule_seconds * 1e3)
        update.append(stats.update_seconds * 1e3)
    engine.close()
    return {
        "running": num_running,
        "waiting": num_waiting,
        "prompt_tokens": prompt_tokens,
        "schedule_ms": statistics.median(schedule),
        "update_ms": statistics.median(update),
        "together_ms": statistics.median(a + b for a, b in zip(schedule, update, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [measure(*shape) for shape in SHAPES]
    if arguments.json:
        print(json.dumps({"machine": machine.describe(), "rows": rows}))
        return
    print(
        "# What the engine itself costs in a step\n\nCommand: `python benchmarks/scheduling.py`. The worker is free, "
        "so all of this is ours. Correctness of the same code: tests/unit/engine.\n\n"
        f"Machine: {machine.describe()}\n\n"
        "| running | waiting | prompt tokens | schedule ms | update ms | together ms |\n|---|---|---|---|---|---|"
    )
    for row in rows:
        print(
            f"| {row['running']} | {row['waiting']} | {row['prompt_tokens']} "
            f"| {row['schedule_ms']:.3f} | {row['update_ms']:.3f} "
            f"| {row['together_ms']:.3f} |"
        )


if __name__ == "__main__":
    main()
