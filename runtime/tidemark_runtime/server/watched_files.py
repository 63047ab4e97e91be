"""Files that may be replaced while we run: noticed within a second, and the last good content stays in force."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

CHECK_SECONDS = 1.0
"""A changed file is seen within this time; one `stat` a second costs nothing."""

Stamp = tuple[int, int, int]


class WatchedFiles:
    """Some files that are read together. `read` takes them over, or raises and leaves what was there."""

    def __init__(
        self,
        paths: Sequence[Path],
        clock: Callable[[], float],
        read: Callable[[], None],
        failed: Callable[[OSError | ValueError], None],
    ) -> None:
        """Reads at once; raises what `read` raises, `OSError` or `ValueError`. Later `failed` is told instead."""
        self._paths = paths
        self._clock = clock
        self._read = read
        self._failed = failed
        self._stamps = self._look()
        self._read()
        self._good = True
        self._checked_at = clock()

    def refresh(self) -> None:
        """Look if nobody has looked lately; read again when something differs, and again and again while it is bad."""
        now = self._clock()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        try:
            stamps = self._look()
            if stamps != self._stamps or not self._good:
                self._read()
                self._stamps, self._good = stamps, True
        except (OSError, ValueError) as error:
            self._good = False
            self._failed(error)

    def _look(self) -> tuple[Stamp, ...]:
        return tuple(stamp(path) for path in self._paths)


def stamp(path: Path) -> Stamp:
    """Changes with every way to replace or edit a file, a Kubernetes Secret's swapped link included."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def reason(error: Exception) -> str:
    """Never the content: a decoding error would quote it."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
