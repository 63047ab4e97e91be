"""Services, their targets, and their configuration."""

from __future__ import annotations

from typing import Literal

from alert_cases import made
from alert_cases.made import Case, conditions, engines, fires, flat, merged, told

_UP = flat(1)
_DRIFT = engines("tidemark_config_info", _UP, _UP, [None] * 61, hash="aaa", generation="1") | {
    made.selector("tidemark_config_info", {**made.engine(2), "hash": "bbb", "generation": "1"}): _UP
}
_OTHERS = {made.selector("tidemark_config_info", {**made.engine(0, "other"), "hash": "ccc", "generation": "1"}): _UP}
_SAME = engines("tidemark_config_info", _UP, hash="aaa", generation="1")


def _up(*values: made.Values) -> made.Series:
    return engines("up", *values)


def _replicas(
    wanted: made.Values, ready: made.Values, updated: made.Values, prefix: Literal["", "exported_"] = ""
) -> made.Series:
    states = {"wanted": wanted, "ready": ready, "updated": updated}
    return merged(*(told("replicas", values, prefix=prefix, state=state) for state, values in states.items()))


_ALL = _replicas(flat(3), flat(3), flat(3))
_FIRST = [*flat(0, 20), *flat(1, 41)]
_BORN = [None] * 20 + flat(1, 41)


def _reloads(values: made.Values) -> made.Series:
    return merged(
        engines("tidemark_config_reloads_total", values, flat(0), flat(0), result="rejected"),
        engines("tidemark_config_reloads_total", made.ramp(1), result="applied"),
    )


CASES = {
    "TidemarkEngineDown": (
        fires("one of three", _up(_UP, flat(0), _UP), 10, made.SERVICE, "1"),
        fires("all three: once for the service", _up(flat(0)), 10, made.SERVICE, "3"),
        Case("for a moment", _up([*flat(1, 10), *flat(0, 3), *flat(1, 48)]), 12),
        Case("another job's target", {made.selector("up", {**made.engine(0), "job": "node"}): flat(0)}, 10),
    ),
    "TidemarkEngineMetricsAbsent": (
        fires("it serves, unseen; others are seen", merged(conditions(), _OTHERS), 15, made.SERVICE),
        fires(
            "the same, and the scrape of the operator does not honor labels",
            merged(conditions(prefix="exported_"), _OTHERS),
            15,
            made.SERVICE,
        ),
        fires(
            "one of three is not seen",
            merged(
                conditions(), _ALL, engines("tidemark_config_info", _UP, _UP, [None] * 61, hash="a", generation="1")
            ),
            15,
            made.SERVICE,
        ),
        Case("seen", merged(conditions(), _ALL, _SAME), 15),
        Case("suspended", merged(conditions(**made.SUSPENDED), _OTHERS), 15),
    ),
    "TidemarkServiceUnavailable": (
        fires("in trouble", conditions(Available="False", Ready="False", Degraded="True"), 15, made.SERVICE),
        fires("it never comes up", conditions(Available="False", Ready="False", Progressing="True"), 15, made.SERVICE),
        Case("suspended", conditions(**made.SUSPENDED), 15),
        Case("a model loads", conditions(Available="False", Ready="False", Progressing="True"), 8),
    ),
    "TidemarkServiceNotReady": (
        fires("rolled back", conditions(Ready="False", Degraded="True"), 20, made.SERVICE),
        fires("a spec that cannot be acted on, while the old one serves", conditions(Ready="False"), 20, made.SERVICE),
        Case("suspended", conditions(**made.SUSPENDED), 20),
        Case("ready", conditions(), 20),
    ),
    "TidemarkReplicasMissing": (
        fires("one of three", _replicas(flat(3), flat(2), flat(3)), 20, made.SERVICE, "1"),
        fires(
            "the same, and the scrape of the operator does not honor labels",
            _replicas(flat(3), flat(2), flat(3), "exported_"),
            20,
            made.SERVICE,
            "1",
        ),
        Case("all ready", _ALL, 20),
        Case("suspended", _replicas(flat(0), flat(0), flat(0)), 20),
        Case("scaled down, and one still ends", _replicas(flat(1), flat(2), flat(1)), 20),
        Case("during a rollout", _replicas(flat(3), [*flat(3, 10), *flat(2, 8), *flat(3, 43)], flat(3)), 20),
        Case("what is wanted is not known", told("replicas", flat(0), state="ready"), 20),
    ),
    "TidemarkRolloutStuck": (
        fires("one pod has it, and no further", _replicas(flat(3), flat(3), flat(1)), 10, made.SERVICE, "2"),
        fires(
            "it went on, and then no more",
            _replicas(flat(3), flat(3), [*flat(3, 5), *flat(1, 56)]),
            26,
            made.SERVICE,
            "2",
        ),
        Case(
            "slowly, but it goes on",
            _replicas(flat(3), flat(3), [*flat(3, 5), *flat(0, 10), *flat(1, 10), *flat(2, 10), *flat(3, 26)]),
            22,
        ),
        Case("done", _ALL, 20),
        Case(
            "the cluster has not seen the change",
            merged(*(told("replicas", flat(3), state=s) for s in ("wanted", "ready"))),
            20,
        ),
    ),
    "TidemarkRolledBack": (
        fires("the first one ever", told("rollbacks_total", _FIRST), 21, made.SERVICE, "1"),
        fires("B087: a process that begins with one", told("rollbacks_total", _BORN), 21, made.SERVICE, "1"),
        fires(
            "the scrape does not honor labels",
            told("rollbacks_total", _FIRST, prefix="exported_"),
            21,
            made.SERVICE,
            "1",
        ),
        Case("none", told("rollbacks_total", flat(0), flat(0)), 21),
        Case("long ago", told("rollbacks_total", flat(4)), 21),
        Case("it ends by itself", told("rollbacks_total", _FIRST), 40),
    ),
    "TidemarkMonitoringNotReady": (
        fires("a kind is missing", conditions(MonitoringReady="False"), 20, made.SERVICE),
        Case("made", conditions(), 20),
        Case("not asked for", merged(conditions(MonitoringReady="Unknown")), 20),
    ),
    "TidemarkCapacityExceeded": (
        fires("it does not fit", conditions(CapacityFit="False"), 10, made.SERVICE),
        Case("not known yet", conditions(CapacityFit="Unknown"), 10),
    ),
    "TidemarkConfigDrift": (
        fires("one of three differs", merged(_DRIFT, conditions()), 20, made.SERVICE, "2"),
        fires("without an operator", _DRIFT, 20, made.SERVICE, "2"),
        Case("a rollout is on its way", merged(_DRIFT, conditions(Progressing="True")), 20),
        Case("all the same, another service differs", merged(_SAME, _OTHERS), 20),
    ),
    "TidemarkConfigRejected": (
        fires("the first one ever", _reloads([*flat(0, 20), *flat(1, 41)]), 21, made.SERVICE, "1"),
        fires("B087: born with it", _reloads([None] * 20 + flat(1, 41)), 21, made.SERVICE, "1"),
        Case("only good ones", _reloads(flat(0)), 21),
    ),
    "TidemarkConfigNotApplied": (
        fires("refused by an engine", conditions(ConfigApplied="False"), 15, made.SERVICE),
        Case("being applied", conditions(ConfigApplied="Unknown"), 15),
    ),
}
