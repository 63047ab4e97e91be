"""Bearer keys from a file, read again when it changes. Only hashes are kept, and nothing of a key is ever logged."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Callable
from pathlib import Path

from tidemark_runtime import errors
from tidemark_runtime.server import watched_files

_log = logging.getLogger(__name__)

_COMMENT = re.compile(r"(^|\s)#.*")
"""Only at the start or after a space: a key with `#` inside stays whole, instead of opening with its first part."""


class KeyFile:
    """The keys that open the API, or the tokens that open /admin. A file that goes bad later leaves the last good ones
    in force."""

    def __init__(self, path: Path, clock: Callable[[], float], setting: str = "server.apiKeysFile") -> None:
        """Raises `ConfigError`, naming `setting`, when the file cannot be read or holds no key."""
        self._path = path
        self._setting = setting
        self.problem: str | None = None
        """What is wrong with the file now, for `/status`; None when it is fine."""
        self._digests: tuple[bytes, ...] = ()
        try:
            self._file = watched_files.WatchedFiles((path,), clock, self._take, self._failed)
        except (OSError, ValueError) as error:
            raise errors.ConfigError([self._problem(error)]) from error

    def allows(self, key: str) -> bool:
        """True for a key of the file. Takes the same time wherever the difference is."""
        self.refresh()
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        return found

    def refresh(self) -> None:
        """Look at the file now if it was not looked at lately; `/status` calls it so that `problem` is fresh."""
        self._file.refresh()

    def _take(self) -> None:
        first = not self._digests
        self._digests = _read(self._path)
        self.problem = None
        if not first:
            _log.info("key file read path=%s num_keys=%d", self._path, len(self._digests))

    def _failed(self, error: OSError | ValueError) -> None:
        problem = f"{self._problem(error)} The keys read before stay in force."
        if problem != self.problem:
            reason = watched_files.reason(error)
            _log.error("key file unusable, last good keys stay path=%s reason=%s", self._path, reason)
        self.problem = problem

    def _problem(self, error: Exception) -> errors.Problem:
        reason = watched_files.reason(error)
        remedy = f"It cannot be used: {reason}. Put one key on each line and let this user read the file."
        return errors.Problem(self._setting, str(self._path), "a readable file with at least one key", remedy)


def _read(path: Path) -> tuple[bytes, ...]:
    """SHA-256 of each key. Raises `OSError`, `ValueError` without any key or when it is not text."""
    # With utf-8-sig, the mark that Windows editors put first does not become part of the first key.
    lines = (_COMMENT.sub("", line).strip() for line in path.read_text(encoding="utf-8-sig").splitlines())
    digests = tuple(hashlib.sha256(line.encode()).digest() for line in lines if line)
    if not digests:
        raise ValueError("it holds no key")
    return digests
