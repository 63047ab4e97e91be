"""A real `tidemark serve` process for a test: started, waited for, ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

START_SECONDS = 180.0
"""A cold build of the kernels included, on a busy machine."""


CERTIFICATES = False
"""For `verify=`: httpx reads the system's certificates for each client, 40 ms of a core the engine needs too."""


@dataclass(frozen=True)
class Server:
    url: str
    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def status(self) -> dict[str, object]:
        return dict(httpx.get(f"{self.url}/status", timeout=10, verify=CERTIFICATES).json())

    def wait_logged(self, words: str, seconds: float = 60.0) -> None:
        """A request's line is written after its answer. Raises with the log when it does not come."""
        end = time.monotonic() + seconds
        while words not in self.log:
            if time.monotonic() > end:
                raise RuntimeError(f"not logged within {seconds} s: {words!r}\n{self.log}")
            time.sleep(0.02)

    def terminate(self, seconds: float = 30.0) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


def free_port() -> int:
    """One that this process keeps to its end for the server that it starts: bound and not listening, so that whoever
    looks for a port finds it taken, and a server, which sets SO_REUSEADDR, gets it. Below those that Linux hands out
    itself."""
    while True:
        keeper = socket.socket()
        port = 20_000 + secrets.randbelow(12_000)  # whatever a test seeded
        try:
            keeper.bind(("127.0.0.1", port))
        except OSError:
            keeper.close()
        else:
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: it is ours alone
            keeper.detach()
            return port


def start(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Server:
    """`tidemark serve ARGUMENTS --port FREE`; returns at once."""
    port = free_port()
    log_file = folder / f"serve-{port}.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemark_operator", "serve", *arguments, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1", **(environment or {})},
        )
    return Server(f"http://127.0.0.1:{port}", process, log_file)


def wait_ready(server: Server) -> None:
    """Until the server takes requests. Raises with its log when it ends or takes too long."""
    end = time.monotonic() + START_SECONDS
    with httpx.Client(base_url=server.url, timeout=5, verify=CERTIFICATES) as client:
        while time.monotonic() < end:
            if server.process.poll() is not None:
                raise RuntimeError(f"serve ended with {server.process.returncode}:\n{server.log}")
            with contextlib.suppress(httpx.TransportError):
                if client.get("/health/ready").status_code == 200:
                    return
            time.sleep(0.1)
    raise RuntimeError(f"serve was not ready after {START_SECONDS} s:\n{server.log}")


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    server = start(folder, *arguments, environment=environment)
    try:
        wait_ready(server)
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()
