"""Where the time of a step goes, by op: one step in TIMED_EVERY is timed, and the others pay next to nothing."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_runtime.worker import selftest_host

TIMED_EVERY = 64
"""With steps of 20 ms one step in 1.3 s is timed: many between two scrapes. Timing costs that step about 500 readings
of the clock; `benchmarks/results/instrumentation.md` has what part of a step that is."""
SAMPLER = selftest_host.SAMPLER
SWAP_COPY = selftest_host.SWAP_COPY
OTHER = "other"
"""What is left: tables and tensors of the step, Python between two ops."""


def is_timed(step: int) -> bool:
    """Whether the step with this number is: the first of an engine is, so that no op is unknown for long."""
    return step % TIMED_EVERY == 1


def of_step(ops: Mapping[str, float], execute_seconds: float, swap_seconds: float) -> dict[str, float]:
    """`ops`, as the watch has them, and what a watch does not see; together `execute_seconds`."""
    seconds = dict(ops)
    if swap_seconds:
        seconds[SWAP_COPY] = swap_seconds
    seconds[OTHER] = max(0.0, execute_seconds - sum(seconds.values()))
    return seconds
