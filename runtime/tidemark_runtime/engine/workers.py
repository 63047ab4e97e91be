"""Which worker an engine has: the processor's, or a device's. Only the one that runs is imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tidemark_runtime import config
from tidemark_runtime.engine import device_threads, worker_thread
from tidemark_runtime.model import sources
from tidemark_runtime.model import weights as model_weights
from tidemark_runtime.worker import interface

_OF_DEVICES = "tidemark_runtime.worker.device_loading"
"""Imports Triton, which a processor has no use for."""


def start(
    settings: config.EngineConfig,
    source: sources.ModelSource,
    progress: model_weights.Progress,
    on_processor: Callable[[model_weights.Progress], interface.Worker],
) -> worker_thread.Steps:
    """`settings` with `hardware.device` resolved. Raises what making the worker raises."""
    if settings.hardware.device == "cpu":
        return worker_thread.WorkerThread(lambda: on_processor(progress))
    create = importlib.import_module(_OF_DEVICES).create
    return device_threads.DeviceThreads(lambda: create(settings, source, progress))
