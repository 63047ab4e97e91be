"""Bearer keys from a file, read again when it changes. Only hashes are kept, and nothing of a key is ever logged.

What a line may say is in `key_lines`.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable
from pathlib import Path

from tidemark_runtime import errors
from tidemark_runtime.server import key_lines, watched_files

_log = logging.getLogger(__name__)


class KeyFile:
    """The keys that open the API, or the tokens that open /admin. A file that goes bad later leaves the last good ones
    in force."""

    def __init__(
        self, path: Path, clock: Callable[[], float], setting: str = "server.apiKeysFile", *, attributes: bool = True
    ) -> None:
        """Raises `ConfigError`, naming `setting`, when the file cannot be read, holds no key, or has a wrong line.
        `attributes`: whether lines may say more than a key."""
        self._path = path
        self._setting = setting
        self._attributes = attributes
        self.problem: str | None = None
        """What is wrong with the file now, for `/status`; None when it is fine."""
        self._keys: tuple[key_lines.Key, ...] = ()
        try:
            self._file = watched_files.WatchedFiles((path,), clock, self._take, self._failed)
        except (OSError, ValueError) as error:
            raise errors.ConfigError([self._problem(error)]) from error

    def find(self, key: str) -> key_lines.Key | None:
        """What the file says of a key; None for one that it does not hold. Takes the same time wherever the difference
        is."""
        self.refresh()
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = None
        for known in self._keys:
            if hmac.compare_digest(digest, known.digest):
                found = known
        return found

    def allows(self, key: str) -> bool:
        """True for a key of the file."""
        return self.find(key) is not None

    @property
    def names(self) -> frozenset[str]:
        """Of the keys that have one."""
        return frozenset(key.name for key in self._keys if key.name)

    @property
    def ends(self) -> dict[str, float]:
        """Of the keys that end: their name, or `sha256:` and the beginning of it, and the Unix time."""
        return {key.tenant: key.ends_at for key in self._keys if key.ends_at is not None}

    def refresh(self) -> None:
        """Look at the file now if it was not looked at lately; `/status` calls it so that `problem` is fresh."""
        self._file.refresh()

    def _take(self) -> None:
        first = not self._keys
        # With utf-8-sig, the mark that Windows editors put first does not become part of the first key.
        self._keys = key_lines.parse(self._path.read_text(encoding="utf-8-sig"), attributes=self._attributes)
        self.problem = None
        if not first:
            _log.info("key file read path=%s num_keys=%d", self._path, len(self._keys))

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
