"""Under pressure, those who agreed to it get less first: fewer tokens for each request, or fewer requests at a time.

The rules are the setting `overload.degrade`. Pressure is what the engine said after its last step, so a rule holds a
step later than the line is crossed; how many of a rule's requests are here is counted on this side, and exact.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemark_runtime import config as config_
from tidemark_runtime import errors
from tidemark_runtime.engine import messages
from tidemark_runtime.server import presence, standing, wanted

RETRY_SECONDS = 10.0
"""When to come back after a refusal: a line that is crossed stays so for some answers' time, which is not known."""

BACKLOG_SHARE = 0.5
"""Of what may wait: a backlog is noticed while there is still as much room as is taken."""

CODE = "degraded"


@dataclass(frozen=True, slots=True)
class Degraded:
    """What is left of a request, and what its answer says of it."""

    asked: wanted.Wanted
    note: str | None
    """For the header; None: it got all it asked for."""


class TooMany(errors.Overloaded):
    """The rule's requests that are here are as many as it lets in."""

    code = CODE

    def __init__(self, message: str, note: str) -> None:
        super().__init__(message, retry_after_seconds=RETRY_SECONDS, code=CODE)
        self.note = note


def apply(
    asked: wanted.Wanted,
    who: standing.Standing,
    present: presence.Presence,
    stats: messages.EngineStats,
    config: config_.EngineConfig,
) -> Degraded:
    """What a request that arrives now gets. Raises `TooMany`."""
    rules = list(_holding(who, stats, config))
    for position, rule in rules:
        if rule.max_requests is None:
            continue
        num_present = present.num_of(functools.partial(_is_about, rule))
        if num_present >= rule.max_requests:
            raise TooMany(
                f"Under pressure ({rule.at}) at most {rule.max_requests} requests of this kind may be here, and "
                f"{num_present} are (overload.degrade[{position}]). Try again later.",
                _note(f"max_requests={rule.max_requests}", position, rule),
            )
    limits = [(rule.max_tokens, position, rule) for position, rule in rules if rule.max_tokens is not None]
    if not limits:
        return Degraded(asked, None)
    most, position, rule = min(limits, key=lambda limit: limit[:2])
    if all(params.max_tokens <= most for params in asked.params):
        return Degraded(asked, None)
    params = tuple(replace(each, max_tokens=min(each.max_tokens, most)) for each in asked.params)
    return Degraded(replace(asked, params=params), _note(f"max_tokens={most}", position, rule))


def _holding(
    who: standing.Standing, stats: messages.EngineStats, config: config_.EngineConfig
) -> Iterator[tuple[int, config_.DegradeRule]]:
    """The rules that are about this request and hold now, with their positions."""
    for position, rule in enumerate(config.overload.degrade):
        if _is_about(rule, who.key_name, who.priority) and _holds(rule.at, stats, config.scheduler):
            yield position, rule


def _is_about(rule: config_.DegradeRule, key_name: str, priority: int) -> bool:
    return (not rule.keys or key_name in rule.keys) and (rule.max_priority is None or priority <= rule.max_priority)


def _holds(at: str, stats: messages.EngineStats, settings: config_.SchedulerConfig) -> bool:
    match at:
        case "queue":
            return stats.above_queue_line
        case "preempt":
            return stats.above_preempt_line
        case "backlog":
            return stats.requests_waiting > 0 and (
                stats.requests_waiting >= BACKLOG_SHARE * settings.max_queued_requests
                or stats.oldest_wait_seconds >= BACKLOG_SHARE * settings.max_queue_seconds
            )
    raise ValueError(f"a degrade rule at {at!r}: parsing lets only queue, preempt and backlog through")


def _note(what: str, position: int, rule: config_.DegradeRule) -> str:
    return f"{what}; rule=overload.degrade[{position}]; at={rule.at}"
