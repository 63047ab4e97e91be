"""The operator's own key: from it every service's admin token is derived, so none has to be stored or read back."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from tidemark_operator import errors

MIN_BYTES = 16
_NEW_BYTES = 32


def load(path: Path | None, home: Path, in_pod: bool) -> bytes:
    """The key in `path`; without a path, outside a cluster, the one below `home`, made at the first time.

    Raises `errors.ManifestFileError` when there is none or it is too short.
    """
    if path is not None:
        return _read(path)
    if in_pod:
        raise errors.ManifestFileError(f"--key-file: got nothing, expected a file with a key. {_remedy('FILE')}")
    path = home / ".config" / "tidemark" / "operator.key"
    if not path.exists():
        _make(path)
    return _read(path)


def token(key: bytes, uid: str) -> str:
    """What `/admin` of the engines of the service with this uid asks for."""
    return hmac.new(key, uid.encode(), hashlib.sha256).hexdigest()


def _read(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError as error:
        raise errors.ManifestFileError(f"--key-file: cannot read {path}: {error.strerror}. {_remedy(path)}") from error
    if len(key) < MIN_BYTES:
        raise errors.ManifestFileError(
            f"--key-file: {path} holds {len(key)} bytes, expected at least {MIN_BYTES} random ones. {_remedy(path)}"
        )
    return key


def _make(path: Path) -> None:
    """Only this user may read it, from the first moment on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise errors.ManifestFileError(
            f"cannot make a key at {path}: {error.strerror}. Give --key-file FILE"
        ) from error
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(_NEW_BYTES))


def _remedy(path: Path | str) -> str:
    return f"Make one with: head -c {_NEW_BYTES} /dev/urandom > {path}. Every operator of a cluster needs the same"
