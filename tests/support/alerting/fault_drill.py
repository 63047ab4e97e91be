"""Every alert once, from injected series to a message and back: real Prometheus, real Alertmanager, rendered rules.

Each fault is in a cluster of its own, and they come at once, but for what any target anywhere hides: alerts about
absence carry no label, so each has a while for itself before there are targets. Beside them one cluster is well, and in
the end all are.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from alert_cases import all_cases, made, worlds
from alerting import fault_rules, inbox, programs, rendered, replay, rule_clock

from tidemark_operator.monitoring import inhibition, site
from tidemark_runtime.contract import metrics

FIRING_SECONDS = 90.0
"""The slowest: a window of an hour and `for` of 15 minutes, a hundred times faster, on a busy machine."""
RESOLVED_SECONDS = 90.0
_FLAGS = (
    "--query.lookback-delta=6s",
    "--rules.alert.resend-delay=5s",
)
"""How far back a sample is looked for, so that what vanishes is gone soon, and when an alert is sent again. Unless told
otherwise: five minutes and one."""
WELL = "well"
"""The cluster without a fault."""
_REQUESTS = 40
_STEPS = 400
_LEAD_SECONDS = 25.0
"""Within so long a case that is written with more history comes to the step at which it must fire."""
_SCRAPES = {fault_rules.MINUTES: "500ms", fault_rules.HOURS: "100ms", fault_rules.DAYS: "100ms"}
"""Clock -> interval: at least three samples of the shortest window."""


@dataclass(frozen=True)
class Outcome:
    """What came of one alert."""

    firing: tuple[inbox.Note, ...]
    """For each thing that must fire: its message."""
    resolved: tuple[inbox.Note, ...]


@dataclass(frozen=True)
class Result:
    outcomes: Mapping[str, Outcome]
    notes: tuple[inbox.Note, ...]
    """All messages."""
    rule_problems: tuple[str, ...]
    left: tuple[str, ...]
    """Alerts that Alertmanager still has in the end."""
    inhibited_first: tuple[str, ...]
    """Alerts that it did not send in the first act, because another said it better."""


@dataclass(frozen=True)
class _Stage:
    files: rendered.Files
    world: replay.World
    mail: inbox.Inbox
    prometheus: programs.Prometheus
    alertmanager: programs.Alertmanager


def run(folder: Path, runbook_base_url: str) -> Result:
    """Raises `AssertionError` with what was missing."""
    with _stage(folder, runbook_base_url) as stage:
        inhibited = _faults(stage)
        _all_well(stage)
        outcomes = {name: _outcome(stage, name) for name in all_cases.CASES}
        left = [alert["labels"]["alertname"] for alert in stage.alertmanager.alerts()]
        problems = stage.prometheus.rule_problems()
        return Result(outcomes, stage.mail.notes, tuple(problems), tuple(left), inhibited)


@contextlib.contextmanager
def _stage(folder: Path, runbook_base_url: str) -> Iterator[_Stage]:
    files, world = rendered.write(folder / "rendered", runbook_base_url), replay.World()
    rules = fault_rules.files(files.rules)
    for name, document in rules.items():
        (folder / name).write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    with (
        inbox.listening() as mail,
        inbox.serving(get=lambda asked: world.text(float(asked.path.rpartition("/")[2]))) as exporter,
        programs.alertmanager(folder, rendered.alertmanager(files, fault_rules.MINUTES, mail.url)) as alertmanager,
        programs.prometheus(folder, _config(files, rules, exporter, alertmanager.url), *_FLAGS) as prometheus,
    ):
        yield _Stage(files, world, mail, prometheus, alertmanager)


def _config(files: rendered.Files, rules: Mapping[str, Any], exporter: str, alertmanager: str) -> dict[str, Any]:
    """The example, with targets of the drill's own: one for each clock, which tells the series of all processes."""
    target = {"honor_labels": True, "static_configs": [{"targets": [exporter.removeprefix("http://")]}]}
    return {
        **rendered.with_alertmanager(files.document(site.PROMETHEUS), alertmanager),
        "global": {"evaluation_interval": "500ms"},
        "rule_files": list(rules),
        "scrape_configs": [
            {"job_name": f"{factor:g} times", "metrics_path": f"/{factor}", "scrape_interval": interval, **target}
            for factor, interval in _SCRAPES.items()
        ],
    }


def about_absence() -> tuple[str, ...]:
    """Alerts without a label: any healthy engine or operator anywhere keeps them silent. Those that need the emptiest
    stage come first."""
    found = [name for name in all_cases.CASES if not firing_case(name).firing[0].labels]
    return tuple(sorted(found, key=lambda name: len(firing_case(name).series)))


@functools.cache
def firing_case(alert: str) -> made.Case:
    return next(case for case in all_cases.CASES[alert] if case.firing)


