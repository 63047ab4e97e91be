"""The real engine on the processor, in this process, for benchmarks that compare with it or wear it out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tidemark_runtime import config, config_parsing, model_store
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.model import sources
from tidemark_runtime.worker import torch_worker

MODEL = "smollm2-135m"
VOCABULARY = 49_000
"""Token ids that the model has, rounded down."""


def settings_of(sections: Mapping[str, Mapping[str, Any]]) -> config.EngineConfig:
    """`sections` as in an engine's file, with the model."""
    return config_parsing.parse({**sections, "model": {"source": MODEL, **sections.get("model", {})}})


def start(settings: config.EngineConfig) -> core_engine.CoreEngine:
    """Load the model, which takes some seconds. `tidemark models fetch` has to have fetched it."""
    worker = worker_thread.WorkerThread(worker_maker(settings))
    return core_engine.CoreEngine(
        settings.scheduler,
        worker,
        max_context_tokens=worker.facts.max_context_tokens,
        prefix_caching=settings.kv_cache.prefix_caching,
    )


def worker_maker(settings: config.EngineConfig) -> Callable[[], torch_worker.TorchWorker]:
    """What loads the model, on the thread that is to run it."""
    source = sources.resolve(MODEL, model_store.default_store(os.environ))
    return lambda: torch_worker.create(settings, source, lambda phase, fraction: None)


def as_real(message: messages.EngineRequest, num_output_tokens: int) -> messages.EngineRequest:
    """A simulated client's request for a model that has a vocabulary and does not end where the simulated one would."""
    return messages.EngineRequest(
        message.id,
        [token % VOCABULARY for token in message.token_ids],
        sampling.SamplingParams(max_tokens=num_output_tokens, temperature=0.0, ignore_stop_tokens=True),
        deadline_seconds=message.deadline_seconds,
        priority=message.priority,
        tenant=message.tenant,
        is_retry=message.is_retry,
    )
