"""Engines that stand still, fail, fall back, or end again and again."""

from __future__ import annotations

from alert_cases import made
from alert_cases.made import Case, engines, fires, flat, merged, ramp

_NEVER = flat(0)
_WORK = merged(
    engines("tidemark_requests_waiting", flat(2), _NEVER, _NEVER, lane="express"),
    engines("tidemark_requests_running", flat(1), flat(1), _NEVER),
)
_BORN = [None] * 20 + flat(1.0, 41)
_LATER = [*flat(0, 20), *flat(1, 41)]


def _restarts(count: int) -> list[float]:
    """An hour with so many new processes."""
    each = 61 // (count + 1) + 1
    return [float(minute % each + 1) * 100 for minute in range(61)]


def _failed(values: made.Values) -> made.Series:
    return merged(
        engines("tidemark_requests_total", values, _NEVER, _NEVER, outcome="failed"),
        engines("tidemark_requests_total", ramp(3), outcome="stop"),
        engines("tidemark_requests_total", ramp(1), outcome="aborted"),
    )


def _counted(values: made.Values, wanted: int) -> made.Series:
    return merged(
        made.told("engine_restarts_total", values), made.told("replicas", flat(wanted, len(values)), state="wanted")
    )


def _oom(values: made.Values) -> made.Series:
    return engines("tidemark_out_of_memory_total", values, _NEVER, _NEVER)


CASES = {
    "TidemarkEngineStalled": (
        fires(
            "stuck in its very first step: there is no series of steps yet",
            merged(_WORK, engines("tidemark_generated_tokens_total", _NEVER, ramp(9), _NEVER)),
            20,
            made.engine_labels(),
            "2",
        ),
        fires(
            "it worked once",
            merged(
                engines("tidemark_requests_waiting", _NEVER, lane="slow"),
                engines("tidemark_requests_running", flat(4), flat(1), _NEVER),
                engines("tidemark_generated_tokens_total", flat(100), ramp(9), _NEVER),
                engines("tidemark_step_tokens_sum", flat(300), ramp(9), _NEVER, phase="decode"),
            ),
            20,
            made.engine_labels(),
            "4",
        ),
        Case(
            "a long prompt: no token for a client, but it computes",
            merged(
                _WORK,
                engines("tidemark_generated_tokens_total", _NEVER, ramp(9), _NEVER),
                engines("tidemark_step_tokens_sum", ramp(40), ramp(9), _NEVER, phase="prompt"),
            ),
            20,
        ),
        Case(
            "no work",
            merged(
                engines("tidemark_requests_waiting", _NEVER, lane="express"),
                engines("tidemark_requests_running", _NEVER),
                engines("tidemark_generated_tokens_total", flat(100)),
            ),
            20,
        ),
    ),
    "TidemarkRequestsFailing": (
        fires("the first one ever, series there from the start", _failed(_LATER), 21, made.SERVICE, "1"),
        fires("B087: the series is born with its first error", _failed(_BORN), 21, made.SERVICE, "1"),
        Case("it ends when there was none for long", _failed(_LATER), 40),
        Case("B087: the same, of a born series", _failed(_BORN), 40),
        Case("other ends", _failed(_NEVER), 21),
        Case("old ones, then a new process", _failed([*flat(5, 15), *flat(0, 46)]), 21),
    ),
    "TidemarkEngineFellBack": (
        fires(
            "two ops of one engine",
            engines("tidemark_kernel_paths_unplanned", flat(2), _NEVER, _NEVER),
            10,
            made.SERVICE,
            "2",
        ),
        Case("as planned", engines("tidemark_kernel_paths_unplanned", _NEVER), 10),
    ),
    "TidemarkOutOfMemory": (
        fires("the first one ever", _oom(_LATER), 21, made.SERVICE, "1"),
        fires("B087: born with it", _oom(_BORN), 21, made.SERVICE, "1"),
        fires(
            "in all three: once for the service", engines("tidemark_out_of_memory_total", _LATER), 21, made.SERVICE, "3"
        ),
        Case("never", _oom(_NEVER), 21),
        Case("it ends when there was none for long", _oom(_LATER), 40),
    ),
    "TidemarkEngineRestarting": (
        fires(
            "they end before they took a prompt: the operator counts them",
            _counted([*flat(0, 20), *ramp(1, 4, 1), *flat(4, 37)], 1),
            40,
            made.SERVICE,
            "4",
        ),
        fires(
            "both have seen it: once",
            merged(
                engines("tidemark_prompt_tokens_total", _restarts(3), ramp(9), _NEVER),
                _counted([*flat(0, 20), *flat(3, 41)], 1),
            ),
            60,
            made.engine_labels(),
            "3",
        ),
        Case("the operator counts two", _counted([*flat(0, 20), *flat(2, 41)], 1), 40),
        Case("one restart, and then it was suspended", _counted([*flat(0, 20), *flat(1, 41)], 0), 40),
        Case("a node with all three started anew", _counted([*flat(0, 20), *flat(3, 41)], 3), 40),
        fires(
            "three new processes",
            engines("tidemark_prompt_tokens_total", _restarts(3), ramp(9), _NEVER),
            60,
            made.engine_labels(),
            "3",
        ),
        Case("two", engines("tidemark_prompt_tokens_total", _restarts(2), ramp(9), _NEVER), 60),
        Case("one of each engine, by a rollout", engines("tidemark_prompt_tokens_total", _restarts(1)), 60),
    ),
}
