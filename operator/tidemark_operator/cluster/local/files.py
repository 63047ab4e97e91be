"""What lies in the state folder, and who holds it.

$TIDEMARK_STATE  or  $XDG_STATE_HOME/tidemark  or  ~/.local/state/tidemark
  NAME/
    lock           held by the `tidemark up` that runs NAME; its pid is inside
    control.sock   what `tidemark apply` and `tidemark status` talk to
    operator.log   what `tidemark up` itself logs
    pods/POD/      files of each pod; gone with it
    logs/POD.log   output of each pod; stays until the next `tidemark up` of the name
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tidemark_operator import errors

MAX_SOCKET_PATH_BYTES = 107
"""unix(7): sun_path holds 108 bytes with the final zero."""


class AlreadyRuns(errors.OperatorError):
    """Another `tidemark up` holds the name."""


class StateFolderError(errors.OperatorError):
    """The state folder cannot be used; the message says why."""


def root(environment: Mapping[str, str] = os.environ) -> Path:
    """The state folder, made by nobody yet."""
    if explicit := environment.get("TIDEMARK_STATE"):
        return Path(explicit).absolute()
    if base := environment.get("XDG_STATE_HOME"):
        return Path(base).absolute() / "tidemark"
    return Path(environment.get("HOME") or Path.home()) / ".local" / "state" / "tidemark"


class ServiceFolder:
    """The folder of one service. `acquire` before anything is written."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.path = root / name
        self._lock: IO[str] | None = None

    @property
    def socket(self) -> Path:
        return self.path / "control.sock"

    @property
    def pods(self) -> Path:
        return self.path / "pods"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def acquire(self) -> None:
        """Take the name, and clear what a killed predecessor left. Raises `AlreadyRuns` or `StateFolderError`."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a+")
        except OSError as error:
            raise StateFolderError(
                f"cannot write to {self.path}: {error.strerror}. Set TIDEMARK_STATE to a folder you may write to"
            ) from error
        if len(os.fsencode(self.socket)) > MAX_SOCKET_PATH_BYTES:
            lock.close()
            raise StateFolderError(
                f"the path {self.socket} has {len(os.fsencode(self.socket))} bytes, a socket's path may have "
                f"{MAX_SOCKET_PATH_BYTES}. Set TIDEMARK_STATE to a shorter folder"
            )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise AlreadyRuns(
                f"{self.name!r} is already run by `tidemark up`, process {self.holder()}. Change it with "
                f"`tidemark apply FILE`, look at it with `tidemark status {self.name}`, or stop that process first"
            ) from error
        try:
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), f"{os.getpid()}\n".encode())
        except OSError as error:
            lock.close()
            raise StateFolderError(
                f"cannot write to {self.path}: {error.strerror}. Free some space, or set TIDEMARK_STATE"
            ) from error
        self._lock = lock
        self.socket.unlink(missing_ok=True)
        for old in (self.pods, self.logs):
            shutil.rmtree(old, ignore_errors=True)

    def release(self) -> None:
        """Give the name back and remove what was written for it. Logs stay, for whoever wonders why it ended, and the
        lock file, because removing it would race."""
        if self._lock is not None:
            self.socket.unlink(missing_ok=True)
            shutil.rmtree(self.pods, ignore_errors=True)
            self._lock.close()
            self._lock = None

    def holder(self) -> int | None:
        """Pid of the `tidemark up` that runs the name, as it wrote it; None when nobody does."""
        try:
            with (self.path / "lock").open() as lock:
                if self._lock is None and _lockable(lock):
                    return None
                text = lock.read().strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else None


def log_of(logs: Path, pod: str) -> Path:
    """Output of a pod."""
    return logs / f"{pod}.log"


def running(root: Path) -> list[str]:
    """Names that a `tidemark up` runs now."""
    if not root.is_dir():
        return []
    return sorted(entry.name for entry in root.iterdir() if ServiceFolder(root, entry.name).holder() is not None)


def _lockable(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
