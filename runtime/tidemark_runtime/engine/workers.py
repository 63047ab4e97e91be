"""Which worker an engine has: the processor's, or a device's. Only the one that runs is imported."""

from __future__ import annotations

from tidemark_runtime import config
from tidemark_runtime.engine import device_threads, followers, worker_thread
from tidemark_runtime.model import weights as model_weights


def start(
    settings: config.EngineConfig, progress: model_weights.Progress, others: followers.Followers
) -> worker_thread.Steps:
    """`settings` with `hardware.device` resolved; `others`: the ranks beside this process.

    Raises what making the worker raises.
    """
    if settings.hardware.device == "cpu":
        return worker_thread.WorkerThread(lambda: others.create(progress))
    return device_threads.DeviceThreads(lambda: others.create_on_devices(progress))
