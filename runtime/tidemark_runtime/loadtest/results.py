"""A whole load test as plain data: for JSON, for tables, for the page, and for limits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tidemark_runtime.loadtest import figures, knee
from tidemark_runtime.simulation import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What was measured, and how."""

    url: str
    model: str
    server_version: str
    """Of ours; empty: another server."""
    endpoint: str
    workload: str
    seed: int
    prompts: str
    """How they were made as long as wanted."""
    notes: tuple[str, ...]
    """What a reader must know to trust the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    about: About
    levels: tuple[figures.LevelFigures, ...]
    knee: knee.Knee | None
    """None: one level has no knee."""
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """None: not asked for."""

    max_ttft_p95: float | None = None
    min_tokens_per_second: float | None = None
    """Output tokens."""
    min_identical: float | None = None
    """Share of the checked answers of each level."""


def over(result: Result, limits: Limits) -> list[str]:
    """Sentences about limits that are broken. Speed and wait hold where one level keeps both: which load that is, is
    for the test to find; answers must be the same at every level."""
    sentences = []
    kept = [level for level in result.levels if _keeps(level, limits)]
    if not kept and (limits.max_ttft_p95 is not None or limits.min_tokens_per_second is not None):
        sentences.append(_no_level(result, limits))
    for level in result.levels:
        share = level.check.identical_share if level.check is not None else None
        if limits.min_identical is not None and (share is None or share < limits.min_identical):
            seen = "no checked request was answered" if share is None else f"{share:.0%} of the answers are identical"
            sentences.append(f"{level.name}: {seen}, --min-identical asks for {limits.min_identical:.0%}")
    return sentences


def no_answer(result: Result) -> str:
    """A sentence where not one request was served; empty else."""
    if any(level.total.served for level in result.levels):
        return ""
    outcomes = sorted({name for level in result.levels for name in level.total.outcomes})
    return f"not one request was served. They ended as: {', '.join(outcomes) or 'none ended'}"


def _keeps(level: figures.LevelFigures, limits: Limits) -> bool:
    wait, speed = level.total.time_to_first_token, level.output_tokens_per_second
    if not wait.num:
        return False
    in_time = limits.max_ttft_p95 is None or wait.p95 <= limits.max_ttft_p95
    return in_time and (limits.min_tokens_per_second is None or speed >= limits.min_tokens_per_second)


def _no_level(result: Result, limits: Limits) -> str:
    asked = []
    if limits.min_tokens_per_second is not None:
        asked.append(f"at least {limits.min_tokens_per_second:g} output tokens/s")
    if limits.max_ttft_p95 is not None:
        asked.append(f"first tokens within {limits.max_ttft_p95:g} s (p95)")
    seen = [
        f"{level.name}: {level.output_tokens_per_second:,.1f} tokens/s, {level.total.time_to_first_token.p95:.3f} s"
        for level in result.levels
    ]
    return f"no level has {' and '.join(asked)}. Measured: {'; '.join(seen) or 'nothing'}"


def to_mapping(result: Result, broken: list[str]) -> dict[str, Any]:
    """camelCase keys; `broken`: what `over` said."""
    found: dict[str, Any] = plain.plain(result)
    return {**found, "over": broken}


def to_json(result: Result, broken: list[str]) -> str:
    return json.dumps(to_mapping(result, broken), indent=2)
