"""A `tidemark up` in a process of its own, and what is needed to look at it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemark_operator.cluster.local import control_client

PROGRAM = Path(__file__).with_name("run_tidemark.py")
PATIENCE_SECONDS = 120
"""For machines that are slow or busy; nothing here takes more than a few seconds."""


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Workplace:
    """A state folder, a manifest, and the commands on them. Everything started here is ended at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "s"
        self.file = folder / "m.yaml"
        self.model = folder / "model"
        self.model.mkdir()
        self.environment = {**os.environ, "TIDEMARK_STATE": str(self.state), "COLUMNS": "200"}
        self.ups: list[subprocess.Popen[bytes]] = []

    def write(self, name: str = "base", **spec: Any) -> None:
        """The manifest; JSON is YAML."""
        document = {
            "apiVersion": "tidemark.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name},
            "spec": {
                "model": {"name": "quick", "source": {"hostPath": {"path": str(self.model)}}},
                "hardware": {"resourceName": "cpu", "count": 1, "memory": "1Gi"},
                "scheduler": {"maxNumSeqs": 16},
                "rollout": {"drainSeconds": 1},
                **spec,
            },
        }
        self.file.write_text(json.dumps(document))

    def up(self, *options: str) -> subprocess.Popen[bytes]:
        """Start `tidemark up`; its output goes to `output`."""
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), "up", str(self.file), *options],
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.ups.append(process)
        return process

    def tidemark(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another verb to its end."""
        return subprocess.run(
            [sys.executable, str(PROGRAM), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def overview(self) -> dict[str, Any]:
        try:
            return control_client.overview("base", self.state)
        except control_client.NotRunning:
            return {"ready": False, "pods": [], "generation": None}

    def until(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first overview for which `what` holds."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.overview()
            if what(found):
                return found
            assert time.monotonic() < end, f"{found}\n{self.output}"
            time.sleep(0.05)

    def ask(self, path: str = "/") -> dict[str, Any]:
        """What the engine behind the service's URL answers."""
        with urllib.request.urlopen(f"{self.overview()['url']}{path}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def end_all(self) -> None:
        for process in self.ups:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE_SECONDS)
                if process.poll() is None:
                    process.kill()
                    process.wait()


@pytest.fixture
def workplace() -> Iterator[Workplace]:
    with tempfile.TemporaryDirectory(prefix="tm") as folder:  # short: a socket's path may have 107 bytes
        made = Workplace(Path(folder))
        made.write()
        try:
            yield made
        finally:
            made.end_all()


@pytest.fixture(scope="module")
def running() -> Iterator[Workplace]:
    """A service that is Ready, for tests that leave it so."""
    with tempfile.TemporaryDirectory(prefix="tm") as folder:
        made = Workplace(Path(folder))
        made.write()
        try:
            made.up("--port", "0")
            made.until(lambda found: bool(found["ready"]))
            yield made
        finally:
            made.end_all()


@pytest.fixture
def gone() -> Callable[..., None]:
    """Asserts that processes end soon."""

    def check(*pids: int) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while left := [pid for pid in pids if alive(pid)]:
            assert time.monotonic() < end, f"still running: {left}"
            time.sleep(0.02)

    return check
