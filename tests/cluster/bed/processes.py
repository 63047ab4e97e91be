"""Starting, recognising and killing the bed's processes.

A process is named by its pid and its start time, so that a number which the kernel gave to somebody else meanwhile is
never taken for ours. What runs in containers is found by its network namespace: whoever is inside one of the bed's
namespaces belongs to the bed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bed import errors

PROC = Path("/proc")
GONE_SECONDS = 20.0
"""A killed process that is still there after so long is stuck in the kernel."""


@dataclass(frozen=True)
class Process:
    pid: int
    start_ticks: int
    """Since the machine's start: field 22 of /proc/PID/stat."""

    @property
    def is_alive(self) -> bool:
        return _start_ticks(self.pid) == self.start_ticks


def this_process() -> Process:
    ticks = _start_ticks(os.getpid())
    assert ticks is not None
    return Process(os.getpid(), ticks)


def is_running(pid: int) -> bool:
    """Not gone, and not only waiting for its parent to take notice."""
    return _start_ticks(pid) is not None


def start(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Starts a process in a session of its own, so that Ctrl-C and the end of the caller leave it alone."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    child.returncode = 0  # we wait for it by pid, and it may outlive us: no warning when the object goes
    ticks = _start_ticks(child.pid)
    if ticks is None:
        raise errors.StartFailed(f"{command[0]} ended at once: {tail(log)}")
    return Process(child.pid, ticks)


def stop(process: Process, number: signal.Signals, seconds: float = GONE_SECONDS) -> bool:
    """Sends a signal and waits; whether the process is gone."""
    if process.is_alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
    return eventually(lambda: not process.is_alive, seconds)


def kill_inside(namespaces: Callable[[], set[int]]) -> None:
    """Kills whoever is in these network namespaces (inodes), again and again until nobody is left.

    Raises `BedError` when somebody survives.
    """
    left: list[int] = []

    def is_empty() -> bool:
        left[:] = _inside(namespaces())
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    if not eventually(is_empty, GONE_SECONDS):
        raise errors.BedError(f"processes of the bed cannot be killed: {left}")


def eventually(condition: Callable[[], bool], seconds: float, pause: float = 0.05) -> bool:
    """Asks until it is true, at most so long; whether it became true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def tail(log: Path, lines: int = 8) -> str:
    """Last lines of a log file, for messages."""
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _inside(namespaces: set[int]) -> list[int]:
    own = _ancestors()
    return [pid for pid in _pids() if pid not in own and _network_namespace(pid) in namespaces]


def _pids() -> Iterable[int]:
    return (int(entry) for entry in os.listdir(PROC) if entry.isdigit())


def _ancestors() -> set[int]:
    """This process and those above it: `down` may be run from a shell inside the bed."""
    found, pid = set(), os.getpid()
    while pid > 1:
        found.add(pid)
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    return found


def _network_namespace(pid: int) -> int | None:
    try:
        # A zombie has no namespace any more, so it is not counted.
        return (PROC / str(pid) / "ns/net").stat().st_ino
    except OSError:
        return None


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the name, which may hold spaces: state, parent, ..."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _start_ticks(pid: int) -> int | None:
    """None for a process that is gone, or only waits to be reaped."""
    fields = _stat(pid)
    if fields is None or (fields[0] == "Z" and _is_reaped(pid)):
        return None
    return int(fields[19])


def _is_reaped(pid: int) -> bool:
    """For one whose first thread has ended: whether the others have too. Ours are reaped here."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        pass
    try:
        return len(os.listdir(PROC / str(pid) / "task")) <= 1
    except OSError:
        return True
