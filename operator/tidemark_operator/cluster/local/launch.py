"""Runs one container's command and sees to it that nothing of it outlives us. Executed as a script, by path.

    python -I -S launch.py LOG MAX_LOG_BYTES COMMAND [ARGUMENT...]

The command gets a session and process group of its own, as a container has its own processes. Its output goes to LOG,
which starts over at MAX_LOG_BYTES with one older file beside it. SIGTERM is handed on to the command alone, as a
container runtime does. Standard input is the rein: when its other end closes, because `tidemark up` wants it or because
`tidemark up` was killed with -9, the whole group is killed. When the command ends, what it left behind in its
group is killed as well. The exit code is the command's, or 128 + the signal that ended it.

The command's pid is written to standard output, one line.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal a process gets when its parent dies."""
NOT_STARTED = 127
"""As a shell says it."""
_REIN = 0
_CHUNK = 65_536
_LAST_CHUNKS = 16
"""A full pipe's worth and more: what is read once the command has ended, whoever may still hold the other end."""


class BoundedLog:
    """A file that starts over when it is full; the full one is kept as `<name>.1`."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append. A full disk loses output; the command goes on."""
        with contextlib.suppress(OSError):
            if self._file.tell() + len(data) > self._max_bytes:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                full, self._file = self._file, self._path.open("ab", buffering=0)
                full.close()
            self._file.write(data)


def main(argv: Sequence[str]) -> int:
    log = BoundedLog(Path(argv[1]), int(argv[2]))
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    try:
        child = subprocess.Popen(
            argv[3:],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with(os.getpid()),  # safe: this process has one thread
        )
    except OSError as error:
        log.write(f"cannot start {argv[3]}: {error.strerror}\n".encode())
        return NOT_STARTED
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    code = _watch(child, log, wake_read)
    return 128 - code if code < 0 else code


def die_with(parent: int, number: int = signal.SIGKILL) -> Callable[[], None]:
    """For the child, between fork and exec: get signal `number` when `parent` dies."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the line above
            os._exit(NOT_STARTED)

    return arrange


def _watch(child: subprocess.Popen[bytes], log: BoundedLog, wake_read: int) -> int:
    """Until the child has ended: output to the log, SIGTERM to the child, end of the rein to the group."""
    output = child.stdout
    if output is None:
        raise RuntimeError("the child was started without a pipe")
    os.set_blocking(output.fileno(), False)
    with selectors.DefaultSelector() as selector:
        for source in (output.fileno(), wake_read, _REIN):
            selector.register(source, selectors.EVENT_READ)
        while child.poll() is None:
            for key, _ in selector.select():
                if key.fd == output.fileno():
                    # Once a round: a command that never stops writing must not keep us from its signals and the rein.
                    if not _pump(output.fileno(), log):
                        selector.unregister(key.fd)
                elif key.fd == wake_read:
                    if signal.SIGTERM in os.read(wake_read, _CHUNK):
                        child.send_signal(signal.SIGTERM)
                elif not os.read(_REIN, _CHUNK):
                    selector.unregister(_REIN)
                    _kill_group(child.pid)
    _kill_group(child.pid)
    for _ in range(_LAST_CHUNKS):
        if not _pump(output.fileno(), log):
            break
    return child.returncode


def _pump(source: int, log: BoundedLog) -> bool:
    """Move at most a chunk of what is there to the log. False: no more will come."""
    try:
        data = os.read(source, _CHUNK)
    except BlockingIOError:
        return True
    log.write(data)
    return bool(data)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
