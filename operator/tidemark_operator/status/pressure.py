"""Whether memory is short in a way that somebody feels: the condition `MemoryPressure`. Pure.

A line that is crossed while nobody waits harms nobody: pressure is the queue line with requests waiting behind it, or
the preempt line. An engine under load crosses a line many times a minute, so the condition is left only when no pass
has seen pressure for `HOLD_SECONDS`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator.status import conditions
from tidemark_runtime.contract.status import EngineState, EngineStatus

TYPE = "MemoryPressure"
HOLD_SECONDS = 60.0
_SERVING = (EngineState.READY, EngineState.DRAINING)


@dataclass(frozen=True, slots=True)
class Pressure:
    """What the engines say now."""

    reason: str
    """`AbovePreemptLine`, `AboveQueueLine`, `BelowLines`, or `NoAnswer`."""
    message: str
    running: int = 0
    """Requests that run in the engine with most of them."""

    @property
    def is_felt(self) -> bool:
        return self.reason in ("AbovePreemptLine", "AboveQueueLine")

    @property
    def is_preempting(self) -> bool:
        return self.reason == "AbovePreemptLine"


def of(engines: Mapping[str, EngineStatus | None]) -> Pressure:
    """The worst of all pods' pressure, each in a sentence with its numbers."""
    serving = {
        name: engine for name, engine in sorted(engines.items()) if engine is not None and engine.state in _SERVING
    }
    if not serving:
        return Pressure("NoAnswer", "No engine has answered yet.")
    running = max(engine.queue.running for engine in serving.values())
    preempting = [
        _sentence(name, engine, "preempt") for name, engine in serving.items() if _is_above(engine, "preempt")
    ]
    if preempting:
        return Pressure("AbovePreemptLine", " ".join(preempting), running)
    queueing = [
        _sentence(name, engine, "queue")
        for name, engine in serving.items()
        if _is_above(engine, "queue") and engine.queue.waiting
    ]
    if queueing:
        return Pressure("AboveQueueLine", " ".join(queueing), running)
    return Pressure("BelowLines", "No request waits for memory.", running)


def condition(
    now_seen: Pressure, previous: Mapping[str, Any], seconds_since_felt: float | None
) -> conditions.Condition:
    """`previous`: the condition of the last status; empty where there was none. `seconds_since_felt`: since a pass saw
    pressure; None where none did since this process began (then one that stands is given its full time)."""
    if now_seen.is_felt:
        return conditions.Condition(TYPE, "True", now_seen.reason, now_seen.message)
    if now_seen.reason == "NoAnswer":
        return conditions.Condition(TYPE, "Unknown", now_seen.reason, now_seen.message)
    if previous.get("status") == "True" and seconds_since_felt is not None and seconds_since_felt < HOLD_SECONDS:
        return conditions.Condition(TYPE, "True", str(previous["reason"]), str(previous["message"]))
    return conditions.Condition(TYPE, "False", now_seen.reason, now_seen.message)


def parsed_time(text: str) -> datetime.datetime:
    """A time as `conditions.timestamp` writes it."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _is_above(engine: EngineStatus, line: str) -> bool:
    found = engine.lines.get(line)
    return found is not None and found.above


def _sentence(name: str, engine: EngineStatus, line: str) -> str:
    memory, queue = engine.memory, engine.queue
    share = memory.pages_used / memory.pages_total if memory.pages_total else 0.0
    effect = (
        "no request starts while others run, and running ones may have to give their pages up"
        if line == "preempt"
        else "new requests wait until pages come free"
    )
    return (
        f"{name}: {memory.pages_used:,} of {memory.pages_total:,} pages in use ({share:.0%}), {line} line "
        f"{engine.lines[line].level:.0%}: {effect}; {queue.running} run, {queue.waiting} wait."
    )
