"""What several folders of tests need: the real model, a real server with it, and a core for each worker."""

from __future__ import annotations

import os

# Before anything imports a Triton kernel: what is decorated then runs under the interpreter, in this process and in the
# engines it starts. Kernels are compiled for devices in processes without this variable, or with 0 (`tests/gpu`).
os.environ.setdefault("TRITON_INTERPRET", "1")

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import hypothesis
import live
import pytest
from xdist.scheduler import LoadScopeScheduling

from tidemark_runtime import model_store

MODEL = "smollm2-135m"
MAX_WORKERS = 4
"""More would not end sooner: the largest folder takes a quarter of the time. Each may hold 2 GB with its engines."""
SHARING = ("tests/integration", "tests/unit/kernels")
"""Servers with the real model, the same model in transformers, kernels compiled in a second way."""

# How fast an example is made or runs says nothing where other workers and engines compute on the same cores.
hypothesis.settings.register_profile(
    "shared cores", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared cores")


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one worker a core that this process may use."""
    return min(MAX_WORKERS, len(os.sched_getaffinity(0)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder:
    return ByFolder(config, log)


class ByFolder(LoadScopeScheduling):
    """A folder whose tests share what is dear to make goes to one worker; elsewhere a file does."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        return str(file.parent if any(file.is_relative_to(folder) for folder in SHARING) else file)


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker a core of its own, and with it the engines it starts.

    Threads of two engines on the same cores wait for each other at every operation: seconds become minutes. An engine
    takes as many threads as it may use cores, which is then one.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of the small real model; fetched once into the usual store."""
    return model_store.fetch(MODEL)


@pytest.fixture(scope="session")
def live_server(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.Server]:
    """The real server with the real engine and the real model, for tests that leave it as it is."""
    with live.serving(tmp_path_factory.mktemp("serve"), str(smollm2_path), "--served-name", MODEL) as server:
        yield server


@pytest.fixture(scope="session")
def base_url(live_server: live.Server) -> str:
    return live_server.url
