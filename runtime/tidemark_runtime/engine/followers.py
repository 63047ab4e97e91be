"""The processes of a model's other ranks: started and watched by the engine process, which is the first rank.

Each is a process of its own, because torch computes on one device a process best, and because a rank that breaks
should say so and not take the others' last words with it. The kernel ends them when the engine process ends, whatever
the reason (`parent_death`); when one of them ends, the engine ends too, with a message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.engine import device_threads
from tidemark_runtime.model import parallel as model_parallel
from tidemark_runtime.model import sources, weights
from tidemark_runtime.worker import (
    accelerators,
    cpu,
    device_ranks,
    interface,
    parallel,
    process_group,
    rank_links,
    ranks,
    torch_worker,
)

_logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "tidemark_runtime.engine.follower_process")
"""Of another rank's process."""
OF_DEVICES = "tidemark_runtime.worker.device_loading"
"""Imports Triton, which a processor has no use for."""
_END_SECONDS = 5.0
"""After the last message, until a rank is killed."""


class Launch(msgspec.Struct, frozen=True):
    """What the process of another rank is told when it starts, on standard input."""

    folder: str
    """Private, of this engine; sockets and files of the ranks lie in it."""
    rank: int
    size: int
    parent_pid: int
    settings: dict[str, dict[str, Any]]
    """Of one rank (`ranks.settings_of`), as `config_parsing.to_mapping` writes it, but for its device."""
    device: str
    """`hardware.device`, resolved. Not among the settings: no configuration can name the interpreter."""
    source_kind: sources.Kind
    source_path: str
    source_name: str


class Followers:
    """All ranks but the first; none where one device computes alone, and then this costs nothing."""

    def __init__(self, settings: config.EngineConfig, source: sources.ModelSource, folder: Path) -> None:
        """Starts them; they load while the first rank does. `settings` with `hardware.device` resolved; `folder`:
        private, not there yet, of nobody else. Raises ConfigError where there are fewer devices than ranks.
        """
        self._source = source
        self._folder = folder
        self._size = settings.hardware.tensor_parallel
        self._processes: list[subprocess.Popen[bytes]] = []
        self._link: rank_links.FirstLink | None = None
        self._settings = settings
        if self._size > 1:
            memory_bytes: int | None = None
            if settings.hardware.device == "cpu":
                _logger.warning("%d processes share this processor, which is slower than one: for tests", self._size)
                memory_bytes = settings.hardware.memory or cpu.memory_limit().num_bytes
            else:
                accelerators.check_count(settings.hardware.device, self._size, ranks.KEY)
            folder.mkdir(mode=0o700)
            self._settings = ranks.settings_of(settings, self._size, memory_bytes, cpu.usable_cores())
            self._link = rank_links.FirstLink(folder, self._size, self.check)
            self._processes = [self._started(rank) for rank in range(1, self._size)]

    def create(self, progress: weights.Progress) -> interface.Worker:
        """The worker of a processor, of all ranks. On the thread on which it will run. Raises as
        `torch_worker.create`."""
        if self._link is None:
            return torch_worker.create(self._settings, self._source, progress)
        start = parallel.Start(self._settings, self._source, torch_worker.load)
        return parallel.create(start, progress, self._group, self._link)

    def create_on_devices(self, progress: weights.Progress) -> device_threads.LaunchingWorker:
        """The worker of a device, of all ranks. On the thread that will launch. Raises as `device_loading.create`."""
        loading = importlib.import_module(OF_DEVICES)
        if self._link is None:
            made: device_threads.LaunchingWorker = loading.create(self._settings, self._source, progress)
            return made
        return device_ranks.create(self._settings, self._source, progress, loading.load_rank, self._group, self._link)

    @property
    def _group(self) -> parallel.Meeting:
        """The first rank's own."""
        shard = model_parallel.Shard(0, self._size)
        return process_group.of_device(self._settings.hardware.device, shard, self._folder)

    def check(self) -> None:
        """Raises RankLost where one of them has ended. From any thread."""
        for rank, process in enumerate(self._processes, start=1):
            code = process.poll()
            if code is not None:
                raise errors.RankLost(f"rank {rank} of {self._size}, which has a part of the model, {_ended(code)}")

    def close(self) -> None:
        """After the worker was closed: they have been told, and are waited for, or killed."""
        for process in self._processes:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._link is not None:
            self._link.close()

    def _started(self, rank: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE)
        launch = Launch(
            folder=str(self._folder),
            rank=rank,
            size=self._size,
            parent_pid=os.getpid(),
            settings=config_parsing.to_mapping(_with_device(self._settings, config.AUTO)),
            device=self._settings.hardware.device,
            source_kind=self._source.kind,
            source_path=str(self._source.path),
            source_name=self._source.name,
        )
        assert process.stdin is not None  # noqa: S101  asked for above
        with contextlib.suppress(BrokenPipeError), process.stdin as told:  # broken: it has ended, and `check` says so
            told.write(msgspec.json.encode(launch))
        return process


def settings_of(launch: Launch) -> config.EngineConfig:
    """What a rank is told, as settings again. Raises ConfigError for what cannot be parsed."""
    return _with_device(config_parsing.parse(launch.settings), launch.device)


def _with_device(settings: config.EngineConfig, device: str) -> config.EngineConfig:
    return dataclasses.replace(settings, hardware=dataclasses.replace(settings.hardware, device=device))


def _ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL): most often the system or the container ran out of memory"
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
