"""Starting and stopping the process that stands for a container."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tidemark_operator.cluster.local import launch


class Process(Protocol):
    """A started command."""

    @property
    def pid(self) -> int | None:
        """Of the command itself; None when it could not be started."""
        ...

    async def wait(self) -> int:
        """The exit code; 128 + n after signal n. May be called again."""
        ...

    def terminate(self) -> None:
        """Ask it to end: SIGTERM to the command."""
        ...

    def kill(self) -> None:
        """End it and everything it started."""
        ...


class Launcher(Protocol):
    """Starts commands. The only way this package makes processes, so tests can stand in for it."""

    async def start(self, command: Sequence[str], env: Mapping[str, str], folder: Path, log: Path) -> Process:
        """Run `command` in `folder` with exactly `env`; its output goes to `log`."""
        ...


class SystemLauncher:
    """Processes of this machine, each under a `launch` script that ends it when we end."""

    def __init__(self, log_bytes: int) -> None:
        self._log_bytes = log_bytes

    async def start(self, command: Sequence[str], env: Mapping[str, str], folder: Path, log: Path) -> Process:
        guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", launch.__file__, str(log), str(self._log_bytes)),
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env=dict(env),
            start_new_session=True,
        )
        if guard.stdout is None:
            raise RuntimeError("the launcher was started without a pipe")
        line = await guard.stdout.readline()
        return SystemProcess(guard, int(line) if line.strip().isdigit() else None)


class SystemProcess:
    """A command under its `launch` script."""

    def __init__(self, guard: asyncio.subprocess.Process, pid: int | None) -> None:
        self._guard = guard
        self._pid = pid

    @property
    def pid(self) -> int | None:
        return self._pid

    async def wait(self) -> int:
        code = await self._guard.wait()
        self._close_rein()
        if code < 0:  # the launch script itself was killed; the command dies with it, what it started need not
            self._kill_group()
            return 128 - code
        return code

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._guard.terminate()

    def kill(self) -> None:
        self._close_rein()

    def _close_rein(self) -> None:
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    def _kill_group(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
