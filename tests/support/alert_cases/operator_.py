"""The operator itself. (The module `operator` is Python's.)"""

from __future__ import annotations

from alert_cases import made
from alert_cases.made import Case, engines, fires, flat, merged, operators, ramp


def _passes(failed: float, done: float) -> made.Series:
    name = "tidemark_operator_reconciles_total"
    return merged(operators(name, ramp(failed), result="failed"), operators(name, ramp(done), result="done"))


def _durations(within: float) -> made.Series:
    name = "tidemark_operator_reconcile_duration_seconds_bucket"
    edges = {"5.0": 0.0, "10.0": within, "30.0": 1.0, "+Inf": 1.0}
    return merged(*(operators(name, ramp(share), le=edge) for edge, share in edges.items()))


def _watches(leader: float, age: made.Values) -> made.Series:
    return merged(
        operators("tidemark_operator_leader", flat(leader), flat(1 - leader)),
        operators("tidemark_operator_watch_age_seconds", age, kind="Pod"),
        operators("tidemark_operator_watch_age_seconds", flat(3), kind="Deployment"),
    )


def _answers(code: str) -> made.Series:
    name = "tidemark_operator_api_requests_total"
    labels = {"verb": "patch", "kind": "Deployment"}
    return merged(operators(name, ramp(1), code=code, **labels), operators(name, ramp(3), code="200", **labels))


CASES = {
    "TidemarkOperatorDown": (
        fires("both processes", operators("up", flat(0), flat(0)), 10, {}),
        fires("it is no target any more", engines("up", flat(1)), 10, {}),
        Case("the standby is down", operators("up", flat(1), flat(0)), 10),
    ),
    "TidemarkNothingScraped": (
        fires("nothing at all", {}, 15, {}),
        fires("other things only", {'up{job="node"}': flat(1)}, 15, {}),
        Case("a target that is down is a target", engines("up", flat(0)), 15),
        Case("only the operator", operators("up", flat(1)), 15),
    ),
    "TidemarkOperatorLeaders": (
        fires("none", operators("tidemark_operator_leader", flat(0), flat(0)), 10, made.OPERATOR, "0"),
        fires("two", operators("tidemark_operator_leader", flat(1), flat(1)), 10, made.OPERATOR, "2"),
        Case("one of two", operators("tidemark_operator_leader", flat(1), flat(0)), 10),
        Case(
            "two installations, one leader each",
            merged(
                operators("tidemark_operator_leader", flat(1), flat(0)),
                {
                    made.selector("tidemark_operator_leader", {**made.OPERATOR, "namespace": "other"}): flat(1),
                },
            ),
            10,
        ),
    ),
    "TidemarkOperatorReconcileErrors": (
        fires("one of two", _passes(2, 2), 30, made.OPERATOR, "50%"),
        Case("one of twenty", _passes(1, 19), 30),
    ),
    "TidemarkOperatorSlow": (
        fires("all take 10 to 30 seconds", _durations(0.0), 30, made.OPERATOR, "29.8s"),
        Case("all within 10", _durations(1.0), 30),
    ),
    "TidemarkOperatorWatchStale": (
        fires("of pods", _watches(1, ramp(60)), 12, {**made.OPERATOR, "kind": "Pod"}, "12m 0s"),
        Case("a standby does not watch", _watches(0, ramp(60)), 12),
        Case("a minute", _watches(1, flat(60)), 12),
    ),
    "TidemarkOperatorApiErrors": (
        fires("one of four: a fault of the server", _answers("500"), 30, made.OPERATOR, "25%"),
        fires("one of four: no answer", _answers("0"), 30, made.OPERATOR, "25%"),
        Case("not found is an answer", _answers("404"), 30),
    ),
}
