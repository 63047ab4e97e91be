"""What several folders of tests need: the real model, a real server with it, and a core for each worker."""

from __future__ import annotations

import logging
import os
import random
import sys

# Before anything imports a Triton kernel: what is decorated then runs under the interpreter, in this process and in the
# engines it starts. Kernels are compiled for devices in processes without this variable, or with 0 (`tests/gpu`).
os.environ.setdefault("TRITON_INTERPRET", "1")

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import live
import pytest
from xdist.scheduler import LoadScopeScheduling

from tidemark_runtime import model_store

MODEL = "smollm2-135m"
MAX_WORKERS = 4
"""Each may hold 2 GB with its engines. More would end little sooner: the fault drill alone takes most of a minute."""
TOGETHER = ("tests/integration/model/", "tests/integration/server/test_real_", "tests/unit/kernels/")
"""What their paths begin with -> files that share a session's fixture that is dear to make: the real model in
transformers, a server with it, kernels compiled in a second way."""

# How fast an example is made or runs says nothing where other workers and engines compute on the same cores. The same
# examples in every run: what fails here fails everywhere. `--hypothesis-profile=explore` draws others.
_ALL: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("explore", **_ALL, derandomize=False)
hypothesis.settings.register_profile("shared cores", **_ALL, derandomize=True)
hypothesis.settings.load_profile("shared cores")


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one worker a core that this process may use."""
    return min(MAX_WORKERS, len(os.sched_getaffinity(0)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


class ByFile(LoadScopeScheduling):
    """The tests of a file go to one worker, in the order of their paths: those that take long come first."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((beginning for beginning in TOGETHER if file.startswith(beginning)), file)


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


@pytest.fixture(autouse=True)
def _same_start() -> None:
    """What a test draws and what is logged is the same whatever ran before it in its worker: commands that ran in this
    process have set the level of all logs. Nobody imports torch for this."""
    logging.getLogger().setLevel(logging.WARNING)
    random.seed(7)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(7)


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
