"""Measurements of a run, kept line by line as they come, so that a stopped run goes on instead of beginning anew.

A run has a folder of its own, named by what it measures: the fingerprint of model, text, settings and our own version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark_runtime import errors

ITEMS_FILE = "measurements.jsonl"
_FINGERPRINT_DIGITS = 10


def fingerprint(facts: Mapping[str, Any]) -> str:
    """The same facts, the same few hexadecimal digits."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


class Journal:
    """Key -> plain data, in a file of JSON lines."""

    def __init__(self, folder: Path, *, resume: bool) -> None:
        """`resume`: keep what is there. Raises ConfigError where the folder cannot be written."""
        self.folder = folder
        self._file = folder / ITEMS_FILE
        self._known: dict[str, Any] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if resume and self._file.exists():
                self._known = _whole_lines(self._file)
            # Written anew: the last line of a run that was killed may be half a line.
            lines = [_line(key, value) for key, value in self._known.items()]
            self._file.write_text("".join(lines), encoding="utf-8")
        except OSError as error:
            remedy = f"It says: {error.strerror or error}"
            problem = errors.Problem("--results", str(folder), "a folder that can be written", remedy)
            raise errors.ConfigError([problem]) from error

    def known(self, key: str) -> Any:
        """What was measured, or None."""
        return self._known.get(key)

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        self._known[key] = value
        with self._file.open("a", encoding="utf-8") as file:
            file.write(_line(key, value))


def _line(key: str, value: Any) -> str:
    return json.dumps({"key": key, "value": value}, ensure_ascii=False) + "\n"


def _whole_lines(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            found[entry["key"]] = entry["value"]
        except (json.JSONDecodeError, KeyError, TypeError):
            continue  # half a line
    return found
