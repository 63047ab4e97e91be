"""A real HTTP server over a scripted engine under pressure, for a browser: `python console_server.py PORT`.

It starts in a second, so that a test can kill it and start it again.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import uvicorn

from tidemark_runtime import config
from tidemark_runtime.engine import messages
from tidemark_runtime.server import app as server_app

_FAKES = Path(__file__).parents[1] / "unit" / "server" / "fake_engine.py"
NUM_LISTED = 200
NUM_SEQUENCES = 230
PAGES = 900
STATS = messages.EngineStats(
    steps=1234,
    requests_running=30,
    requests_waiting=NUM_SEQUENCES - 30,
    requests_waiting_slow=20,
    oldest_wait_seconds=42.0,
    pages_total=PAGES,
    pages_used=700,
    pages_cached=120,
    pages_swapped=33,
    swap_pages_total=200,
    above_queue_line=True,
    above_preempt_line=True,
    seconds_above_queue_line_total=340.0,
    seconds_above_preempt_line_total=12.5,
    step_tokens=300,
    step_sequences=30,
    execute_seconds=0.25,
    preemptions_total=12,
    preemptions_swap_total=5,
    prefix_hit_tokens_total=300,
    prefix_missed_tokens_total=700,
)


def main() -> None:
    fakes = _fakes()
    engine = fakes.FakeEngine()
    engine.ready = fakes.ready(num_pages=PAGES)
    engine.stats = STATS
    engine.listed = _listed()
    settings = config.EngineConfig(
        model=config.ModelConfig(source="/models/tiny.gguf", name="scripted"),
        scheduler=config.SchedulerConfig(max_queued_requests=999),
    )
    app = server_app.create_app(engine, fakes.ByteText(), settings)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", ws="none")


def _listed() -> messages.SequenceList:
    states = list(messages.SequenceState)
    sequences = [
        messages.SequenceFacts(
            id=f"{index:08x}{'0' * 24}-0",
            state=states[index % len(states)],
            lane="slow" if index % 3 else "express",
            priority=index % 5 - 2,
            prompt_tokens=20 + 13 * index % 900,
            cached_tokens=16 * (index % 4),
            generated_tokens=index,
            most_tokens=512,
            pages=NUM_LISTED - index,
            swapped_pages=index % 4,
            preemptions=index % 2,
            age_seconds=float(index),
        )
        for index in range(NUM_LISTED)
    ]
    crossings = [
        messages.LineCrossing("preempt", 9.0, 9.0, False, 815),
        messages.LineCrossing("queue", 80.0, 71.0, True, 633),
    ]
    return messages.SequenceList(1, 1234, 30, NUM_SEQUENCES - 30, 700, 760, 33, sequences, crossings)


def _fakes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("console_fake_engine", _FAKES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
