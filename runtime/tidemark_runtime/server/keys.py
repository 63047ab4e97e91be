"""Bearer keys from a file, read again when it changes. Only hashes are kept, and nothing of a key is ever logged."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from tidemark_runtime import errors

_log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""A changed file is seen within this time; one `stat` a second costs nothing."""

_COMMENT = re.compile(r"(^|\s)#.*")
"""Only at the start or after a space: a key with `#` inside stays whole, instead of opening with its first part."""

Stamp = tuple[int, int, int]


class KeyFile:
    """The keys that open the API. A file that goes bad later leaves the last good keys in force."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Raises `ConfigError` when the file cannot be read or holds no key."""
        self._path = path
        self._clock = clock
        self.problem: str | None = None
        """What is wrong with the file now, for `/status`; None when it is fine."""
        try:
            self._stamp: Stamp | None = _stamp(path)
            self._digests = _read(path)
        except (OSError, ValueError) as error:
            raise errors.ConfigError([_problem(path, error)]) from error
        self._checked_at = clock()

    def allows(self, key: str) -> bool:
        """True for a key of the file. Takes the same time wherever the difference is."""
        self._refresh()
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        return found

    def refresh(self) -> None:
        """Look at the file now if it was not looked at lately; `/status` calls it so that `problem` is fresh."""
        self._refresh()

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp and self.problem is None:
                return
            self._digests = _read(self._path)
        except (OSError, ValueError) as error:
            problem = f"{_problem(self._path, error)} The keys read before stay in force."
            if problem != self.problem:
                _log.error("key file unusable, last good keys stay path=%s reason=%s", self._path, _reason(error))
            self.problem = problem
            return
        self._stamp, self.problem = stamp, None
        _log.info("key file read path=%s num_keys=%d", self._path, len(self._digests))


def _stamp(path: Path) -> Stamp:
    """Changes with every way to replace or edit a file, a Kubernetes Secret's swapped link included."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> tuple[bytes, ...]:
    """SHA-256 of each key. Raises `OSError`, `ValueError` without any key or when it is not text."""
    # With utf-8-sig, the mark that Windows editors put first does not become part of the first key.
    lines = (_COMMENT.sub("", line).strip() for line in path.read_text(encoding="utf-8-sig").splitlines())
    digests = tuple(hashlib.sha256(line.encode()).digest() for line in lines if line)
    if not digests:
        raise ValueError("it holds no key")
    return digests


def _reason(error: Exception) -> str:
    """Never the content: a decoding error would quote it."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def _problem(path: Path, error: Exception) -> errors.Problem:
    remedy = f"It cannot be used: {_reason(error)}. Put one key on each line and let this user read the file."
    return errors.Problem("server.apiKeysFile", str(path), "a readable file with at least one key", remedy)
