"""A file with settings of KV memory, made by `tidemark eval`: plain, or as the ConfigMap that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.contract import documents


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose file, for messages, and where in a ConfigMap's data it is."""

    setting: str
    """The setting or option that names the file."""
    readable: str
    """What it should be."""
    config_map_key: str


def content(path: Path, wanted: Wanted) -> bytes:
    """Raises `ConfigError` naming the setting and the file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise _wrong(wanted, str(path), f"It says: {error}") from error


def mapping(content: bytes, wanted: Wanted, path: str) -> Mapping[str, Any]:
    """What the file holds. Raises `ConfigError` naming the setting and the file, and each key that stands twice."""
    try:
        found = documents.read_yaml(content.decode("utf-8"), wanted.setting, path, wanted.readable)
        if isinstance(found, Mapping) and found.get("kind") == "ConfigMap":
            data = found.get("data")
            text = data.get(wanted.config_map_key) if isinstance(data, Mapping) else None
            if not isinstance(text, str):
                raise _wrong(wanted, path, f"It is a ConfigMap without a text at data.{wanted.config_map_key}.")
            found = documents.read_yaml(text, wanted.setting, path, wanted.readable)
    except UnicodeDecodeError as error:
        raise _wrong(wanted, path, f"It is not UTF-8 text (byte {error.start}).") from error
    if not isinstance(found, Mapping):
        raise _wrong(wanted, path, "It holds no mapping.")
    return found


def _wrong(wanted: Wanted, path: str, remedy: str) -> errors.ConfigError:
    return errors.ConfigError([errors.Problem(wanted.setting, path, wanted.readable, remedy)])
