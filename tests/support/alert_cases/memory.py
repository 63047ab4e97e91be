"""Lines of memory use."""

from __future__ import annotations

from alert_cases import made
from alert_cases.made import Case, engines, fires, flat, merged, ramp

_NEVER = flat(0)


def _crossed(level: str, *values: made.Values) -> made.Series:
    return engines("tidemark_watermark_seconds_total", *values, level=level)


def _waiting(*values: made.Values) -> made.Series:
    return engines("tidemark_requests_waiting", *values, lane="express")


def _memory(*measured: float) -> made.Series:
    return merged(
        engines("tidemark_memory_bytes", *(flat(value) for value in measured), part="kv"),
        engines("tidemark_memory_bytes", flat(10_000), part="free"),
        engines("tidemark_memory_planned_bytes", flat(600), part="kv"),
        engines("tidemark_memory_bytes", flat(400), part="weights"),
        engines("tidemark_memory_planned_bytes", flat(400), part="weights"),
        engines("tidemark_memory_planned_bytes", flat(5000), part="activations"),
    )


def _hits(before: float, after: float, tokens: float) -> made.Series:
    """Nine hours with one share of hits, then two with another; `tokens` known tokens a step of two minutes."""
    shares = [before] * 240 + [after] * 140
    hits, misses = 0.0, 0.0
    found: tuple[list[float], list[float]] = ([], [])
    for share in shares:
        hits, misses = hits + tokens * share, misses + tokens * (1 - share)
        found[0].append(hits)
        found[1].append(misses)
    name = "tidemark_prefix_tokens_total"
    return merged(engines(name, found[0], result="hit"), engines(name, found[1], result="miss"))


_ENDS = [*ramp(60, 21), *flat(1200, 40)]
_KEPT = merged(_crossed("queue", _ENDS, _NEVER, _NEVER), _waiting(flat(3), _NEVER, _NEVER))

