"""How a document of settings is read, YAML or JSON, from a file or over HTTP: a key that stands twice is refused.

Readers of both silently keep the last of two equal keys; whoever wrote the first would believe that it is in force.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tidemark_runtime import errors
from tidemark_runtime.contract import yaml_words

_MERGE = "<<"
"""YAML's key that takes over another mapping; it may stand more than once."""


def read_file(path: Path, key: str, expected: str) -> dict[Any, Any]:
    """The mapping in a YAML or JSON file; empty where the file is.

    Raises `ConfigError`, naming `key` and `expected` where there is no mapping, and each key that stands twice.
    """
    seen = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(key, seen, expected, error) from error
    found = read_yaml(text, key, seen, expected)
    if found is not None and not isinstance(found, dict):
        raise errors.ConfigError([errors.Problem(key, seen, expected, "It holds no mapping.")])
    return found or {}


def read_yaml(text: str, key: str, seen: object, expected: str) -> Any:
    """What the one document in `text` says. `key`, `seen` and `expected` are for the message when it is no YAML.

    Raises `ConfigError`, for all keys that stand twice at once, with their lines.
    """
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            twice = list(_twice_in_yaml(node))
            found = None if twice else loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unreadable(key, seen, expected, yaml_words.sentence(error, text)) from error
    if twice:
        raise errors.ConfigError(twice)
    return found


def check_json(body: bytes) -> None:
    """Raises `ConfigError` for all keys that stand twice; `body` is known to be valid JSON."""
    twice = list(_twice_in_json("", json.loads(body, object_pairs_hook=_Pairs)))
    if twice:
        raise errors.ConfigError(twice)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its keys."""


def _twice_in_json(owner: str, value: Any) -> Iterator[errors.Problem]:
    if isinstance(value, _Pairs):
        known: set[str] = set()
        for key, item in value:
            full = _within(owner, key)
            if key in known:
                yield _problem(full, "two of it")
            known.add(key)
            yield from _twice_in_json(full, item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _twice_in_json(f"{owner}[{position}]", item)


def _twice_in_yaml(root: yaml.Node) -> Iterator[errors.Problem]:
    """Each node once, also where aliases lead to it again."""
    visited: set[int] = set()
    waiting = collections.deque([("", root)])
    while waiting:
        owner, node = waiting.popleft()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(f"{owner}[{position}]", item) for position, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                name, line = str(key.value), key.start_mark.line + 1
                full = _within(owner, name)
                waiting.append((full, value))
                if isinstance(key, yaml.ScalarNode) and name != _MERGE and name in lines:
                    yield _problem(full, f"two of it, on lines {lines[name]} and {line}")
                lines[name] = line


def _within(owner: str, key: str) -> str:
    return f"{owner}.{key}" if owner else key


def _problem(key: str, seen: str) -> errors.Problem:
    return errors.Problem(key, errors.Seen(seen), "each key once", "Remove one of them.")


def _unreadable(key: str, seen: object, expected: str, error: object) -> errors.ConfigError:
    return errors.ConfigError([errors.Problem(key, seen, expected, f"It says: {error}")])
