"""What clients notice."""

from __future__ import annotations

from alert_cases import made
from alert_cases.made import Case, engines, fires, flat, merged, ramp

_DAY = 48
"""Steps of half an hour."""


def _histogram(name: str, per_step: float, edges: dict[str, float], count: int = 61) -> made.Series:
    """`edges`: of all events, the share that falls under each bound."""
    buckets = [
        engines(f"{name}_bucket", ramp(per_step * share, count), le=edge)
        for edge, share in {**edges, "+Inf": 1}.items()
    ]
    return merged(*buckets, engines(f"{name}_count", ramp(per_step, count)))


def _requests(count: int = 61, **per_step: float) -> made.Series:
    parts = [engines("tidemark_requests_total", ramp(rate, count), outcome=name) for name, rate in per_step.items()]
    return merged(*parts)


def _refused(reason: str, **per_step: float) -> made.Series:
    return merged(_requests(**per_step), engines("tidemark_requests_rejected_total", ramp(1), reason=reason))


def _retried(requests: float) -> made.Series:
    return merged(_requests(stop=requests), engines("tidemark_request_retries_total", ramp(1)))


def _slo(name: str) -> dict[str, str]:
    return {**made.SERVICE, "slo": name}


_OUTAGE_OVER = merged(
    engines("tidemark_requests_total", [*ramp(1, 31), *flat(30, 90)], outcome="failed"),
    engines("tidemark_requests_total", ramp(9, 121), outcome="stop"),
)

CASES = {
    "TidemarkQueueWaitHigh": (
        fires(
            "all wait 5 to 10 seconds",
            _histogram("tidemark_queue_wait_seconds", 1, {"2.5": 0, "5.0": 0, "10.0": 1}),
            20,
            made.SERVICE,
            "9.75s",
        ),
        Case(
            "exactly at the edge is in time",
            _histogram("tidemark_queue_wait_seconds", 1, {"2.5": 0, "5.0": 1, "10.0": 1}),
            20,
        ),
        Case(
            "below the floor of traffic",
            _histogram("tidemark_queue_wait_seconds", 0.2, {"2.5": 0, "5.0": 0, "10.0": 1}),
            20,
        ),
    ),
    "TidemarkRequestStarves": (
        fires(
            "one engine never lets it start",
            engines("tidemark_oldest_wait_seconds", ramp(60), flat(0), flat(0)),
            10,
            made.SERVICE,
            "10m 0s",
        ),
        Case("half a minute", engines("tidemark_oldest_wait_seconds", flat(30)), 20),
    ),
    "TidemarkRequestsRefused": (
        fires("one of five, queue full", _refused("queue_full", stop=4, rejected=1), 20, made.SERVICE, "20%"),
        fires("of those that waited", _refused("queue_timeout", stop=4, timeout=1), 20, made.SERVICE, "20%"),
        Case("one of forty", _refused("queue_full", stop=39, rejected=1), 20),
        Case("wrong requests", _refused("invalid", stop=4, rejected=1), 20),
        Case("by an agreed rule", _refused("degraded", stop=4, rejected=1), 20),
    ),
    "TidemarkRetryStorm": (
        fires("one of two", _retried(2), 20, made.SERVICE, "50%"),
        Case("one of ten", _retried(10), 20),
        Case(
            "below the floor of traffic",
            merged(_requests(stop=0.1), engines("tidemark_request_retries_total", ramp(0.1))),
            20,
        ),
    ),
    "TidemarkAvailabilityBurnsFast": (
        fires("one of ten fails", _requests(stop=9, failed=1), 30, _slo("availability"), "10%"),
        fires("one of ten times out of the queue", _requests(length=9, timeout=1), 30, _slo("availability"), "10%"),
        Case("one of a hundred is no fast burn", _requests(stop=198, failed=1), 30),
        Case("clients leave, ask wrongly, or set deadlines", _requests(stop=9, aborted=3, rejected=3, deadline=3), 30),
        Case("the outage is over", _OUTAGE_OVER, 70),
        Case("a quiet night with few requests", _requests(stop=0.1, failed=0.1), 30),
        Case(
            "two failures in all",
            merged(
                _requests(stop=2),
                engines("tidemark_requests_total", [*flat(0, 20), *flat(2, 41)], flat(0), flat(0), outcome="failed"),
            ),
            22,
        ),
    ),
    "TidemarkAvailabilityBurnsSlowly": (
        fires("4 of 1000 fail, for hours", _requests(49, stop=996, failed=4), 20, _slo("availability"), "0.4%", "30m"),
        fires("2 of 1000, for days", _requests(4 * _DAY, stop=998, failed=2), 150, _slo("availability"), "0.2%", "30m"),
        Case("1 of 2000 is what was promised", _requests(4 * _DAY, stop=1999, failed=1), 150, step="30m"),
    ),
    "TidemarkFirstTokenBurnsFast": (
        fires(
            "all first tokens are late",
            _histogram("tidemark_time_to_first_token_seconds", 2, {"1.0": 0, "2.5": 0, "5.0": 1}),
            30,
            _slo("first_token"),
            "100%",
        ),
        Case(
            "one of ten is late",
            _histogram("tidemark_time_to_first_token_seconds", 2, {"1.0": 0, "2.5": 0.9, "5.0": 1}),
            30,
        ),
        Case(
            "all late, of few",
            _histogram("tidemark_time_to_first_token_seconds", 0.1, {"1.0": 0, "2.5": 0, "5.0": 1}),
            30,
        ),
    ),
    "TidemarkFirstTokenBurnsSlowly": (
        fires(
            "one of five is late, for hours",
            _histogram("tidemark_time_to_first_token_seconds", 60, {"1.0": 0, "2.5": 0.8, "5.0": 1}),
            20,
            _slo("first_token"),
            "20%",
            "30m",
        ),
        Case(
            "one of fifty",
            _histogram("tidemark_time_to_first_token_seconds", 60, {"1.0": 0, "2.5": 0.98, "5.0": 1}),
            20,
            step="30m",
        ),
    ),
    "TidemarkInterTokenBurnsFast": (
        fires(
            "all tokens are slow",
            _histogram("tidemark_inter_token_seconds", 200, {"0.1": 0, "0.2": 0, "0.5": 1}),
            40,
            _slo("inter_token"),
            "100%",
        ),
        Case("one of ten", _histogram("tidemark_inter_token_seconds", 200, {"0.1": 0, "0.2": 0.9, "0.5": 1}), 40),
        Case("one slow answer", _histogram("tidemark_inter_token_seconds", 2, {"0.1": 0, "0.2": 0, "0.5": 1}), 40),
    ),
    "TidemarkInterTokenBurnsSlowly": (
        fires(
            "one of five is slow, for a day",
            _histogram("tidemark_inter_token_seconds", 6000, {"0.1": 0, "0.2": 0.8, "0.5": 1}, 2 * _DAY),
            _DAY,
            _slo("inter_token"),
            "20%",
            "30m",
        ),
        Case(
            "one of fifty",
            _histogram("tidemark_inter_token_seconds", 6000, {"0.1": 0, "0.2": 0.98, "0.5": 1}, 2 * _DAY),
            _DAY,
            step="30m",
        ),
    ),
}
