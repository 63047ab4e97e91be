"""The server's certificate: read again when its files change, so that new connections get the new one."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from tidemark_runtime import errors
from tidemark_runtime.server import certificate_times, watched_files

_log = logging.getLogger(__name__)


class Certificate:
    """A certificate and its key. A pair that goes bad later leaves the last good one in force.

    Each pair is loaded into a context of its own, and each handshake takes the latest that loaded wholly: loading into
    the context that listens would leave it with a new certificate and an old key when the second file is bad.
    """

    def __init__(self, cert_path: Path, key_path: Path, clock: Callable[[], float]) -> None:
        """Raises `ConfigError` when the two files cannot be read or do not belong together."""
        self._cert_path = cert_path
        self._key_path = key_path
        self.problem: str | None = None
        """What is wrong with the files now, for `/status`; None when they are fine."""
        self._latest: ssl.SSLContext | None = None
        self.ends_at = 0.0
        """Unix time at which the certificate in force, or the first of its chain, ends."""
        try:
            self._files = watched_files.WatchedFiles((cert_path, key_path), clock, self._take, self._failed)
        except (OSError, ValueError) as error:
            raise errors.ConfigError([self._problem(error)]) from error
        self.context = _load(cert_path, key_path)
        """For the listener; stays the same object."""
        self.context.sni_callback = self._choose

    def refresh(self) -> None:
        """Look at the files now if nobody has looked lately."""
        self._files.refresh()

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        # Called for every handshake, also where the client names no server.
        if self._latest is not None:
            connection.context = self._latest

    def _take(self) -> None:
        first = self._latest is None
        latest = _load(self._cert_path, self._key_path)
        self.ends_at = certificate_times.first_end(self._cert_path.read_text(encoding="utf-8", errors="replace"))
        self._latest = latest
        self.problem = None
        if not first:
            _log.info("certificate read path=%s", self._cert_path)

    def _failed(self, error: OSError | ValueError) -> None:
        problem = f"{self._problem(error)} The certificate read before stays in force."
        if problem != self.problem:
            reason = _reason(error)
            _log.error("certificate unusable, last good one stays path=%s reason=%s", self._cert_path, reason)
        self.problem = problem

    def _problem(self, error: Exception) -> errors.Problem:
        return errors.Problem(
            "server.tlsCertFile",
            str(self._cert_path),
            f"a PEM certificate whose private key is in server.tlsKeyFile, {str(self._key_path)!r}",
            f"They cannot be used: {_reason(error)}. Let this user read both files; the key must not be encrypted.",
        )


def _load(cert_path: Path, key_path: Path) -> ssl.SSLContext:
    """Raises `OSError` (`ssl.SSLError` is one)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A password is given, a wrong one, so that an encrypted key is an error instead of a question on the terminal.
    context.load_cert_chain(cert_path, key_path, password="")
    return context


def _reason(error: Exception) -> str:
    if not isinstance(error, ssl.SSLError):
        name = getattr(error, "filename", None)
        return f"{watched_files.reason(error)}{f' ({name})' if name else ''}"
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not this certificate's"
    return f"one of them holds no PEM, or an encrypted key ({error.reason or error.strerror})"
