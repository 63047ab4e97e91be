"""The faster clock of the drills: what it divides, what it leaves alone, and how cases pass on it."""

from __future__ import annotations

import dataclasses

import pytest
from alert_cases import made
from alerting import fault_rules, replay, rule_clock

from tidemark_operator.monitoring.rules import catalog, render
from tidemark_operator.monitoring.rules.thresholds import Thresholds

THRESHOLDS = Thresholds()
RULES = render.body(catalog.groups(THRESHOLDS), THRESHOLDS)


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300), ("1h30m", 5400), ("3d", 259_200), ("250ms", 0.25)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert rule_clock.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration of Prometheus"):
        rule_clock.seconds(text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rate(a_total[5m]) > 0.5", "rate(a_total[5000ms]) > 0.5"),
        ("a > 0 unless a offset 1h", "a > 0 unless a offset 60000ms"),
        ("max_over_time(a[1d:5m])", "max_over_time(a[1440000ms:5000ms])"),
        ("predict_linear(a[15m], 900) > 1", "predict_linear(a[15000ms], 15) > 1"),
        ('tidemark_wait_seconds{le="60"} > 300', 'tidemark_wait_seconds{le="60"} > 300'),
        ("service:tidemark_slo_bad:ratio_rate5m > 0.1", "service:tidemark_slo_bad:ratio_rate5m > 0.1"),
    ],
)
def test_windows_are_shorter_and_limits_are_not(before: str, after: str) -> None:
    assert rule_clock.expression(before, 60) == after


def test_a_document_keeps_everything_else() -> None:
    before = {
        "route": {"group_wait": "30s", "receiver": "on-call"},
        "groups": [{"name": "a", "interval": "2m", "rules": [{"alert": "B", "for": "10m", "labels": {"for": "10m"}}]}],
    }
    after = rule_clock.document(before, 60)
    assert after["route"] == {"group_wait": "500ms", "receiver": "on-call"}
    assert after["groups"][0]["interval"] == "2000ms"
    assert after["groups"][0]["rules"][0]["for"] == "10000ms"
    assert before["groups"][0]["interval"] == "2m"


def test_every_window_of_our_rules_is_found() -> None:
    """A form of range that the clock does not know would stay as long as it is."""
    for group in rule_clock.document(RULES, 1000)["groups"]:
        for rule in group["rules"]:
            assert max(rule_clock.windows(rule["expr"]), default=0) <= 7 * 86.4, rule


def test_the_files_of_all_clocks_have_every_alert_once() -> None:
    files = fault_rules.files(RULES)
    names = [rule["alert"] for file in files.values() for group in file["groups"] for rule in group["rules"]
             if "alert" in rule]  # fmt: skip
    assert sorted(names) == sorted(alert.name for alert in catalog.alerts_of(catalog.groups(THRESHOLDS)))
    recorded = [{rule["record"] for group in file["groups"] for rule in group["rules"] if "record" in rule}
                for file in files.values()]  # fmt: skip
    assert all(recorded)
    assert len(set.union(*recorded)) == sum(map(len, recorded)), "each is recorded on one clock"


def at(values: made.Values, *positions: float) -> list[float | None]:
    return [replay.value_at(values, position) for position in positions]


def test_what_rises_rises_evenly_and_goes_on() -> None:
    assert at([0.0, 10.0, 20.0], 0, 0.5, 1, 2, 3.5) == [0, 5, 10, 20, 35]


def test_what_falls_falls_at_once() -> None:
    """A counter that begins anew does so once."""
    assert at([100.0, 200.0, 50.0, 60.0], 1.5, 1.99, 2) == [200, 200, 50]


def test_no_sample_is_no_line() -> None:
    values: made.Values = [None, None, 1.0, 1.0, None]
    assert at(values, 0, 1.5, 2, 3.5, 9) == [None, None, 1, 1, None]


def lines(name: str, now: float = 1012.0) -> list[str]:
    """Of a series that is 60 more at each step of a minute, sixty times faster, 12 s after its begin."""
    selector = made.selector(name, made.engine(0))
    found = replay.Replay({selector: made.ramp(60)}, "1m", 60.0, "elsewhere", began=1000.0)
    return list(found.lines(now))


def test_a_line_has_its_own_cluster_and_its_time() -> None:
    (line,) = lines("tidemark_generated_tokens_total")
    assert 'cluster="elsewhere"' in line
    assert line.endswith(" 720.0 1012000\n")


def test_a_share_of_time_stays_a_share() -> None:
    assert " 12.0 " in lines("tidemark_watermark_seconds_total")[0]


def test_a_moment_is_as_long_ago_as_in_the_case() -> None:
    """At the case's second 720 it has the value 720: now."""
    assert " 1012.0 " in lines("tidemark_operator_evaluation_timestamp_seconds")[0]


def test_a_case_may_begin_late_and_is_over_in_the_end() -> None:
    short = replay.Replay({"a": made.flat(1, 10)}, "1m", 60.0, "x", begins_at_step=5.0)
    assert not short.is_over
    assert dataclasses.replace(short, begins_at_step=11.0).is_over
