"""A run's result: as JSON, against limits, and beside another run. No torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_runtime import config_parsing, errors
from tidemark_runtime.evaluation import figures

RESULT_FILE = "result.json"
FORMAT = "tidemark.eval/1"
_KEYED_BY_DATA = frozenset({"map", "about"})


@dataclass(frozen=True, slots=True)
class Result:
    """What `tidemark eval MODEL` found."""

    about: Mapping[str, Any]
    """Everything that the figures depend on: model, text, plan, machine."""
    base_dtype: str
    """Of K and V of the unquantized model."""
    base_kv_token_bytes: float
    configurations: tuple[figures.Figures, ...]
    base_weights_bytes: int = 0
    """In memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a configuration may cost. None: no limit."""

    max_kl: float | None = None
    """Nats, of the mean KL on the text."""
    max_perplexity_rise: float | None = None
    """Ratio: 0.01 is one per cent."""


def over(result: Result, limits: Limits) -> list[str]:
    """One sentence for each limit that a configuration breaks. With a map, K and V without it are only beside.
    A figure that is no number, as broken arithmetic makes it, is within no limit."""
    with_map = any(entry.map is not None for entry in result.configurations)
    found = []
    for entry in result.configurations:
        if with_map and entry.map is None and entry.weights is None:
            continue
        if entry.text is None:
            continue
        if limits.max_kl is not None and not entry.text.mean_kl <= limits.max_kl:
            found.append(f"{entry.name}: mean KL {entry.text.mean_kl:.3g} is over --max-kl {limits.max_kl:g}")
        rise, most = entry.text.perplexity_rise, limits.max_perplexity_rise
        if most is not None and not rise <= most:
            found.append(f"{entry.name}: perplexity rises by {rise:.3%}, over --max-perplexity-rise {most:.3%}")
    return found


def to_mapping(result: Result) -> dict[str, Any]:
    """camelCase keys; `format` says what it is."""
    return {"format": FORMAT, **_plain(result)}


def to_json(mapping: Mapping[str, Any]) -> str:
    return json.dumps(mapping, indent=2, ensure_ascii=False)


def read(path: Path) -> dict[str, Any]:
    """The result of another run, or its folder. Raises ConfigError where the file is no result."""
    file = path / RESULT_FILE if path.is_dir() else path
    wrong = f"a {RESULT_FILE} that `tidemark eval` wrote, or its folder"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        problem = errors.Problem("--compare", str(path), wrong, f"It says: {error}")
        raise errors.ConfigError([problem]) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise errors.ConfigError([errors.Problem("--compare", str(path), wrong)])
    return found


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in two runs."""

    configuration: str
    figure: str
    before: float
    now: float


def compare(now: Mapping[str, Any], before: Mapping[str, Any]) -> tuple[list[Change], list[str]]:
    """Figures of the configurations that both have, and how the two runs differ in what they measured."""
    differences = [
        f"{key}: {before['about'].get(key)!r} before, {value!r} now"
        for key, value in now["about"].items()
        if before["about"].get(key) != value
    ]
    others = {entry["name"]: entry for entry in before["configurations"]}
    names = [entry["name"] for entry in now["configurations"]]
    if set(names) != set(others):
        differences.append(f"configurations: {', '.join(others)} before, {', '.join(names)} now")
    changes = [
        Change(entry["name"], name, others[entry["name"]][part][figure], entry[part][figure])
        for entry in now["configurations"]
        if entry["name"] in others
        for part, figure, name in _COMPARED
        if entry.get(part) and others[entry["name"]].get(part)
    ]
    return changes, differences


_COMPARED = (
    ("text", "meanKl", "mean KL"),
    ("text", "maxKl", "most KL"),
    ("text", "perplexity", "perplexity"),
    ("text", "perplexityRise", "perplexity rise"),
    ("text", "argmaxAgreement", "same next token"),
    ("greedy", "sameTokens", "same continuation"),
    ("retrieval", "right", "retrieval"),
    ("retrieval", "same", "retrieval as unquantized"),
    ("extraction", "right", "extraction"),
    ("extraction", "same", "extraction as unquantized"),
)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dict(_fields(value))
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    for item in dataclasses.fields(value):
        inner = getattr(value, item.name)
        yield config_parsing.camel(item.name), inner if item.name in _KEYED_BY_DATA else _plain(inner)
