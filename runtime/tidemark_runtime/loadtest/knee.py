"""The knee: from which load on more users bring hardly more tokens, or too long a wait; and what to set for it.

The rule, in rising order of load: a level is *fine* when first tokens come within the target (p95) and at least 99 % of
its requests were served. It *gains* when it brings at least `gain` more output tokens a second than the last level that
gained. The knee is the highest level that is fine and gains; the first level that is not fine ends the search, since
more load makes it no better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_runtime.loadtest import figures, levels

FIELD = "scheduler.maxConcurrencySoft"
SERVED_SHARE = 0.99
LEVELS_WITHOUT_GAIN = 2
"""After so many in a row a ramp ends."""


@dataclass(frozen=True, slots=True)
class Rule:
    target_seconds: float
    """First tokens (p95)."""
    gain: float
    """0.1: 10 % more tokens a second."""

    @property
    def words(self) -> str:
        return (
            f"the highest level that still brings at least {self.gain:.0%} more output tokens/s than the last one that "
            f"did, while first tokens (p95) come within {self.target_seconds:g} s and {SERVED_SHARE:.0%} of the "
            "requests are served"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """What was found."""

    rule: str
    level: str | None
    """Name of the level; None: not even the lowest is fine."""
    amount: float | None
    is_reached: bool
    """False: the highest level is still fine and gains; the knee lies above."""
    reasons: tuple[str, ...]
    """Of each level, in words."""
    field: str = FIELD
    value: int | None = None
    """Proposed; None: nothing is."""
    takes_effect: str = "hot"
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """One level, by the rule."""

    figures: figures.LevelFigures
    is_fine: bool
    gains: bool
    words: str


def judge(rule: Rule, found: Sequence[figures.LevelFigures]) -> list[Judged]:
    """Rising levels, up to the first that is not fine."""
    judged: list[Judged] = []
    best = 0.0
    for level in found:
        problem = _problem(rule, level)
        speed = level.output_tokens_per_second
        if problem:
            judged.append(Judged(level, False, False, f"{level.name}: {problem}"))
            break
        gains = speed > 0 and speed >= best * (1 + rule.gain)
        words = "the first" if not judged else f"{speed / best - 1:+.1%} tokens/s" if best else "the first tokens"
        judged.append(Judged(level, True, gains, f"{level.name}: {words}" + ("" if gains else ", too little")))
        best = speed if gains else best
    return judged


def is_past(rule: Rule, found: Sequence[figures.LevelFigures]) -> bool:
    """A ramp need not go on."""
    judged = judge(rule, found)
    if judged and not judged[-1].is_fine:
        return True
    last = judged[-LEVELS_WITHOUT_GAIN:]
    return len(last) == LEVELS_WITHOUT_GAIN and not any(level.gains for level in last)


def find(rule: Rule, found: Sequence[figures.LevelFigures]) -> Knee:
    """Of levels in rising order; interrupted ones must not be among them."""
    judged = judge(rule, found)
    reasons = tuple(entry.words for entry in judged)
    fitting = [entry.figures for entry in judged if entry.is_fine and entry.gains]
    if not fitting:
        advice = _none_fits(judged)
        return Knee(rule=rule.words, level=None, amount=None, is_reached=True, reasons=reasons, advice=advice)
    level = fitting[-1]
    is_reached = level is not found[-1]
    value = _concurrency(level)
    return Knee(
        rule=rule.words,
        level=level.name,
        amount=level.amount,
        is_reached=is_reached,
        reasons=reasons,
        value=value if is_reached else None,
        advice=_advice(level, value, is_reached, judged[-1].is_fine),
    )


def _problem(rule: Rule, level: figures.LevelFigures) -> str:
    """Why a level is not fine; empty: it is."""
    if not level.total.requests:
        return "no request was answered"
    if 1.0 - level.failed_share < SERVED_SHARE:
        return f"{level.failed_share:.1%} of the requests were not served"
    wait = level.total.time_to_first_token.p95
    return f"first tokens take {wait:.2f} s (p95)" if wait > rule.target_seconds else ""


def _concurrency(level: figures.LevelFigures) -> int:
    """How many requests the server has at once at this level: users without a pause, else the mean that was seen. Not
    more than ever ran at once: the others waited in its queue, and a limit above that would change nothing."""
    users = level.kind == levels.Kind.USERS
    value = level.amount if users else level.mean_concurrency
    peak = level.server.running_peak if level.server is not None else None
    return max(1, math.ceil(value - 1e-9) if not peak else min(math.ceil(value - 1e-9), peak))


def _advice(level: figures.LevelFigures, value: int, is_reached: bool, next_is_fine: bool) -> str:
    """`next_is_fine`: what ends the rise is speed, not the wait or failures."""
    if not is_reached:
        return f"{level.name} is the highest level and still gains: the knee lies above. Go on with more load."
    setting = f"Set {FIELD}: {value} (hot: no restart)."
    if next_is_fine:
        return (
            f"{setting} More requests than that bring no speed and slow each other down; they then wait in the queue "
            "instead."
        )
    return (
        f"{setting} So many are served as asked for. Whoever comes above that waits in the queue, so for more users in "
        "time it takes shorter prompts, a faster device, or another replica."
    )


def _none_fits(judged: Sequence[Judged]) -> str:
    if not judged:
        return "No level was measured."
    return "Not even the lowest level is fine: try fewer users, shorter prompts, or a longer --target-ttft-p95."