def expected_labels(alert: str, severity: str) -> list[dict[str, str]]:
    """Of every message that must come."""
    return [
        {
            "alertname": alert,
            "severity": severity,
            **each.labels,
            **({"cluster": alert} if "cluster" in each.labels else {}),
        }
        for each in firing_case(alert).firing
    ]


def _replay(stage: _Stage, alert: str) -> replay.Replay:
    case, factor = firing_case(alert), fault_rules.clock_of(stage.files.rules, alert)
    begins = max(0.0, case.at - _LEAD_SECONDS * factor / rule_clock.seconds(case.step))
    return replay.Replay(case.series, case.step, factor, alert, begins)


@functools.cache
def _site() -> made.Series:
    return worlds.site(_REQUESTS, _STEPS)


def _well(cluster: str, read: str = "") -> replay.Replay:
    """A site where all is well; with `read`, only the series that these expressions name, and that engines are seen."""
    series = _site()
    if read:
        named = {metrics.CONFIG_INFO.name, *re.findall(r"\w+", read)}
        series = {key: values for key, values in series.items() if key.partition("{")[0] in named}
    return replay.Replay(series, "1m", fault_rules.MINUTES, cluster)


def _faults(stage: _Stage) -> tuple[str, ...]:
    """Alerts that were not sent meanwhile because another said it better."""
    inhibited: set[str] = set()
    others = [name for name in all_cases.CASES if name not in about_absence()]
    targets = [name for name in others if any(key.startswith("up{") for key in firing_case(name).series)]
    _play(stage, [name for name in others if name not in targets])
    for alert in about_absence():
        _play(stage, [alert])
        _wait(stage, [alert], FIRING_SECONDS, is_firing=True)
        silenced = {name for rule in inhibition.RULES if rule.by == alert for name in rule.silenced}
        for other in sorted(silenced & set(about_absence())):
            programs.until(f"{other} is held back", functools.partial(_is_held_back, stage, other), FIRING_SECONDS)
            inhibited.add(other)
    stage.world.replays = {**stage.world.replays, WELL: _well(WELL)}
    _play(stage, targets)
    _wait(stage, others, FIRING_SECONDS, is_firing=True)
    return tuple(inhibited)


def _is_held_back(stage: _Stage, alert: str) -> bool:
    found = [item for item in stage.alertmanager.alerts() if item["labels"]["alertname"] == alert]
    return bool(found) and all(item["status"]["inhibitedBy"] for item in found)


def _play(stage: _Stage, alerts: list[str]) -> None:
    """From now on these, too, from the beginning."""
    stage.world.replays = {**stage.world.replays, **{name: _replay(stage, name) for name in alerts}}


def _all_well(stage: _Stage) -> None:
    rules, faulty = stage.files.rules, [name for name in stage.world.replays if name != WELL]
    well = {name: _well(name, fault_rules.expressions(rules, name)) for name in faulty}
    stage.world.replays = {**stage.world.replays, **well}
    _wait(stage, list(all_cases.CASES), RESOLVED_SECONDS, is_firing=False)
    try:
        programs.until("Alertmanager has no alert", lambda: not stage.alertmanager.alerts(), RESOLVED_SECONDS)
    except AssertionError as cause:
        raise AssertionError(f"{cause}; it has {stage.alertmanager.alerts()}") from cause


def _wait(stage: _Stage, alerts: list[str], seconds: float, *, is_firing: bool) -> None:
    def missing() -> list[str]:
        return [name for name in alerts if not _found(stage, name, is_firing)]

    def is_complete() -> bool:
        left = missing()
        if is_firing:
            # One that fires for a moment only may pass unseen where a busy machine is late with its scrapes.
            _play(stage, [name for name in left if stage.world.replays[name].is_over])
        return not left

    try:
        programs.until("every message came", is_complete, seconds, 0.5)
    except AssertionError as cause:
        what = "sent" if is_firing else "resolved"
        raise AssertionError(f"{cause}; not {what}: {missing()}; Prometheus has {stage.prometheus.alerts()}") from cause


def _found(stage: _Stage, alert: str, is_firing: bool) -> tuple[inbox.Note, ...]:
    """A message for each thing that must fire; nothing until all are there."""
    severity = stage.files.alerts[alert]["labels"]["severity"]
    notes = [note for note in stage.mail.notes if note.is_firing == is_firing]
    found = []
    for labels in expected_labels(alert, severity):
        found += [note for note in notes if note.labels == labels][:1]
    return tuple(found) if len(found) == len(firing_case(alert).firing) else ()


def _outcome(stage: _Stage, alert: str) -> Outcome:
    return Outcome(_found(stage, alert, True), _found(stage, alert, False))
