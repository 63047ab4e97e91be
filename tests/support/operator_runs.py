"""`tidemark operator` as a process of its own, against a cluster that tests have."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import live

Value = TypeVar("Value")

IMAGE = "localhost/tidemark-engine:test"
START_SECONDS = 240.0
"""On a machine that is busy with other tests; on an idle one it takes two."""

QUIET_SECONDS = 5.0

PATIENT = """
import asyncio, os, sys
from tidemark_operator import settings
from tidemark_operator.cluster.kubernetes import connection
from tidemark_operator.commands import operator_logging, operator_process

operator_logging.configure("text", "info")
image, namespace, listen = sys.argv[1:]
asyncio.run(operator_process.run(operator_process.Options(
    source=connection.Source(os.environ), key=bytes(32), image=image, namespaces=(namespace,),
    lease_namespace=namespace, listen=listen,
    lease=settings.LeaseSettings(duration_seconds=600, renew_seconds=5, deadline_seconds=500),
)))
"""
"""An operator that keeps its lease through an outage longer than the product's own ten seconds."""


class Operator:
    """One run. Its log is a file, so that nothing is lost when it ends."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self._port = port
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def probe(self, path: str) -> tuple[int, str]:
        """HTTP status and text; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def samples(self, name: str) -> dict[str, float]:
        """Labels as they are written, and the value, of every series of a metric. Waits for an answer: none is not no
        series."""
        lines = [line for line in self._scraped().splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        pairs = [line.rsplit(" ", 1) for line in lines]
        return {series.removeprefix(name): float(value) for series, value in pairs}

    def _scraped(self) -> str:
        def ask() -> str:
            code, text = self.probe("/metrics")
            return text if code == 200 else ""

        return self.until("its metrics", ask)

    @property
    def writes(self) -> dict[str, float]:
        """Requests that change something, the renewal of the lease left out."""
        return {
            series: value
            for series, value in self.samples("tidemark_operator_api_requests_total").items()
            if any(f'verb="{verb}"' in series for verb in ("create", "update", "patch", "delete"))
            and 'kind="Lease"' not in series
            and 'kind="SelfSubjectAccessReview"' not in series
        }

    def until(self, what: str, ask: Callable[[], Value | None], seconds: float = START_SECONDS) -> Value:
        """Ask until the answer is something true; with the operator's log when it never is."""
        end = time.monotonic() + seconds
        while not (answer := ask()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"not within {seconds:.0f} s: {what} (exit {self.process.poll()})\n{self.log}")
            time.sleep(0.1)
        return answer

    def leading(self) -> Operator:
        self.until("it leads", lambda: self.probe("/health/ready") == (200, "leading\n"))
        return self

    def waiting(self) -> Operator:
        self.until("it waits", lambda: "waiting:" in self.log)
        return self

    def settle(self, also: Callable[[], object] = lambda: None) -> None:
        """Until nothing was written for some seconds, and `also`, what it looks at, was the same all the while."""
        since, seen = time.monotonic(), (self.writes, also())

        def is_quiet() -> bool:
            nonlocal since, seen
            now = (self.writes, also())
            if now != seen:
                since, seen = time.monotonic(), now
            return time.monotonic() - since > QUIET_SECONDS

        self.until(f"{QUIET_SECONDS:.0f} seconds without a write", is_quiet)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextlib.contextmanager
def started(environment: Mapping[str, str], folder: Path, *arguments: str) -> Iterator[Operator]:
    """`tidemark operator` with these arguments."""
    key = folder / "operator.key"
    key.write_bytes(bytes(32))
    command = ["-m", "tidemark_operator", "operator", "--image", IMAGE, "--key-file", str(key), *arguments]
    with _running(environment, folder, lambda listen: [*command, "--listen", listen]) as operator:
        yield operator


@contextlib.contextmanager
def patient(environment: Mapping[str, str], folder: Path, namespace: str) -> Iterator[Operator]:
    """One that an outage of a minute does not end."""
    with _running(environment, folder, lambda listen: ["-c", PATIENT, IMAGE, namespace, listen]) as operator:
        yield operator


@contextlib.contextmanager
def _running(environment: Mapping[str, str], folder: Path, command: Callable[[str], list[str]]) -> Iterator[Operator]:
    port = live.free_port()
    log = folder / f"operator-{port}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *command(f"127.0.0.1:{port}")],
            env={**environment, "PYTHONUNBUFFERED": "1"},
            stdout=file,
            stderr=file,
            cwd=os.fspath(folder),
        )
        try:
            yield Operator(process, port, log)
        finally:
            process.kill()
            process.wait()
