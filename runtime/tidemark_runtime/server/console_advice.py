"""What is not as it should be with this engine, for who looks at the console. The page has the words. Pure.

A line that is crossed while nobody waits harms nobody, as the operator's condition `MemoryPressure` has it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_runtime.contract import reasons, status
from tidemark_runtime.contract.console import Advice, AdviceCode, Severity

PLAN_EXCESS_RATIO = 0.1
"""The plan is right within a few percent; the alert `TidemarkMemoryPlanExceeded` has the same limit."""
LONG_WAIT_RATIO = 0.5
"""Of the longest wait allowed: after as much again, requests are refused."""
TIGHTER_RATIO = 0.75
"""Of those that run: the soft limit to set while running ones lose their pages, as the runbook has it."""

_ORDER = (Severity.BAD, Severity.WARN, Severity.NOTE)
_OF_STATE = {
    status.EngineState.FAILED: (AdviceCode.FAILED, Severity.BAD),
    status.EngineState.STALLED: (AdviceCode.STALLED, Severity.BAD),
    status.EngineState.LOADING: (AdviceCode.LOADING, Severity.NOTE),
    status.EngineState.DRAINING: (AdviceCode.DRAINING, Severity.NOTE),
}
_OF_REASON = {
    reasons.Reason.KEYS_UNREADABLE: AdviceCode.KEYS_UNREADABLE,
    reasons.Reason.TLS_UNREADABLE: AdviceCode.TLS_UNREADABLE,
    reasons.Reason.KERNEL_PATH: AdviceCode.KERNEL_PATH,
}


def of(now: status.EngineStatus, *, max_queue_seconds: float, knows_all_keys: bool) -> list[Advice]:
    """The most severe first. `knows_all_keys`: the key file has every key that degrade rules name."""
    found = [*_state(now, knows_all_keys), *_pressure(now, max_queue_seconds), *_kernels(now), *_memory(now)]
    return sorted(found, key=lambda item: _ORDER.index(item.severity))


def _state(now: status.EngineStatus, knows_all_keys: bool) -> Iterator[Advice]:
    if now.state is not status.EngineState.READY:
        code, severity = _OF_STATE[now.state]
        yield Advice(code, severity, text=now.message)
    elif now.reason in _OF_REASON and now.reason != reasons.Reason.KERNEL_PATH:
        yield Advice(_OF_REASON[reasons.Reason(now.reason)], Severity.WARN, text=now.message)
    elif not knows_all_keys:
        yield Advice(AdviceCode.UNKNOWN_KEYS, Severity.WARN, text=now.message)


def _pressure(now: status.EngineStatus, max_queue_seconds: float) -> Iterator[Advice]:
    queue, crossed = now.queue, {name for name, line in now.lines.items() if line.above}
    numbers = {"running": float(queue.running), "waiting": float(queue.waiting)}
    if "preempt" in crossed:
        tighter = max(1, int(TIGHTER_RATIO * queue.running))
        severity = Severity.BAD if queue.waiting else Severity.WARN
        yield Advice(AdviceCode.PREEMPT_LINE, severity, {**numbers, "tighter": float(tighter)})
    elif "queue" in crossed and queue.waiting:
        yield Advice(AdviceCode.QUEUE_LINE, Severity.WARN, numbers)
    if queue.oldest_wait_seconds > LONG_WAIT_RATIO * max_queue_seconds:
        seconds = {"seconds": queue.oldest_wait_seconds, "limit": max_queue_seconds}
        yield Advice(AdviceCode.LONG_WAIT, Severity.WARN, seconds)


def _kernels(now: status.EngineStatus) -> Iterator[Advice]:
    unplanned = [each for each in now.kernel_paths if not each.is_planned]
    if unplanned:
        text = now.message if now.reason == reasons.Reason.KERNEL_PATH else ""
        yield Advice(AdviceCode.KERNEL_PATH, Severity.WARN, {"ops": float(len({each.op for each in unplanned}))}, text)


def _memory(now: status.EngineStatus) -> Iterator[Advice]:
    both = now.memory.planned_bytes.keys() & now.memory.parts_bytes.keys()
    planned = sum(now.memory.planned_bytes[part] for part in both)
    measured = sum(now.memory.parts_bytes[part] for part in both)
    if planned and measured > (1 + PLAN_EXCESS_RATIO) * planned:
        yield Advice(AdviceCode.MEMORY_PLAN, Severity.WARN, {"measured": float(measured), "planned": float(planned)})
