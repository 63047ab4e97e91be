"""Errors for scripts: with `--output json` one JSON object on standard error instead of sentences.

    {"error": {"message": "...", "problems": [{"path", "seen", "expected", "remedy", "line"}]}}

`problems` is empty where the error is not about single values. Standard library only: every verb may need it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def wanted(arguments: Sequence[str]) -> bool:
    """Whether a verb's arguments ask for JSON. Read off the words, because a wrong option must be told in JSON, too."""
    chosen = ""
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        if word in ("-o", "--output"):
            chosen = next(words, "")
        elif word.startswith("--output="):
            chosen = word.partition("=")[2]
        elif word.startswith("-o"):
            chosen = word.removeprefix("-o")
    return chosen == "json"


def text(error: BaseException | str) -> str:
    """The object, with a line break at its end."""
    problems = [_problem(problem) for problem in getattr(error, "problems", ())]
    return json.dumps({"error": {"message": str(error), "problems": problems}}, ensure_ascii=False) + "\n"


def _problem(problem: Any) -> dict[str, Any]:
    """Of a manifest, which has a path and may have a line, or of a setting, which has a key."""
    return {
        "path": getattr(problem, "path", None) or getattr(problem, "key", None),
        "seen": _plain(problem.seen),
        "expected": problem.expected,
        "remedy": problem.remedy,
        "line": getattr(problem, "line", None),
    }


def _plain(value: object) -> object:
    """As JSON has it: what it cannot say (a date, not-a-number, a key that is no text) becomes text."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value