CASES = {
    "TidemarkMemoryQueueLine": (
        fires(
            "one of three engines is above, and its requests wait",
            merged(_crossed("queue", ramp(60), _NEVER, _NEVER), _waiting(flat(3), _NEVER, _NEVER)),
            20,
            made.SERVICE,
            "100%",
        ),
        fires(
            "all three: once for the service",
            merged(_crossed("queue", ramp(60)), _waiting(flat(3))),
            20,
            made.SERVICE,
            "100%",
        ),
        fires("hysteresis: the line was left five minutes ago", _KEPT, 25, made.SERVICE, "60%"),
        Case("it ends when the line was left for long", _KEPT, 35),
        Case("above the line, and nobody waits", merged(_crossed("queue", ramp(60)), _waiting(_NEVER)), 20),
        Case(
            "one engine is above, those of another wait",
            merged(_crossed("queue", ramp(60), _NEVER, _NEVER), _waiting(_NEVER, flat(3), flat(3))),
            20,
        ),
        Case("it flickers", merged(_crossed("queue", ramp(20)), _waiting(flat(3))), 20),
        Case("not for long enough", merged(_crossed("queue", ramp(60)), _waiting(flat(3))), 8),
    ),
    "TidemarkMemoryPreemptLine": (
        fires(
            "sequences are preempted, nobody waits",
            merged(
                _crossed("preempt", ramp(60), _NEVER, _NEVER),
                _waiting(_NEVER),
                engines("tidemark_preemptions_total", ramp(1), _NEVER, _NEVER, mode="recompute"),
            ),
            12,
            made.SERVICE,
            "100%",
        ),
        fires(
            "requests wait, nobody is preempted",
            merged(
                _crossed("preempt", ramp(60), _NEVER, _NEVER),
                _waiting(flat(1), _NEVER, _NEVER),
                engines("tidemark_preemptions_total", _NEVER, mode="recompute"),
            ),
            12,
            made.SERVICE,
            "100%",
        ),
        Case(
            "above the line without any effect",
            merged(
                _crossed("preempt", ramp(60)),
                _waiting(_NEVER),
                engines("tidemark_preemptions_total", flat(7), mode="swap"),
            ),
            20,
        ),
        Case("only the queue line", merged(_crossed("queue", ramp(60)), _waiting(flat(3))), 20),
    ),
    "TidemarkMemoryDrowning": (
        fires(
            "use rises by 3 % a minute, and requests wait",
            merged(
                engines("tidemark_kv_usage_ratio", ramp(0.03, 24, 0.3), flat(0.2, 24), flat(0.2, 24)),
                _waiting(flat(1), _NEVER, _NEVER),
            ),
            18,
            made.SERVICE,
            "129%",
        ),
        Case(
            "it rises, and nobody waits",
            merged(engines("tidemark_kv_usage_ratio", ramp(0.03, 24, 0.3)), _waiting(_NEVER)),
            18,
        ),
        Case(
            "it rose, and the engine went away before it was full",
            merged(engines("tidemark_kv_usage_ratio", [*ramp(0.03, 10, 0.3), None]), _waiting([*flat(1, 10), None])),
            14,
        ),
        Case("high, and level", merged(engines("tidemark_kv_usage_ratio", flat(1.0)), _waiting(flat(2))), 18),
        Case(
            "it falls again",
            merged(engines("tidemark_kv_usage_ratio", ramp(-0.01, 61, 1.0)), _waiting(flat(2))),
            18,
        ),
    ),
    "TidemarkPreemptionStorm": (
        fires(
            "one preemption to four requests",
            merged(
                engines("tidemark_preemptions_total", ramp(1), mode="recompute"),
                engines("tidemark_requests_total", ramp(4), outcome="stop"),
            ),
            25,
            made.SERVICE,
            "45",
        ),
        fires(
            "nothing ends any more",
            merged(
                engines("tidemark_preemptions_total", ramp(1), mode="swap"),
                engines("tidemark_requests_total", flat(40), outcome="stop"),
            ),
            25,
            made.SERVICE,
            "45",
        ),
        Case(
            "one to thirty",
            merged(
                engines("tidemark_preemptions_total", ramp(1), mode="recompute"),
                engines("tidemark_requests_total", ramp(30), outcome="stop"),
            ),
            25,
        ),
        Case(
            "a few, of few",
            merged(
                engines("tidemark_preemptions_total", ramp(0.1), mode="recompute"),
                engines("tidemark_requests_total", ramp(0.2), outcome="stop"),
            ),
            25,
        ),
    ),
    "TidemarkSoftLimitTightened": (
        fires("for over an hour", made.told("soft_limit_tightened", flat(1, 80)), 62, made.SERVICE),
        fires(
            "the scrape of the operator does not honor labels",
            made.told("soft_limit_tightened", flat(1, 80), prefix="exported_"),
            62,
            made.SERVICE,
        ),
        Case("for half an hour", made.told("soft_limit_tightened", [*flat(0, 30), *flat(1, 50)]), 62),
        Case("never", made.told("soft_limit_tightened", flat(0, 80)), 62),
    ),
    "TidemarkPrefixHitsFell": (
        fires("from 80 % to 10 %", _hits(0.8, 0.1, 900), 320, made.SERVICE, "10%", "2m"),
        Case("as always", _hits(0.8, 0.8, 900), 320, (), "2m"),
        Case("from 80 % to 50 %", _hits(0.8, 0.5, 900), 320, (), "2m"),
        Case("it never found much", _hits(0.05, 0.0, 900), 320, (), "2m"),
        Case("nobody asks", _hits(0.8, 0.1, 0), 320, (), "2m"),
        Case("hardly anybody asks", _hits(0.8, 0.1, 10), 320, (), "2m"),
    ),
    "TidemarkMemoryPlanExceeded": (
        fires("a fifth more, in one engine", _memory(800, 600, 600), 10, made.SERVICE, "120%"),
        Case("as planned; what is free, or was not measured, does not count", _memory(650, 600, 600), 10),
        Case("without a plan", engines("tidemark_memory_bytes", flat(9), part="kv"), 10),
    ),
}
