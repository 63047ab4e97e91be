"""Ranks of one model on devices that are not there, as threads of a test: each op is plain torch, because Triton's
interpreter runs in one thread of a process at a time. Real sockets, real gloo, real workers."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark_runtime import config
from tidemark_runtime.engine import device_threads
from tidemark_runtime.model import parallel as model_parallel
from tidemark_runtime.model import sources
from tidemark_runtime.worker import (
    accelerators,
    device_follower,
    device_loading,
    device_ranks,
    device_selftest,
    device_worker,
    process_group,
    rank_links,
    ranks,
)

WAIT_SECONDS = 30.0
Spoil = Callable[[int, device_worker.DeviceWorker], None]
"""Rank and its worker, before the first step."""


class WithoutTriton(accelerators.Interpreter):
    kernels = "plain torch, so that threads may compute at once"


def install(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accelerators, "find", lambda _kind, _index=0: WithoutTriton())
    patch.setattr(device_selftest, "run", lambda subject: device_selftest.untested(subject.choices))


def on_device(settings: config.EngineConfig) -> config.EngineConfig:
    hardware = dataclasses.replace(settings.hardware, device=accelerators.INTERPRETER, strict_kernels=False)
    model = dataclasses.replace(settings.model, dtype="float32")
    return dataclasses.replace(settings, hardware=hardware, model=model)


class Team:
    """`size` ranks; `steps` is what an engine would be given."""

    def __init__(
        self,
        folder: Path,
        settings: config.EngineConfig,
        size: int,
        *,
        spoil: Spoil = lambda _rank, _worker: None,
    ) -> None:
        """`folder`: private, for sockets and files of the ranks."""
        folder.mkdir()
        self._source = sources.resolve(settings.model.source, folder)
        self._folder, self._size, self._spoil = folder, size, spoil
        self._settings = ranks.settings_of(settings, size, None, size)
        self.link = rank_links.FirstLink(folder, size, lambda: None)
        self._threads = concurrent.futures.ThreadPoolExecutor(size - 1, thread_name_prefix="rank")
        self.others = [self._threads.submit(self._follow, rank) for rank in range(1, size)]
        self.worker: device_ranks.DeviceRanks
        self.steps = device_threads.DeviceThreads(self._create)

    def let_go(self) -> None:
        """After the engine was closed, or has failed."""
        self.worker._listening.stop()
        self.link.close()
        self._threads.shutdown(wait=False)

    def _create(self) -> device_ranks.DeviceRanks:
        self.worker = device_ranks.create(
            self._settings, self._source, lambda *_: None, self._load, self._group(0), self.link
        )
        return self.worker

    def _group(self, rank: int) -> process_group.GlooGroup:
        return process_group.GlooGroup(model_parallel.Shard(rank, self._size), self._folder, WAIT_SECONDS)

    def _load(self, *given: Any) -> device_worker.DeviceWorker:
        made = device_loading.load_rank(*given)
        self._spoil(given[-1].shard.rank, made)
        return made

    def _follow(self, rank: int) -> None:
        link = rank_links.OtherLink(self._folder, rank)
        try:
            group = self._group(rank)
            device_follower.DeviceFollower(self._settings, self._source, self._load, group, link).run()
        finally:
            link.close()
